"""Which replicas pending deletion a broker may delete: of topics deleted while it was gone, or moved away from it.

Each such replica is recorded in ZooKeeper (see `zk/pending_deletions.py`) before its topic's znodes are deleted.
StopReplica names topics, not ids. Where a later topic of the same name has a replica on the broker, its ISR decides: a
log outside of the ISR is not needed and is deleted before the broker gets LeaderAndIsr. A log in the ISR is never
deleted unasked: LeaderAndIsr has the later topic's id, and a broker with a log of another id answers
INCONSISTENT_TOPIC_ID. See docs/decisions/0007-deletion-with-dead-brokers.md.
"""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field

from klamm.controller.context import ControllerContext, ReplicasPendingDeletion
from klamm.controller.topic import Partition, Topic
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition

PendingReplica = tuple[ReplicasPendingDeletion, Partition]


@dataclass(slots=True)
class PendingDeletionPlan:
    """What to do with one broker's replicas pending deletion."""

    stop: list[Partition] = field(default_factory=list)
    """To be deleted at once: no later topic of that name needs the broker's log."""
    replaced: list[Partition] = field(default_factory=list)
    """The partitions of later topics in the place of some of these. Their states are to be fenced first."""
    ask: list[Partition] = field(default_factory=list)
    """A later topic of that name may have its log there: the response to its LeaderAndIsr decides."""
    void: list[PendingReplica] = field(default_factory=list)
    """Not to be deleted: the topic still exists, and the broker is assigned these replicas again."""
    in_sync: list[PendingReplica] = field(default_factory=list)
    """Not to be deleted: the broker is in the ISR of a later topic of that name, and cannot be asked."""


def plan_pending_deletions(
    context: ControllerContext,
    broker: BrokerId,
    requests_carry_topic_ids: bool,
    only: Container[TopicPartition] | None = None,
) -> PendingDeletionPlan:
    """Decide for each replica pending deletion on this broker whether to delete it, ask first, or keep it.

    `only` limits the plan to later topics' partitions without an unanswered deletion: LeaderAndIsr may have followed it
    and created the later topic's log, which a second StopReplica would delete.
    """
    plan = PendingDeletionPlan()
    for record in pending_deletions_of(context, broker):
        if record.topic in context.unreadable_topics:
            continue  # the topic of that name may have replicas there
        topic = context.topics.get(record.topic)
        if topic is not None and topic.id == record.topic_id:
            if only is None:
                _plan_same_topic(context, record, topic, plan)
            continue
        can_ask = requests_carry_topic_ids and topic is not None and topic.id is not None
        for number, replica in record.partitions.items():
            if only is not None and (replica.key not in only or number in record.unanswered):
                continue
            if topic is None or not _is_assigned(topic, number, broker):
                plan.stop.append(replica)
            else:
                _plan_replaced(context, record, replica, topic.partitions[number], can_ask, plan)
    return plan


def _plan_same_topic(
    context: ControllerContext, record: ReplicasPendingDeletion, topic: Topic, plan: PendingDeletionPlan
) -> None:
    """Add a record's replicas to the plan whose topic still exists."""
    for number, replica in record.partitions.items():
        if not _is_assigned(topic, number, record.broker):
            plan.stop.append(replica)  # it moved to another broker
        elif topic.name not in context.topics_to_be_deleted:  # a deletion that is under way asks the broker itself
            plan.void.append((record, replica))


def _plan_replaced(
    context: ControllerContext,
    record: ReplicasPendingDeletion,
    replica: Partition,
    later: Partition,
    can_ask: bool,
    plan: PendingDeletionPlan,
) -> None:
    """Add a replica to the plan in whose place a later topic has a replica.

    Where the later topic has no live leader, the broker is asked, if it can be: its log may be the last one.
    """
    state = later.leadership
    if state is not None and record.broker in state.isr:
        if can_ask:
            plan.ask.append(replica)
        else:
            plan.in_sync.append((record, replica))
    elif state is not None and can_ask and not context.is_online(state.leader, later):
        plan.ask.append(replica)
    else:
        plan.stop.append(replica)
        plan.replaced.append(later)


def _is_assigned(topic: Topic, number: int, broker: BrokerId) -> bool:
    """Whether the assignment names this broker for the partition."""
    partition = topic.partitions.get(number)
    return partition is not None and broker in partition.replicas


def pending_deletions_of(context: ControllerContext, broker: BrokerId) -> list[ReplicasPendingDeletion]:
    """The pending deletions of this broker, one per topic id."""
    return list(context.pending_deletions.get(broker, {}).values())


def pending_deletions_by_topic(
    context: ControllerContext, broker: BrokerId
) -> dict[str, list[ReplicasPendingDeletion]]:
    """Return the broker's pending deletions by topic name.

    A name has several where topics of that name were deleted repeatedly.
    """
    named: dict[str, list[ReplicasPendingDeletion]] = {}
    for record in pending_deletions_of(context, broker):
        named.setdefault(record.topic, []).append(record)
    return named


def mark_sent(context: ControllerContext, broker: BrokerId, stops: Iterable[Partition]) -> None:
    """Note that StopReplica was sent to this broker for these replicas; it deletes logs of any topic of the name."""
    for record, number in _records_of(context, broker, stops):
        record.unanswered.add(number)


def mark_answered(context: ControllerContext, broker: BrokerId, replicas: Iterable[Partition]) -> None:
    """Note that the broker answered StopReplica for these replicas, or that it will not."""
    for record, number in _records_of(context, broker, replicas):
        record.unanswered.discard(number)


def _records_of(
    context: ControllerContext, broker: BrokerId, replicas: Iterable[Partition]
) -> Iterator[tuple[ReplicasPendingDeletion, int]]:
    """The broker's records of each of these replicas, with its number."""
    named = pending_deletions_by_topic(context, broker)
    for p in replicas:
        for record in named.get(p.topic, ()):
            if p.partition in record.partitions:
                yield record, p.partition


def plan_after_leader_and_isr(
    context: ControllerContext,
    broker: BrokerId,
    answers: Iterable[tuple[Partition, int]],
    requests_carry_topic_ids: bool,
) -> tuple[list[Partition], list[PendingReplica]]:
    """From a LeaderAndIsr response: replicas to delete now, and replicas that the broker does not have any more.

    While a deletion is not answered, this response may be older than it: a second StopReplica could delete the log of
    the later topic. An accepted request without a topic id proves nothing.
    """
    accepted = (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH) if requests_carry_topic_ids else ()
    stop: list[Partition] = []
    gone: list[PendingReplica] = []
    named = pending_deletions_by_topic(context, broker)
    for partition, code in answers:
        topic_id, number = context.topics[partition.topic].id, partition.partition
        # a response says nothing of a replica of this id that moved away and back
        held = [c for c in named.get(partition.topic, ()) if number in c.partitions and c.topic_id != topic_id]
        if not held:
            continue
        if code == ErrorCode.INCONSISTENT_TOPIC_ID:
            if not any(number in c.unanswered for c in held):
                held[0].unanswered.add(number)
                stop.append(held[0].partitions[number])
        elif code in accepted and topic_id is not None:
            gone += ((record, partition) for record in held)
    return stop, gone
