"""Replicas whose deletion is pending: recorded in ZooKeeper until their broker confirms that it deleted them.

These are replicas of deleted topics on dead brokers, and all replicas that a reassignment removes from a broker.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from klamm.controller.context import ReplicasPendingDeletion
from klamm.controller.decisions.elections import elect_offline
from klamm.controller.decisions.pending_deletions import (
    PendingReplica,
    mark_sent,
    pending_deletions_by_topic,
    pending_deletions_of,
    plan_after_leader_and_isr,
    plan_pending_deletions,
)
from klamm.controller.decisions.plans import StatePlan
from klamm.controller.decisions.reassignment import plan_epochs
from klamm.controller.decisions.topic_deletion import ByBroker
from klamm.controller.handlers.partitions import bring_online
from klamm.controller.handlers.state_changes import States, change_known_states
from klamm.controller.states import ReplicaState
from klamm.controller.steps import WRITE_PARTITIONS, gather_limited
from klamm.controller.term_context import TermContext
from klamm.controller.topic import Partition
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.telemetry.journal import by_topic
from klamm.zk.fenced import chunks
from klamm.zk.pending_deletions import PendingDeletion
from klamm.zk.znodes import PENDING_DELETIONS, pending_deletion_path

CANCELLED: Final = (
    "the topic exists and the broker has these replicas again, so the deletion or reassignment was cancelled"
)
IN_SYNC: Final = (
    "the broker is in the ISR of a later topic of that name, and requests without topic ids cannot ask it whose log it "
    "has: nothing is deleted"
)
"""The journal's reasons for replicas that are not deleted."""


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
            record.unanswered.clear()
    await _send_deletions(term, brokers, None)


async def delete_earlier_logs(term: TermContext, partitions: Iterable[Partition]) -> None:
    """Send StopReplica to live brokers that may have logs of earlier topics in the place of these partitions.

    This comes before LeaderAndIsr creates replicas there. A deletion that was sent, or waits for it, is not repeated.
    """
    if not term.context.pending_by_topic:
        return
    places: dict[BrokerId, set[TopicPartition]] = {}
    for p in partitions:
        for broker in term.context.brokers_with_earlier_log(p).intersection(p.replicas):
            places.setdefault(broker, set()).add(p.key)
    for broker in [b for b in sorted(places) if b in term.context.registered]:
        if unsent := places[broker] - term.channels.waiting_deletions(broker):
            await _send_deletions(term, [broker], unsent)


async def _send_deletions(
    term: TermContext, brokers: Sequence[BrokerId], only: Collection[TopicPartition] | None
) -> None:
    """Send the deletions that are allowed, and void those that were cancelled.

    Replicas in whose place later topics have replicas are deleted once these topics' states are fenced. The fenced
    states are sent with the next requests.
    """
    ids = term.settings.requests_carry_topic_ids
    plans = [plan_pending_deletions(term.context, broker, ids, only) for broker in brokers]
    sent: dict[BrokerId, list[Partition]] = {}
    fenced = await _fence(term, dict.fromkeys(p for plan in plans for p in plan.replaced))
    for broker in brokers:
        plan = plan_pending_deletions(term.context, broker, ids, only)
        unfenced = {p.key for p in plan.replaced if p not in fenced}
        stops = [p for p in plan.stop if p.key not in unfenced]
        if stops:
            await term.store.confirm_controllership()  # a newer controller may have moved them back
        await _void(term, broker, plan.void, CANCELLED)
        await _void(term, broker, plan.in_sync, IN_SYNC)
        for replica in stops:
            term.batch.add_stop_replica([broker], replica, delete=True)
        sent[broker] = stops
        if stops or plan.ask:
            facts = {"asked_first": by_topic(plan.ask)} if plan.ask else {}
            stop = by_topic(stops)
            term.journal.line(
                term.cause, "deletion", step="pending deletion sent", broker=broker, partitions=stop, **facts
            )
    await term.send_requests()
    for broker, stops in sent.items():
        mark_sent(term.context, broker, stops)
    for p in fenced:
        if p.leadership is not None and not term.context.is_to_be_deleted(p):
            term.batch.add_leader_and_isr(p.replicas, p, is_new=False)


async def _fence(term: TermContext, partitions: Collection[Partition]) -> dict[Partition, None]:
    """Raise leader epochs, so that no leader adds a broker to the ISR whose log is deleted; returns the fenced ones.

    Partitions without a state znode need no fence. Where there is one that is not in memory, nothing is fenced.
    """
    unknown = [p for p in partitions if p.leadership is None]
    missing = (await term.store.read_states(unknown)).missing if unknown else ()
    fenced = dict.fromkeys(p for p in unknown if p in missing)
    led = [p for p in partitions if p.leadership is not None]
    fenced |= dict.fromkeys(p for p in led if term.context.is_to_be_deleted(p))
    raised = [p for p in led if p not in fenced]
    for written in await gather_limited(_raise_epochs(term, chunk) for chunk in chunks(raised, WRITE_PARTITIONS)):
        fenced |= written
    return fenced


