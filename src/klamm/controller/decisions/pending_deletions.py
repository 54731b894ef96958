"""What a broker may still hold of topics deleted while it was gone, or moved away from it, and what of that may go.

Each such replica is written down (see `zk/pending_deletions.py`) before its topic's znodes go. StopReplica names
topics, not ids, so where the name lives again on that broker it is asked first: LeaderAndIsr carries the id of the new
topic, and a broker that holds a log of another id refuses it with INCONSISTENT_TOPIC_ID. Only then the log may go.
"""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

from klamm.controller.context import ControllerContext, Partition, ReplicasPendingDeletion, Topic
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId


@dataclass(slots=True)
class PendingDeletionPlan:
    stop: list[Partition] = field(default_factory=list)
    """To be deleted at once: nobody else has the name there."""
    ask: list[Partition] = field(default_factory=list)
    """The name is a later topic's, too: its LeaderAndIsr finds out."""
    void: list[tuple[ReplicasPendingDeletion, Partition]] = field(default_factory=list)
    """The topic lives, and the broker holds these replicas of it again: they may not be destroyed."""


def plan_pending_deletions(context: ControllerContext, broker: BrokerId) -> PendingDeletionPlan:
    plan = PendingDeletionPlan()
    for record in pending_deletions_of(context, broker):
        if record.topic in context.unreadable_topics:
            continue  # whoever has the name may hold replicas there
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
    return list(context.pending_deletions.get(broker, {}).values())


def pending_deletions_by_topic(
    context: ControllerContext, broker: BrokerId
) -> dict[str, list[ReplicasPendingDeletion]]:
    """By topic name: several topics, where each was deleted in turn."""
    named: dict[str, list[ReplicasPendingDeletion]] = {}
    for record in pending_deletions_of(context, broker):
        named.setdefault(record.topic, []).append(record)
    return named


def plan_after_leader_and_isr(
    context: ControllerContext, broker: BrokerId, answers: Iterable[tuple[Partition, int]]
) -> tuple[list[Partition], list[tuple[ReplicasPendingDeletion, Partition]]]:
    """From a LeaderAndIsr answer: replicas pending deletion to delete now, and those of which nothing can be left.

    A replica is told to go once: a second StopReplica could meet the log of the later topic.
    """
    stop: list[Partition] = []
    gone: list[tuple[ReplicasPendingDeletion, Partition]] = []
    named = pending_deletions_by_topic(context, broker)
    for partition, code in answers:
        topic_id = context.topics[partition.topic].id  # its own says nothing of a replica that moved away, and back
        held = [c for c in named.get(partition.topic, ()) if partition.partition in c.partitions
                and c.topic_id != topic_id]  # fmt: skip
        if not held:
            continue
        if code == ErrorCode.INCONSISTENT_TOPIC_ID:
            if not any(partition.partition in c.told for c in held):
                held[0].told.add(partition.partition)
                stop.append(held[0].partitions[partition.partition])
        elif code in (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH):
            gone += ((record, partition) for record in held)
    return stop, gone


def brokers_with_obsolete_record(
    context: ControllerContext, topic_id: uuid.UUID, kept: Iterable[BrokerId]
) -> list[BrokerId]:
    """Brokers with a record for this topic that was written before a crash and is wrong by now.

    They deleted their replicas after all: but not those that a reassignment took from them before, which nobody asked
    them about again.
    """
    named = {*kept, *(b for b in context.pending_deletions if b not in context.registered)}
    written = {b: records[topic_id] for b, records in context.pending_deletions.items() if topic_id in records}
    return [b for b, record in written.items() if b not in named and not _has_moved(context, record)]


def _has_moved(context: ControllerContext, record: ReplicasPendingDeletion) -> bool:
    topic = context.topics.get(record.topic)
    return topic is not None and any(not _is_assigned(topic, number, record.broker) for number in record.partitions)
