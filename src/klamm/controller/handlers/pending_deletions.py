"""Replicas whose deletion is pending: recorded in ZooKeeper until their broker confirms that it deleted them.

These are replicas of deleted topics on dead brokers, and all replicas that a reassignment removes from a broker.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from klamm.controller.context import ReplicasPendingDeletion
from klamm.controller.decisions.pending_deletions import (
    pending_deletions_by_topic,
    pending_deletions_of,
    plan_after_leader_and_isr,
    plan_pending_deletions,
)
from klamm.controller.decisions.topic_deletion import ByBroker
from klamm.controller.states import ReplicaState
from klamm.controller.term_context import TermContext
from klamm.controller.topic import Partition
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId
from klamm.telemetry.journal import by_topic
from klamm.zk.pending_deletions import PendingDeletion
from klamm.zk.znodes import PENDING_DELETIONS, pending_deletion_path


async def load_pending_deletions(term: TermContext) -> None:
    """Read the pending deletions that earlier controllers recorded in ZooKeeper into the context."""
    found, unreadable = await term.store.pending_deletions.read()
    for record in found:
        _add_record(term, record)
    for path, why in unreadable.items():
        term.journal.refused(term.cause, path, why)


async def schedule_replica_deletions(
    term: TermContext, topics: Mapping[str, ByBroker]
) -> dict[tuple[str, BrokerId], str]:
    """Record in ZooKeeper that these topics' replicas on these brokers are to be deleted, before their znodes are.

    Returns the reasons by topic and broker where ZooKeeper refuses the record; there the deletion or reassignment waits
    and is retried.
    """
    records = []
    for topic, by_broker in topics.items():
        topic_id = term.context.topics[topic].id
        assert topic_id is not None, f"{topic} has no id to be told apart by"
        for broker, partitions in by_broker.items():
            known = term.context.pending_deletions.get(broker, {}).get(topic_id)
            listed: Collection[int] = known.partitions if known is not None else ()
            numbers = {p.partition for p in partitions}.union(listed)
            if len(numbers) > len(listed):
                records.append(PendingDeletion(broker, topic, topic_id, tuple(sorted(numbers))))
    if not records:
        return {}
    written = {(b, topic_id) for b, held in term.context.pending_deletions.items() for topic_id in held}
    taken, refused = await term.store.pending_deletions.write(records, written)
    for record in taken:
        term.context.records_to_remove.pop((record.broker, record.topic_id), None)
        _add_record(term, record)
    for _, broker in refused:
        term.store.writer.add_refused(f"{PENDING_DELETIONS}/{broker}")  # where it may not be read, too
    return refused


async def schedule_deletion_of_moved(
    term: TermContext, replicas: Mapping[BrokerId, Iterable[Partition]]
) -> dict[Partition, str]:
    """Record replicas that a reassignment removes, before the assignment is written.

    The StopReplica that deletes them can be lost with its broker or this controller, and the new assignment no longer
    shows them. Returns the reasons for partitions whose record ZooKeeper refuses: they must not move.
    """
    moved: dict[str, dict[BrokerId, list[Partition]]] = {}
    for broker, partitions in replicas.items():
        async for p in term.slices.each(partitions):
            if term.context.topics[p.topic].id is not None:
                moved.setdefault(p.topic, {}).setdefault(broker, []).append(p)
    refused = await schedule_replica_deletions(term, moved)
    return {p: why for (topic, broker), why in refused.items() for p in moved[topic][broker]}


async def send_pending_deletions(term: TermContext, brokers: Sequence[BrokerId]) -> None:
    """Send each broker StopReplica for its replicas pending deletion, except those that may not be deleted yet.

    This comes before any other request to a broker that starts.
    """
    for broker in brokers:
        for record in pending_deletions_of(term.context, broker):
            record.deletion_sent.clear()
        plan = plan_pending_deletions(term.context, broker)
        if plan.stop:
            await term.store.confirm_controllership()  # a newer controller may have moved them back
        if plan.void:
            why = (
                "the topic exists and the broker has these replicas again, so the deletion or reassignment was "
                "cancelled"
            )
            voided = by_topic(p for _, p in plan.void)
            term.journal.refused(term.cause, "pending deletions", why, broker=broker, partitions=voided)
            await _remove_from_records(term, plan.void)
        for replica in plan.stop:
            term.batch.add_stop_replica([broker], replica, delete=True)
        if plan.stop or plan.ask:
            facts = {"asked_first": by_topic(plan.ask)} if plan.ask else {}
            stop = by_topic(plan.stop)
            term.journal.line(
                term.cause, "deletion", step="pending deletion sent", broker=broker, partitions=stop, **facts
            )
    await term.send_requests()


async def on_leader_and_isr_answers(
    term: TermContext, broker: BrokerId, answers: Iterable[tuple[Partition, int]]
) -> None:
    """Act on a LeaderAndIsr response: delete logs with another topic id, forget replicas that do not exist."""
    stop, gone = plan_after_leader_and_isr(term.context, broker, answers)
    for replica in stop:
        term.batch.add_stop_replica([broker], replica, delete=True)
    if stop:
        term.journal.line(
            term.cause, "deletion", step="pending deletion sent", broker=broker, partitions=by_topic(stop)
        )
        await term.send_requests()
    await _remove_from_records(term, gone)


async def on_replicas_deleted(term: TermContext, broker: BrokerId, partitions: Sequence[Partition]) -> None:
    """Remove deleted replicas from the records of pending deletions.

    Where a later topic has the same name, its replica is created now. Partitions with another queued deletion are
    skipped: the response to that one counts.
    """
    if broker not in term.context.pending_deletions:
        return
    if term.context.offline_dirs.get(broker):
        return  # what is meant may lie where the broker cannot look
    again = term.channels.waiting_deletions(broker)
    finished, ended = _finished_deletions(term, broker, [p for p in partitions if p.key not in again])
    for p in finished:
        later = term.context.partition(p.topic, p.partition)
        if later is not None and later.leadership is not None and _is_assigned_and_kept(term, broker, later):
            if term.context.can_replica_move(broker, later, ReplicaState.NEW):  # it was to move away, and did not
                term.context.move_replicas(broker, [later], ReplicaState.NEW)
            term.batch.add_leader_and_isr([broker], later, is_new=True)
    await _remove_from_records(term, ended)  # if ZooKeeper fails here, the queued requests are sent nevertheless
    await term.send_requests()


def _is_assigned_and_kept(term: TermContext, broker: BrokerId, later: Partition) -> bool:
    """Whether the later topic's replica belongs on this broker.

    Also true for a topic queued for deletion that waits for a reassignment, which needs the replica.
    """
    return broker in later.replicas and later.topic not in term.context.topics_with_deletion_started


def _finished_deletions(
    term: TermContext, broker: BrokerId, partitions: Iterable[Partition]
) -> tuple[list[Partition], list[tuple[ReplicasPendingDeletion, Partition]]]:
    """The partitions that had pending deletions under their name, and the replicas to remove from records."""
    finished: list[Partition] = []
    ended: list[tuple[ReplicasPendingDeletion, Partition]] = []
    named = pending_deletions_by_topic(term.context, broker)
    for p in partitions:
        held = [c for c in named.get(p.topic, ()) if p.partition in c.partitions]
        if held:
            finished.append(p)
        ended += ((record, p) for record in held)
    return finished, ended


async def _remove_from_records(term: TermContext, ended: Iterable[tuple[ReplicasPendingDeletion, Partition]]) -> None:
    """Remove these replicas from the records of pending deletions; an empty record is also deleted from ZooKeeper."""
    empty: dict[ReplicasPendingDeletion, None] = {}
    for record, p in ended:
        record.partitions.pop(p.partition, None)  # an answer may name it twice: two topics of one name in a request
        if not record.partitions:
            empty[record] = None
    if empty:
        await _remove_records(term, list(empty))


async def _remove_records(term: TermContext, records: Sequence[ReplicasPendingDeletion]) -> None:
    """Remove these records of pending deletions from memory, then from ZooKeeper."""
    for record in records:
        held = term.context.pending_deletions[record.broker]
        del held[record.topic_id]
        if not held:
            del term.context.pending_deletions[record.broker]
        term.context.records_to_remove[record.broker, record.topic_id] = None
    await remove_finished_records(term)


async def remove_finished_records(term: TermContext) -> None:
    """Delete the ZooKeeper records of pending deletions that are complete.

    A refused removal is journalled and retried.
    """
    records = list(term.context.records_to_remove)
    refused = await term.store.pending_deletions.delete(records)
    for broker, topic_id in records:
        if pending_deletion_path(broker, topic_id) not in refused:
            term.context.records_to_remove.pop((broker, topic_id), None)
    for path, why in refused.items():
        term.journal.refused(term.cause, path, why)


def _add_record(term: TermContext, record: PendingDeletion) -> None:
    """Add a record read from ZooKeeper to the pending deletions in the context."""
    partitions = {n: Partition(record.topic, n, ReplicaAssignment((record.broker,))) for n in record.partitions}
    held = term.context.pending_deletions.setdefault(record.broker, {})
    held[record.topic_id] = ReplicasPendingDeletion(record.broker, record.topic, record.topic_id, partitions)
