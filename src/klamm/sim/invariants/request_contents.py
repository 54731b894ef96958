"""What control requests say of partitions, field by field, when they are queued for a broker.

Judged by what ZooKeeper held then, and by what brokers answered, where the controller is the newest one. Requests merge
while they wait; that they leave as they were queued is another rule (`control_requests`). Source:
AbstractControllerBrokerRequestBatch (ControllerChannelManager.scala, 3.9).
"""

from collections.abc import Iterator
from typing import Any

from klamm.controller.control_requests import LeaderAndIsrItem, StopReplicaItem, UpdateMetadataItem
from klamm.controller.events import ApiPartitionReassignment, ZkPartitionReassignment
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import EPOCH_DURING_DELETE, LEADER_DURING_DELETE, LeaderAndIsr
from klamm.sim.history.broker_views import Answer, both, negated
from klamm.sim.history.history import History
from klamm.sim.history.trace import EventEnded, RequestQueued
from klamm.sim.invariants.reassignment import isrs_that_were_decided_on


def _states(
    history: History, event: RequestQueued, kind: type[Any]
) -> Iterator[tuple[TopicPartition, Any, LeaderAndIsr]]:
    """Yield the existing partitions of a request of this kind, with the state in it and the state in ZooKeeper."""
    if not isinstance(event.item, kind) or event.term.epoch != history.controllers.epoch:
        return
    for partition, sent in event.item.states.items():
        p = TopicPartition(partition.topic, partition.partition)
        newest = history.states.newest(p)
        if newest is not None and p not in history.states.in_doubt:
            yield p, sent, newest


def leader_and_isr_carries_the_newest_state(history: History, event: RequestQueued) -> str | None:
    """LeaderAndIsr has each partition's newest state: epochs, controller epoch and recovery state included."""
    for p, sent, newest in _states(history, event, LeaderAndIsrItem):
        if sent.partition_epoch != newest.partition_epoch and not history.at.leaders_write_isrs:
            return f"{p}: broker {event.target} is to be sent {sent}, the newest is {newest}"
        if sent.partition_epoch != newest.partition_epoch:
            continue  # its leader changed it since, and has not said so yet
        recovery = int(newest.recovery) if event.term.settings.writes_recovery_state else 0
        facts = sent.leader, sent.leader_epoch, tuple(sent.isr), sent.leader_recovery_state
        if facts != (newest.leader, newest.leader_epoch, newest.isr, recovery):
            return f"{p}: broker {event.target} is to be sent {sent}, ZooKeeper has {newest}"
        if sent.controller_epoch not in (newest.controller_epoch, event.term.epoch):
            return f"{p}: broker {event.target} is to be sent {sent}, which {newest.controller_epoch} decided"
    return None


def leader_and_isr_carries_the_assignment(history: History, event: RequestQueued) -> str | None:
    """LeaderAndIsr has the replicas of the topic's znode, with those added and removed, or the target."""
    for p, sent, _ in _states(history, event, LeaderAndIsrItem):
        replicas = ReplicaAssignment(tuple(sent.replicas), tuple(sent.adding_replicas), tuple(sent.removing_replicas))
        if (wrong := _is_not_assigned(history, p, replicas)) is not None:
            return f"{p}: broker {event.target} is to be sent replicas {replicas}, {wrong}"
        if event.target not in sent.replicas:
            return f"{p}: broker {event.target} is to be sent replicas {sent.replicas}, and is none"
    return None


def _is_not_assigned(history: History, p: TopicPartition, sent: ReplicaAssignment) -> str | None:
    """Why these replicas are neither the assignment nor its target; None where they are."""
    topic = history.topics.znodes.get(p.topic)
    found = topic.partitions.get(p.partition) if topic else None
    if found is None or sent in (found, ReplicaAssignment(found.target)):
        return None
    began_at = max(history.controllers.began_at.values(), default=0)
    if sent in history.assignments.since(p, began_at):
        return None  # somebody else wrote the znode meanwhile
    return f"assigned is {found}"


