"""What comes about once faults are over and there was time. All of it is about the nodes of which that is expected."""

from collections import Counter, defaultdict
from typing import Final

from klamm.model.ids import BrokerId, TopicPartition
from klamm.sim.history.history import History
from klamm.sim.invariants.views import Cluster, acting, newest
from klamm.zk import znodes

_LOOKS_AGAIN_S: Final = 10
"""A controller that looks for imbalance less often may not do so at rest."""
_ANNOUNCED_S: Final = 60.0
"""The most that a leader which writes ISRs waits before it announces them (`IsrChangePropagationConfig`)."""
_LOOK_S: Final = 7.0
"""The first look comes five seconds after failover; the handling of one takes a while on a slow host."""


def one_controller_is_active(cluster: Cluster) -> str | None:
    """Exactly one node is controller, in the newest epoch and as `/controller` says, and its failover is complete."""
    terms = acting(cluster)
    node = cluster.tree.get(znodes.CONTROLLER)
    holder = znodes.decode_controller(node.data) if node else None
    if len(terms) != 1 or holder is None or holder.broker != terms[0].broker:
        return f"{terms} act, {znodes.CONTROLLER} names {holder}"
    newest = cluster.history.controllers.epoch
    if terms[0].epoch != newest:
        return f"{terms[0]} acts, the newest epoch is {newest}"
    if newest not in cluster.history.controllers.completed_failovers:
        return f"{terms[0]} has ended no event yet: its failover is not complete"
    return None


def every_partition_is_led(cluster: Cluster) -> str | None:
    """A partition with a live ISR member has a live leader, and every partition of a topic has a state."""
    live = {b.number for b in cluster.running}
    for topic, seen in cluster.history.topics.znodes.items():
        if topic in cluster.history.topics.deletion_requests:
            continue
        for number, assignment in seen.partitions.items():
            p = TopicPartition(topic, number)
            state = newest(cluster, p)
            if state is None:
                if live & set(assignment.replicas):
                    return f"{p} has no state, although replicas of it run"
            elif _has_working_replica(cluster, p, live & set(state.isr)) and state.leader not in live:
                return f"{p}: leader {state.leader} does not run, of ISR {state.isr} {live & set(state.isr)} do"
    return None


def _has_working_replica(cluster: Cluster, p: TopicPartition, members: set[BrokerId]) -> bool:
    """Whether one of these brokers has the partition in a working log directory."""
    return any(b.number in members and p not in b.replicas.failed for b in cluster.running)


def isrs_are_whole(cluster: Cluster) -> str | None:
    """Every running replica is in the ISR again, unless its log directory failed."""
    live = {b.number: b for b in cluster.running}
    for p, versions in cluster.history.states.versions.items():
        replicas = cluster.history.topics.replicas(p)
        state = versions[-1]
        fit = {b for b in replicas if b in live and p not in live[b].replicas.failed}
        if state.leader in fit and set(state.isr) != fit and p.topic not in cluster.history.topics.deletion_requests:
            return f"{p}: ISR {state.isr}, of replicas {replicas} {sorted(live)} run"
    return None


def brokers_have_the_newest_state(cluster: Cluster) -> str | None:
    """Replicas have the newest leader, epoch and ISR, and brokers the newest metadata, of all existing partitions."""
    history = cluster.history
    for broker in cluster.running:
        for p, versions in history.states.versions.items():
            if p.topic in history.topics.deletion_requests:
                continue
            newest = versions[-1]
            applied = broker.replicas.hosted.get(p)
            is_here = broker.number in history.topics.replicas(p) and p not in broker.replicas.failed
            if is_here and (
                applied is None or (applied.leader, applied.leader_epoch) != (newest.leader, newest.leader_epoch)
            ):
                return f"{p}: replica {broker.number} was told {applied}, the newest is {newest}"
            known = broker.cache.state(p)
            if known is None or (known.leader, known.leader_epoch, tuple(known.isr)) != (
                newest.leader,
                newest.leader_epoch,
                newest.isr,
            ):
                return f"{p}: broker {broker.number} has metadata {known}, the newest is {newest}"
        if set(broker.cache.brokers) != {b.number for b in cluster.running}:
            return f"broker {broker.number} believes that {sorted(broker.cache.brokers)} live"
        if extra := [t for t in broker.cache.topics() if t not in history.topics.znodes]:
            return f"broker {broker.number} has metadata of {extra}, which are gone"
    return None


