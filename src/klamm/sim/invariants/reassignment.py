"""Partitions that move to other brokers."""

from klamm.controller.events import ApiPartitionReassignment, ZkPartitionReassignment
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.sim.history.history import History
from klamm.sim.history.trace import RequestSent, StateWritten, TopicWritten, TransactionCommitted
from klamm.sim.invariants.views import Cluster
from klamm.sim.nodes.control_messages import partition_states
from klamm.sim.zookeeper.tree import DeleteChange
from klamm.wire.messages import LeaderAndIsrRequest
from klamm.zk import znodes
from klamm.zk.admin_znodes import decode_reassignment


def assignments_are_written_first(history: History, event: RequestSent) -> str | None:
    """The replicas in a control request are an assignment of the topic's znode, present or past, or its target."""
    if event.again or not isinstance(event.message, LeaderAndIsrRequest):
        return None
    for p, _, s in partition_states(event.message):
        sent = ReplicaAssignment(tuple(s.replicas), tuple(s.adding_replicas), tuple(s.removing_replicas))
        if sent not in history.assignments.written.get(p, ()):
            return f"{p}: broker {event.target} is sent replicas {sent}, which were never assigned"
    return None


def isrs_that_were_decided_on(history: History, p: TopicPartition, lost: int) -> list[tuple[BrokerId, ...]]:
    """The ISRs from which the controller may have decided, the newest first.

    `lost` is the number of removed replicas: removing each from the ISR may have raised the leader epoch.
    """
    states = history.states.versions.get(p)
    if not states:
        return [()]
    newest = states[-1]
    if not history.at.leaders_write_isrs:
        return [newest.isr]
    raised: dict[int, tuple[BrokerId, ...]] = {}
    for state in states:
        raised.setdefault(state.leader_epoch, state.isr)
    return [isr for epoch, isr in reversed(raised.items()) if epoch >= newest.leader_epoch - lost]


def replicas_leave_after_targets_are_in_sync(history: History, event: TopicWritten) -> str | None:
    """Replicas are removed only when all target replicas are in sync, and the result is the target, in order.

    Where leaders write their ISRs themselves, a target replica may fall behind between the controller's read and its
    write, as in Kafka: then the ISR with which it raised the leader epoch counts.
    """
    if event.before is None or event.after is None:
        return None
    for number, before in event.before.partitions.items():
        after = event.after.partitions.get(number)
        if after is None or after == before:
            continue
        p = TopicPartition(event.topic, number)
        if lost := [b for b in before.origin if b not in after.replicas]:
            isrs = isrs_that_were_decided_on(history, p, len(lost))
            if not any(set(before.target) <= set(isr) for isr in isrs):
                return f"{p}: {before} became {after}, without {lost}, while the ISR is {isrs[0]}"
            if after != ReplicaAssignment(before.target):
                return f"{p}: {before} ended as {after}"
    return None


def reassignment_znode_stays_until_done(history: History, event: TransactionCommitted) -> str | None:
    """`/admin/reassign_partitions` is deleted only when none of its partitions is being reassigned to it any more."""
    if event.session not in history.controllers.sessions:
        return None
    if not any(isinstance(c, DeleteChange) and c.path == znodes.REASSIGN_PARTITIONS for c in event.changes):
        return None
    try:
        asked = decode_reassignment(history.assignments.requested)
    except znodes.MalformedZnode:
        return None
    term = history.controllers.active
    doing = history.controllers.handling.get((term.broker, term.incarnation)) if term else None
    overridden = doing.event.targets if doing and isinstance(doing.event, ApiPartitionReassignment) else {}
    for p, target in asked.items():
        if p in overridden or p.topic in history.topics.deletion_requests:
            continue  # the newest request wins, and a deletion over any
        topic = history.topics.znodes.get(p.topic)
        found = topic.partitions.get(p.partition) if topic else None
        if found is not None and found.is_being_reassigned and found.target == target:
            return f"the request is removed while {p} is {found}"
    return None


def reassignments_finish(cluster: Cluster) -> str | None:
    """Where all target replicas run, no reassignment is in progress, and the old tools' znode is deleted."""
    live = {b.number for b in cluster.running}
    waits_for_brokers = False
    for name, topic in cluster.history.topics.znodes.items():
        for number, found in topic.partitions.items():
            if not found.is_being_reassigned:
                continue
            if name not in cluster.history.topics.deletion_requests and live.issuperset(found.replicas):
                return f"{name}-{number} still moves: {found}"
            waits_for_brokers = True
    waits = cluster.tree.get(znodes.REASSIGN_PARTITIONS)
    return None if waits is None or waits_for_brokers else f"the request is still there: {waits.data!r}"


def preferred_elections_finish(cluster: Cluster) -> str | None:
    """The old tools' znode that requests preferred leaders is deleted."""
    waits = cluster.tree.get(znodes.PREFERRED_ELECTION)
    return None if waits is None else f"the request is still there: {waits.data!r}"


def removed_replicas_are_deleted(cluster: Cluster) -> str | None:
    """No broker has a log of a partition that a reassignment, also a cancelled one, removed from it.

    Topics without an id do not count: their logs cannot be told from those of later topics of that name.
    """
    history = cluster.history
    for broker in cluster.running:
        for p, held in broker.replicas.logs.items():
            topic = history.topics.znodes.get(p.topic)
            if topic is None or topic.id is None or held != topic.id or p in broker.replicas.failed:
                continue
            since = history.assignments.removed_at.get((p, broker.number))
            if since is not None and broker.number not in history.topics.replicas(p):
                return f"broker {broker.number} has {p}, whose replicas are {history.topics.replicas(p)} since {since}"
    return None


def requested_moves_keep_a_leader(history: History, event: StateWritten) -> str | None:
    """A requested reassignment leaves no partition leaderless if a live in-sync replica could lead (KAFKA-14808)."""
    before, after, term = event.before, event.after, history.controllers.active
    if before is None or not before.has_leader or after.has_leader or term is None:
        return None
    doing = history.controllers.handling.get((term.broker, term.incarnation))
    if doing is None or not isinstance(doing.event, ApiPartitionReassignment | ZkPartitionReassignment):
        return None
    views, p = history.broker_views, event.partition
    able = [b for b in after.isr if b != before.leader and views.is_online(term, p, b) is True]
    return f"{p}: {before.leader} leads no more and has no successor, although {able} could lead" if able else None