def is_new_marks_new_replicas(history: History, event: RequestQueued) -> str | None:
    """LeaderAndIsr has `is_new` for replicas of a new partition, and never for one that has a log already.

    Except for replicas that a reassignment adds, for which it is repeated (`updateLeaderEpochAndSendRequest`), and in
    klamm for replicas whose earlier log the broker reported as deleted, also if it reported that in this term before a
    topic of the same name came up: the controller handles the report afterwards, and the broker ignores an equal epoch.
    What an earlier controller created is not new to one that reads it in failover (`initializeReplicaState`). Such a
    one may be deposed by then: the controller that created the partition does not know what it told.
    """
    elected_at = history.controllers.elected_at.get(event.term.epoch, 0)
    began_at = history.controllers.began_at.get((event.term.broker, event.term.incarnation), 0)
    for p, sent, newest in _states(history, event, LeaderAndIsrItem):
        broker = event.target
        told_in = history.replicas.told_epoch(p, broker)
        may_be_again = (
            broker in sent.adding_replicas
            or (p, broker) in history.requests.deleted
            or history.requests.deletion_answered_in.get((p, broker)) == event.term.epoch
            or (
                history.states.versions[p][0].controller_epoch == event.term.epoch
                and (p, broker) not in history.requests.told_as_new
            )
        )
        if sent.is_new and not may_be_again and told_in > history.assignments.dropped_in.get((p, broker), -1):
            return f"{p}: broker {broker} is sent is_new again, after leader epoch {told_in}"
        begins = history.states.created_at[p] > max(began_at, elected_at) and newest.partition_epoch == 0
        if begins and broker in newest.isr and not sent.is_new and (p, broker) not in history.requests.told_as_new:
            return f"{p}: broker {broker} is not sent is_new for its replica"
    return None


def is_new_marks_added_replicas(history: History, event: EventEnded) -> str | None:
    """After a reassignment request, each live broker that gets a replica was sent LeaderAndIsr with `is_new`."""
    requested, term = event.event, event.term
    if term is None or event.has_failed or event.is_cut_short or term.epoch != history.controllers.epoch:
        return None
    if not isinstance(requested, ApiPartitionReassignment | ZkPartitionReassignment) or history.controllers.refused:
        return None
    began_at, added_at = history.controllers.began_at[event.broker, event.incarnation], history.assignments.added_at
    for name, topic in history.topics.znodes.items():
        for number, found in topic.partitions.items():
            p = TopicPartition(name, number)
            for broker in found.adding:
                is_begun = added_at[p, broker] > began_at and p in history.states.versions
                is_told = (p, broker) in history.requests.told_as_new
                if is_begun and not is_told and history.broker_views.is_registered_throughout(term, broker):
                    return f"{p}: broker {broker} is not sent is_new for the replica that it gets, of {found}"
    return None


def metadata_carries_the_newest_state(history: History, event: RequestQueued) -> str | None:
    """UpdateMetadata has each partition's newest state and replicas, or says that its topic is being deleted."""
    for p, sent, newest in _metadata(history, event):
        is_going = p.topic in history.topics.deletion_requests
        if sent.leader == LEADER_DURING_DELETE:
            if not is_going and p.topic in history.topics.znodes:
                return f"{p}: UpdateMetadata says that its topic is deleted, which was not requested"
            continue
        if (wrong := _is_not_assigned_to(history, p, tuple(sent.replicas))) is not None:
            return f"{p}: brokers are to be sent replicas {sent.replicas}, {wrong}"
        if sent.zk_version != newest.partition_epoch:
            if history.at.leaders_write_isrs:
                continue  # its leader changed it since, and has not said so yet
            return f"{p}: brokers are to be sent {sent}, the newest is {newest}"
        facts = sent.leader, sent.leader_epoch, tuple(sent.isr)
        if facts != (newest.leader, newest.leader_epoch, newest.isr):
            return f"{p}: brokers are to be sent {sent}, ZooKeeper has {newest}"
        if sent.controller_epoch not in (newest.controller_epoch, event.term.epoch):
            return f"{p}: brokers are to be sent {sent}, which {newest.controller_epoch} decided"
    return None


def _metadata(history: History, event: RequestQueued) -> Iterator[tuple[TopicPartition, Any, LeaderAndIsr]]:
    """Yield the partitions of an UpdateMetadata.

    Brokers share one item, so it is checked once.
    """
    is_another = history.requests.newest_metadata is not event.item
    return _states(history, event, UpdateMetadataItem) if is_another else iter(())