def brokers_have_the_assignment(cluster: Cluster) -> str | None:
    """Replicas and metadata have the replicas of the topic's znode.

    Except a replica in the newest leader epoch, after a reassignment was cancelled whose controller was replaced before
    it wrote a new one: a broker ignores LeaderAndIsr of the leader epoch that it has (ReplicaManager, 3.9).
    """
    history = cluster.history
    for broker in cluster.running:
        for p in history.states.versions:
            topic = history.topics.znodes.get(p.topic)
            found = topic.partitions.get(p.partition) if topic else None
            if found is None or p.topic in history.topics.deletion_requests:
                continue
            applied, known = broker.replicas.hosted.get(p), broker.cache.state(p)
            is_hosted = applied is not None and broker.number in found.replicas
            if applied is not None and is_hosted and applied.replicas != found.replicas and not _is_ignored(history, p):
                return f"{p}: replica {broker.number} was told replicas {applied.replicas}, assigned is {found}"
            if known is not None and tuple(known.replicas) != found.replicas:
                return f"{p}: broker {broker.number} has metadata with replicas {known.replicas}, assigned is {found}"
    return None


def _is_ignored(history: History, p: TopicPartition) -> bool:
    """Whether replicas ignore the assignment of a cancelled reassignment, because it has no leader epoch of its own."""
    held, versions = history.assignments.in_force.get(p, []), history.states.versions[p]
    if len(held) < 2 or held[-2][1].target == held[-1][1].replicas:
        return False
    cancelled_at, first = held[-1][0], next(v for v in versions if v.leader_epoch == versions[-1].leader_epoch)
    epoch_at = history.states.written_at[p][first.partition_epoch]
    return epoch_at < cancelled_at < history.controllers.elected_at.get(history.controllers.epoch, 0)


def no_isr_change_is_pending(cluster: Cluster) -> str | None:
    """No leader waits for the answer to an ISR change, or for the LeaderAndIsr after a refused one."""
    for broker in cluster.running:
        for p, replica in broker.replicas.hosted.items():
            if replica.leader == broker.number and (replica.proposal is not None or replica.is_refused):
                return f"{p}: leader {broker.number} waits with ISR {replica.proposal}, refused: {replica.is_refused}"
    return None


def preferred_leaders_return(cluster: Cluster) -> str | None:
    """No broker misses more of its preferred leaders than `leader.imbalance.per.broker.percentage` allows."""
    term = next(iter(acting(cluster)), None)
    if (
        term is None
        or not term.settings.auto_leader_rebalance
        or term.settings.leader_imbalance_check_s > _LOOKS_AGAIN_S
    ):
        return None
    preferred: Counter[BrokerId] = Counter()
    elsewhere: dict[BrokerId, list[TopicPartition]] = defaultdict(list)
    for p, versions in cluster.history.states.versions.items():
        first = next(iter(cluster.history.topics.replicas(p)), None)
        if first is None or p.topic in cluster.history.topics.deletion_requests:
            continue
        preferred[first] += 1
        if versions[-1].leader != first:
            elsewhere[first].append(p)
    for broker, partitions in elsewhere.items():
        ratio = len(partitions) / preferred[broker]
        could_lead = [p for p in partitions if _could_lead(cluster, broker, p, term.settings.leader_imbalance_check_s)]
        if ratio > term.settings.leader_imbalance_percentage / 100 and could_lead:
            return f"broker {broker} could lead {could_lead}, and lacks {ratio:.0%} of what it should lead"
    return None


def _could_lead(cluster: Cluster, broker: BrokerId, p: TopicPartition, check_s: float) -> bool:
    """Whether the broker could lead for so long that the controller has checked since.

    It has to run and be in sync, and no reassignment may be under way. Where leaders write ISRs, the controller learns
    of them up to a minute later, as in Kafka (ZkIsrManager), and checks then.
    """
    history = cluster.history
    topic = history.topics.znodes.get(p.topic)
    found = topic.partitions.get(p.partition) if topic else None
    state = history.states.newest(p)
    if found is None or state is None or found.is_being_reassigned or broker not in state.isr:
        return False
    announced_s = _ANNOUNCED_S if history.at.leaders_write_isrs else 0
    is_long_so = history.at.now_s - history.states.changed_s[p] > announced_s + check_s + _LOOK_S
    return is_long_so and _has_working_replica(cluster, p, {broker})
