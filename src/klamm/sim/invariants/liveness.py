"""What comes about once faults are over and there was time."""

from klamm.model.ids import TopicPartition
from klamm.sim.invariants.seen import Cluster, newest
from klamm.zk import znodes


def one_controller_acts(cluster: Cluster) -> str | None:
    """Exactly one, in the newest epoch, and `/controller` names it."""
    acting = [b for b in cluster.running if b.controller.is_active]
    node = cluster.tree.get(znodes.CONTROLLER)
    holder = znodes.decode_controller(node.data) if node else None
    if len(acting) != 1 or holder is None or holder.broker != acting[0].number:
        return f"{[b.number for b in acting]} act as controller, /controller names {holder}"
    if acting[0].controller.epoch != cluster.history.epoch:
        return f"broker {acting[0].number} acts in epoch {acting[0].controller.epoch}, not {cluster.history.epoch}"
    return None


def every_partition_is_led(cluster: Cluster) -> str | None:
    """A partition with a live member of its ISR has a live leader; a topic's partitions all have a state."""
    live = {b.number for b in cluster.running}
    for topic, seen in cluster.history.topics.items():
        for number, assignment in seen.partitions.items():
            p = TopicPartition(topic, number)
            state = newest(cluster, p)
            if state is None:
                if live & set(assignment.replicas):
                    return f"{p} has no state, although replicas of it run"
            elif live & set(state.isr) and state.leader not in live:
                return f"{p}: leader {state.leader} does not run, of ISR {state.isr} {live & set(state.isr)} do"
    return None


def isrs_are_whole(cluster: Cluster) -> str | None:
    """Every running replica is in the ISR again."""
    live = {b.number for b in cluster.running}
    for p, versions in cluster.history.states.items():
        replicas = cluster.history.replicas(p)
        state = versions[-1]
        if state.leader in live and set(state.isr) != live & set(replicas):
            return f"{p}: ISR {state.isr}, of replicas {replicas} {sorted(live)} run"
    return None


def everybody_knows(cluster: Cluster) -> str | None:
    """Each replica has the newest leadership of its partitions, each broker's metadata that of all."""
    for broker in cluster.running:
        for p, versions in cluster.history.states.items():
            newest = versions[-1]
            told = broker.replicas.hosted.get(p)
            if broker.number in cluster.history.replicas(p) and (
                told is None or (told.leader, told.leader_epoch) != (newest.leader, newest.leader_epoch)
            ):
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
    return None