def _is_not_assigned_to(history: History, p: TopicPartition, replicas: tuple[BrokerId, ...]) -> str | None:
    """Why these replicas are neither the partition's assignment nor its target; None where they are."""
    topic = history.topics.znodes.get(p.topic)
    found = topic.partitions.get(p.partition) if topic else None
    if found is None or replicas in (found.replicas, found.target):
        return None
    began_at = max(history.controllers.began_at.values(), default=0)
    if replicas in [a.replicas for a in history.assignments.since(p, began_at)]:
        return None
    return f"assigned is {found}"


def offline_replicas_are_listed(history: History, event: RequestQueued) -> str | None:
    """UpdateMetadata lists as offline the replicas whose broker is not live, or whose log directory failed."""
    views, live = history.broker_views, dict[BrokerId, Answer]()
    for p, sent, _ in _metadata(history, event):
        for broker in sent.replicas:
            if broker not in live:
                live[broker] = views.is_live(event.term, broker)
            is_online = both(live[broker], negated(views.has_failed(event.term, p, broker)))
            if is_online is not None and is_online is (broker in sent.offline_replicas):
                lists = "lists" if is_online else "does not list"
                return f"{p}: UpdateMetadata {lists} broker {broker} among offline replicas {sent.offline_replicas}"
    return None


def stop_replica_deletes_and_fences_as_planned(history: History, event: RequestQueued) -> str | None:
    """StopReplica deletes only unneeded replicas and has the current leader epoch, or none for a topic deletion.

    Nor has it one where a pending deletion names the replica. That excuses no deletion of a replica that is needed,
    unless it is of an earlier topic: the controller itself wrote the pending deletion.
    """
    if not isinstance(event.item, StopReplicaItem) or event.term.epoch != history.controllers.epoch:
        return None
    for partition, stop in event.item.stops.items():
        p = TopicPartition(partition.topic, partition.partition)
        topic = history.topics.znodes.get(p.topic)
        found = topic.partitions.get(p.partition) if topic else None
        if found is None or p.topic in history.topics.deletion_requests:
            continue
        is_earlier = history.topics.may_have_earlier_log(p, event.target)
        if stop.delete_partition and not is_earlier and not _may_go(history, p, found, event.target):
            return f"{p}: broker {event.target} is sent StopReplica that deletes its replica of {found}"
        if _is_pending(history, p, event.target):
            continue
        newest = history.states.newest(p)
        if stop.leader_epoch == EPOCH_DURING_DELETE:
            return f"{p}: broker {event.target} is sent StopReplica for a topic deletion that was not requested"
        if newest is not None and stop.leader_epoch > newest.leader_epoch:
            return f"{p}: broker {event.target} is sent StopReplica in leader epoch {stop.leader_epoch} of {newest}"
    return None


def replicas_leave_when_a_target_leads(history: History, event: RequestQueued) -> str | None:
    """A reassignment deletes replicas only when a target replica leads, beyond Kafka."""
    if not isinstance(event.item, StopReplicaItem) or event.term.epoch != history.controllers.epoch:
        return None
    for partition, stop in event.item.stops.items():
        p = TopicPartition(partition.topic, partition.partition)
        topic, newest = history.topics.znodes.get(p.topic), history.states.newest(p)
        found = topic.partitions.get(p.partition) if topic else None
        if found is None or newest is None or not stop.delete_partition or p.topic in history.topics.deletion_requests:
            continue
        is_earlier = history.topics.may_have_earlier_log(p, event.target)
        if event.target in found.removing and newest.leader not in found.target and not is_earlier:
            return f"{p}: broker {event.target} is to delete its replica of {found}, leader is {newest.leader}"
    return None


def _may_go(history: History, p: TopicPartition, found: ReplicaAssignment, broker: BrokerId) -> bool:
    """Whether a reassignment has removed the replica or no longer needs it."""
    if broker not in found.replicas:
        return True
    isrs = isrs_that_were_decided_on(history, p, len(found.removing))
    return broker in found.removing and any(set(found.target) <= set(isr) for isr in isrs)


def _is_pending(history: History, p: TopicPartition, broker: BrokerId) -> bool:
    """Whether a pending deletion says that the broker may have a log of an earlier topic, or a removed replica."""
    records = history.topics.pending_deletions.get(broker, {}).values()
    return any(r.topic == p.topic and p.partition in r.partitions for r in records)
