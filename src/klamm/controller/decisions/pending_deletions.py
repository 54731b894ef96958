"""Which replicas pending deletion a broker may delete: of topics deleted while it was gone, or moved away from it.

Each such replica is recorded in ZooKeeper (see `zk/pending_deletions.py`) before its topic's znodes are deleted.
StopReplica names topics, not ids. Where a later topic of the same name has a replica on the broker, LeaderAndIsr is
sent first: it has the later topic's id, and a broker with a log of another id answers INCONSISTENT_TOPIC_ID. Only then
the log is deleted.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from klamm.controller.context import ControllerContext, ReplicasPendingDeletion
from klamm.controller.topic import Partition, Topic
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId


@dataclass(slots=True)
class PendingDeletionPlan:
    """What to do with one broker's replicas pending deletion."""

    stop: list[Partition] = field(default_factory=list)
    """To be deleted at once: no later topic has a replica of that name there."""
    ask: list[Partition] = field(default_factory=list)
    """A later topic of that name has a replica there: the response to its LeaderAndIsr decides."""
    void: list[tuple[ReplicasPendingDeletion, Partition]] = field(default_factory=list)
    """Not to be deleted: the topic still exists, and the broker is assigned these replicas again."""


def plan_pending_deletions(context: ControllerContext, broker: BrokerId) -> PendingDeletionPlan:
    """Decide for each replica pending deletion on this broker whether to delete it, ask first, or keep it."""
    plan = PendingDeletionPlan()
    for record in pending_deletions_of(context, broker):
        if record.topic in context.unreadable_topics:
            continue  # the topic of that name may have replicas there
        topic = context.topics.get(record.topic)
        if topic is not None and topic.id == record.topic_id:
            is_dying = topic.name in context.topics_to_be_deleted
            for number, replica in record.partitions.items():
                if not _is_assigned(topic, number, broker):
                    plan.stop.append(replica)  # it moved to another broker
                elif not is_dying:  # a deletion that is under way asks the broker itself
                    plan.void.append((record, replica))
            continue
        for number, replica in record.partitions.items():
            is_shared = topic is not None and _is_assigned(topic, number, broker)
            (plan.ask if is_shared else plan.stop).append(replica)
    return plan


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


def plan_after_leader_and_isr(
    context: ControllerContext, broker: BrokerId, answers: Iterable[tuple[Partition, int]]
) -> tuple[list[Partition], list[tuple[ReplicasPendingDeletion, Partition]]]:
    """From a LeaderAndIsr response: replicas to delete now, and replicas that the broker does not have any more.

    Each deletion is sent once: a second StopReplica could delete the log of the later topic.
    """
    stop: list[Partition] = []
    gone: list[tuple[ReplicasPendingDeletion, Partition]] = []
    named = pending_deletions_by_topic(context, broker)
    for partition, code in answers:
        topic_id = context.topics[
            partition.topic
        ].id  # a response says nothing of a replica of this id that moved away and back
        held = [c for c in named.get(partition.topic, ()) if partition.partition in c.partitions
                and c.topic_id != topic_id]  # fmt: skip
        if not held:
            continue
        if code == ErrorCode.INCONSISTENT_TOPIC_ID:
            if not any(partition.partition in c.deletion_sent for c in held):
                held[0].deletion_sent.add(partition.partition)
                stop.append(held[0].partitions[partition.partition])
        elif code in (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH):
            gone += ((record, partition) for record in held)
    return stop, gone
