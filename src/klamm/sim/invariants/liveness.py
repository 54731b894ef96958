"""What comes about once faults are over and there was time. All of it is about the nodes of which that is expected."""

from klamm.model.ids import BrokerId, TopicPartition
from klamm.sim.invariants.views import Cluster, acting, newest
from klamm.zk import znodes


def one_controller_acts(cluster: Cluster) -> str | None:
    """Exactly one, in the newest epoch, `/controller` names it, and its failover ended well."""
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
    """A partition with a live member of its ISR has a live leader; a topic's partitions all have a state."""
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


def everybody_knows(cluster: Cluster) -> str | None:
    """Each replica has the newest leadership of its partitions, each broker's metadata that of all, and no more."""
    history = cluster.history
    for broker in cluster.running:
        for p, versions in history.states.versions.items():
            if p.topic in history.topics.deletion_requests:
                continue
            newest = versions[-1]
            told = broker.replicas.hosted.get(p)
            is_here = broker.number in history.topics.replicas(p) and p not in broker.replicas.failed
            if is_here and (told is None or (told.leader, told.leader_epoch) != (newest.leader, newest.leader_epoch)):
                return f"{p}: replica {broker.number} was told {told}, the newest is {newest}"
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
