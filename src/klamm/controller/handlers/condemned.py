"""Replicas that have to go and whose brokers have not said yet that they went: written down until they say so.

Those of deleted topics on brokers that were gone, and all that a reassignment takes from a broker.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from klamm.controller.context import CondemnedReplicas, Partition
from klamm.controller.decisions.condemned import (
    all_condemned,
    condemned_by_name,
    other_brokers_of,
    plan_answers,
    plan_return,
)
from klamm.controller.decisions.topic_deletion import ByBroker
from klamm.controller.states import ReplicaState
from klamm.controller.workbench import Workbench
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId
from klamm.telemetry.journal import by_topic
from klamm.zk.deletions import Condemned, delete_condemned, read_condemned, write_condemned
from klamm.zk.znodes import CONDEMNED_REPLICAS, condemned_path

MOVED_CHUNK: Final = 2_000  # replicas looked at between two awaits


async def load_condemned(bench: Workbench) -> None:
    """What earlier terms wrote down."""
    found, unreadable = await read_condemned(bench.store)
    for record in found:
        _remember(bench, record)
    for path, why in unreadable.items():
        bench.journal.refused(bench.cause, path, why)


async def condemn(bench: Workbench, topics: Mapping[str, ByBroker]) -> dict[tuple[str, BrokerId], str]:
    """Write down what gone brokers hold of these topics, before ZooKeeper forgets that they do.

    Why not, by topic and broker, where ZooKeeper refuses it: there the deletion or move waits, and is tried again.
    """
    records = []
    for topic, by_broker in topics.items():
        topic_id = bench.context.topics[topic].id
        assert topic_id is not None, f"{topic} has no id to be told apart by"
        for broker, partitions in by_broker.items():
            known = bench.context.condemned.get(broker, {}).get(topic_id)
            listed: Collection[int] = known.partitions if known is not None else ()
            numbers = {p.partition for p in partitions}.union(listed)
            if len(numbers) > len(listed):
                records.append(Condemned(broker, topic, topic_id, tuple(sorted(numbers))))
    if not records:
        return {}
    written = {(b, topic_id) for b, held in bench.context.condemned.items() for topic_id in held}
    taken, refused = await write_condemned(bench.store, records, written)
    for record in taken:
        bench.context.struck_out.pop((record.broker, record.topic_id), None)
        _remember(bench, record)
    for _, broker in refused:
        bench.store.was_refused(f"{CONDEMNED_REPLICAS}/{broker}")  # where it may not be read, too
    return refused


async def condemn_moved(bench: Workbench, replicas: Mapping[BrokerId, Iterable[Partition]]) -> dict[Partition, str]:
    """Replicas that a reassignment takes from their brokers: written down before the assignment says so.

    The order to delete them may be lost, with its broker or with this controller; nobody else knows of it afterwards.
    Why not, for those that ZooKeeper does not let us write down: they may not move.
    """
    moved: dict[str, dict[BrokerId, list[Partition]]] = {}
    for broker, partitions in replicas.items():
        async for p in bench.turns.each(partitions, MOVED_CHUNK):
            if bench.context.topics[p.topic].id is not None:
                moved.setdefault(p.topic, {}).setdefault(broker, []).append(p)
    refused = await condemn(bench, moved)
    return {p: why for (topic, broker), why in refused.items() for p in moved[topic][broker]}


async def forget_condemned(bench: Workbench, topic: str, kept: Iterable[BrokerId]) -> None:
    """A record from before a crash, on a broker that is here and deleted its replicas after all."""
    topic_id = bench.context.topics[topic].id
    if topic_id is None:
        return
    wrong = other_brokers_of(bench.context, topic_id, kept)
    if wrong:
        await _drop(bench, [bench.context.condemned[b][topic_id] for b in wrong])


async def on_brokers_return(bench: Workbench, brokers: Sequence[BrokerId]) -> None:
    """Before anything else is asked of them: delete what is condemned and nobody else's."""
    for broker in brokers:
        for record in all_condemned(bench.context, broker):
            record.told.clear()
        plan = plan_return(bench.context, broker)
        if plan.stop:
            await bench.store.confirm_office()  # the next controller may have moved them back, unheard by this broker
        if plan.void:
            why = "the topic lives, and the broker holds them again: its deletion was called off, or they moved back"
            voided = by_topic(p for _, p in plan.void)
            bench.journal.refused(bench.cause, "condemned replicas", why, broker=broker, partitions=voided)
            await _strike_out(bench, plan.void)
        for replica in plan.stop:
            bench.batch.add_stop_replica([broker], replica, delete=True)
        if plan.stop or plan.ask:
            facts = {"asked_first": by_topic(plan.ask)} if plan.ask else {}
            stop = by_topic(plan.stop)
            bench.journal.line(bench.cause, "deletion", step="condemned", broker=broker, partitions=stop, **facts)
    await bench.send_requests()