async def _raise_epochs(term: TermContext, partitions: Collection[Partition]) -> dict[Partition, None]:
    """Raise the leader epochs of these partitions in ZooKeeper; returns those that were written."""

    async def plan(stored: States) -> StatePlan:
        """Return the stored states with a higher leader epoch, to write."""
        return plan_epochs(stored, term.context.epoch)

    def apply(_: StatePlan, written: States) -> None:
        """Put the written leader epochs into the controller's memory."""
        term.apply_epochs(written, "pending-deletion")

    return dict.fromkeys((await change_known_states(term, "leader epoch", partitions, plan, apply)).reached)


async def _void(term: TermContext, broker: BrokerId, replicas: Sequence[PendingReplica], why: str) -> None:
    """Remove replicas from the records that are not to be deleted, and journal why."""
    if replicas:
        voided = by_topic(p for _, p in replicas)
        term.journal.refused(term.cause, "pending deletions", why, broker=broker, partitions=voided)
        await _remove_from_records(term, replicas)


async def on_leader_and_isr_answers(
    term: TermContext, broker: BrokerId, answers: Iterable[tuple[Partition, int]]
) -> None:
    """Act on a LeaderAndIsr response: delete logs with another topic id, forget replicas that do not exist.

    An election between the request and its answer left the broker out: it is sent the state again.
    """
    stop, gone = plan_after_leader_and_isr(term.context, broker, answers, term.settings.requests_carry_topic_ids)
    for replica in stop:
        term.batch.add_stop_replica([broker], replica, delete=True)
    if stop:
        term.journal.line(
            term.cause, "deletion", step="pending deletion sent", broker=broker, partitions=by_topic(stop)
        )
        await term.send_requests()
    for _, p in gone:
        if p.leadership is not None and _is_assigned_and_kept(term, broker, p):
            term.batch.add_leader_and_isr([broker], p, is_new=False)
    await _remove_from_records(term, gone)  # if ZooKeeper fails here, the queued requests are sent nevertheless
    await term.send_requests()
    await _elect_waiting(term, (p for _, p in gone))


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
            _start_again(term, broker, later)
            term.batch.add_leader_and_isr([broker], later, is_new=True)
    await _remove_from_records(term, ended)  # if ZooKeeper fails here, the queued requests are sent nevertheless
    await term.send_requests()
    await _elect_waiting(term, finished)


def _start_again(term: TermContext, broker: BrokerId, partition: Partition) -> None:
    """Move a replica to the state for a LeaderAndIsr that creates it: it was to move away and did not, or is new."""
    if term.context.can_replica_move(broker, partition, ReplicaState.NEW):
        term.context.move_replicas(broker, [partition], ReplicaState.NEW)
    elif term.context.is_online(broker, partition):
        term.context.move_replicas(broker, [partition], ReplicaState.ONLINE)


async def _elect_waiting(term: TermContext, deleted: Iterable[Partition]) -> None:
    """Elect leaders of later topics' partitions that waited for these deletions."""
    context = term.context
    later = dict.fromkeys(context.partition(p.topic, p.partition) for p in deleted)
    waiting = [p for p in later if p is not None and p.state in context.in_state and not context.is_to_be_deleted(p)]
    if waiting:
        await bring_online(term, waiting, elect_offline)


def _is_assigned_and_kept(term: TermContext, broker: BrokerId, later: Partition) -> bool:
    """Whether the later topic's replica belongs on this broker.

    Also true for a topic queued for deletion that waits for a reassignment, which needs the replica.
    """
    return broker in later.replicas and later.topic not in term.context.topics_with_deletion_started


def _finished_deletions(
    term: TermContext, broker: BrokerId, partitions: Iterable[Partition]
) -> tuple[list[Partition], list[PendingReplica]]:
    """The partitions that had pending deletions under their name, and the replicas to remove from records."""
    finished: list[Partition] = []
    ended: list[PendingReplica] = []
    named = pending_deletions_by_topic(term.context, broker)
    for p in partitions:
        held = [c for c in named.get(p.topic, ()) if p.partition in c.partitions]
        if held:
            finished.append(p)
        ended += ((record, p) for record in held)
    return finished, ended


async def _remove_from_records(term: TermContext, ended: Iterable[PendingReplica]) -> None:
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
        term.context.remove_pending_deletion(record)
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
    term.context.add_pending_deletion(ReplicasPendingDeletion(record.broker, record.topic, record.topic_id, partitions))
