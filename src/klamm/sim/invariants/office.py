"""What the acting controller holds, and what a deposed one leaves behind."""

from klamm.sim.invariants.seen import Cluster


def memory_equals_zookeeper(cluster: Cluster) -> str | None:
    """What the controller remembers of partitions and brokers is what the znodes say.

    All but the epoch of the controller that decided: what need not change is remembered, and told, under the new one's.
    """
    for broker in cluster.running:
        bench = broker.controller.bench
        if bench is None:
            continue
        for p, versions in cluster.history.states.items():
            known = bench.context.partition(p.topic, p.partition)
            remembered = known.leadership if known else None
            if (
                remembered is None
                or remembered._replace(controller_epoch=versions[-1].controller_epoch) != versions[-1]
            ):
                return f"{p}: the controller remembers {known and known.leadership}, ZooKeeper has {versions[-1]}"
        if set(bench.context.registered) != {b.number for b in cluster.running}:
            return f"the controller believes that {sorted(bench.context.registered)} are registered"
    return None