async def on_leader_and_isr_answers(
    bench: Workbench, broker: BrokerId, answers: Iterable[tuple[Partition, int]]
) -> None:
    """Where a later topic has the name: delete what has another id, forget where nothing was left."""
    stop, gone = plan_answers(bench.context, broker, answers)
    for replica in stop:
        bench.batch.add_stop_replica([broker], replica, delete=True)
    if stop:
        bench.journal.line(bench.cause, "deletion", step="condemned", broker=broker, partitions=by_topic(stop))
        await bench.send_requests()
    await _strike_out(bench, gone)


async def on_replicas_deleted(bench: Workbench, broker: BrokerId, partitions: Sequence[Partition]) -> None:
    """Nothing is left under these names; where a later topic has one, its replica can be made now.

    Unless an order to delete it once more waits: it came back in between, and went again. That one's answer counts.
    """
    if broker not in bench.context.condemned:
        return
    if bench.context.offline_dirs.get(broker):
        return  # what is meant may lie where the broker cannot look
    again = bench.channels.waiting_deletions(broker)
    settled, ended = _settled(bench, broker, [p for p in partitions if p.key not in again])
    for p in settled:
        later = bench.context.partition(p.topic, p.partition)
        if later is not None and later.leadership is not None and _is_wanted(bench, broker, later):
            if bench.context.can_replica_move(broker, later, ReplicaState.NEW):  # it was to move away, and did not
                bench.context.move_replicas(broker, [later], ReplicaState.NEW)
            bench.batch.add_leader_and_isr([broker], later, is_new=True)
    await _strike_out(bench, ended)  # where ZooKeeper fails in it they are told all the same
    await bench.send_requests()


def _is_wanted(bench: Workbench, broker: BrokerId, later: Partition) -> bool:
    """Also where that topic's deletion waits for a reassignment, which would wait for this replica for ever."""
    return broker in later.replicas and later.topic not in bench.context.topics_with_deletion_started


def _settled(
    bench: Workbench, broker: BrokerId, partitions: Iterable[Partition]
) -> tuple[list[Partition], list[tuple[CondemnedReplicas, Partition]]]:
    """Those under whose name something had been condemned, and what is to be struck out of which record."""
    settled: list[Partition] = []
    ended: list[tuple[CondemnedReplicas, Partition]] = []
    named = condemned_by_name(bench.context, broker)
    for p in partitions:
        held = [c for c in named.get(p.topic, ()) if p.partition in c.partitions]
        if held:
            settled.append(p)
        ended += ((record, p) for record in held)
    return settled, ended


async def _strike_out(bench: Workbench, ended: Iterable[tuple[CondemnedReplicas, Partition]]) -> None:
    """Out of memory; in ZooKeeper a record stays as it is until it names nothing more."""
    empty: dict[CondemnedReplicas, None] = {}
    for record, p in ended:
        record.partitions.pop(p.partition, None)  # an answer may name it twice: two topics of one name in a request
        if not record.partitions:
            empty[record] = None
    if empty:
        await _drop(bench, list(empty))


async def _drop(bench: Workbench, records: Sequence[CondemnedReplicas]) -> None:
    for record in records:
        held = bench.context.condemned[record.broker]
        del held[record.topic_id]
        if not held:
            del bench.context.condemned[record.broker]
        bench.context.struck_out[record.broker, record.topic_id] = None
    await remove_struck_out(bench)


async def remove_struck_out(bench: Workbench) -> None:
    """From ZooKeeper; what it keeps is told of, and tried again."""
    records = list(bench.context.struck_out)
    refused = await delete_condemned(bench.store, records)
    for broker, topic_id in records:
        if condemned_path(broker, topic_id) not in refused:
            bench.context.struck_out.pop((broker, topic_id), None)
    for path, why in refused.items():
        bench.journal.refused(bench.cause, path, why)


def _remember(bench: Workbench, record: Condemned) -> None:
    partitions = {n: Partition(record.topic, n, ReplicaAssignment((record.broker,))) for n in record.partitions}
    held = bench.context.condemned.setdefault(record.broker, {})
    held[record.topic_id] = CondemnedReplicas(record.broker, record.topic, record.topic_id, partitions)
