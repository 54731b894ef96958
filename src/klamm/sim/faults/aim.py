"""At whom a fault is aimed. Whoever plays a part gets hit more often than chance would have it: there it hurts."""

from collections.abc import Callable, Iterable
from typing import Final

from klamm.sim.actions import Draw, NodeUnderTest, ScheduledCluster

Role = Callable[[ScheduledCluster], Iterable[int]]


def anyone(cluster: ScheduledCluster) -> Iterable[int]:
    """The numbers of all nodes that can be hit."""
    return cluster.nodes


def controllers(cluster: ScheduledCluster) -> Iterable[int]:
    """The numbers of the nodes that are controller."""
    return (n for n, node in cluster.nodes.items() if node.host.is_alive and node.is_controller)


def last_in_sync(cluster: ScheduledCluster) -> Iterable[int]:
    """Brokers that are the only ISR member of some partition."""
    return (v[-1].isr[0] for v in cluster.history.states.versions.values() if len(v[-1].isr) == 1)


def leaders(cluster: ScheduledCluster) -> Iterable[int]:
    """Brokers that lead some partition; in a balanced cluster, the preferred leaders."""
    return (v[-1].leader for v in cluster.history.states.versions.values() if v[-1].has_leader)


def askers(cluster: ScheduledCluster) -> Iterable[int]:
    """Leaders that wait for a response to AlterPartition."""
    for number, node in cluster.nodes.items():
        if node.waits_for_alter_partition:
            yield number


ROLES: Final[dict[str, Role]] = {
    "anyone": anyone,
    "controller": controllers,
    "last in sync": last_in_sync,
    "leader": leaders,
    "asker": askers,
}
_WEIGHTS: Final = (4, 5, 1, 1, 1)


def victim(cluster: ScheduledCluster, draw: Draw) -> tuple[int, NodeUnderTest]:
    """Draw a role and one of the nodes that have it; any node if none has it."""
    role = draw("role", lambda rng: rng.choices(tuple(ROLES), _WEIGHTS)[0])
    candidates = sorted({n for n in ROLES[role](cluster) if n in cluster.nodes}) or list(cluster.nodes)
    number = draw("node", lambda rng: rng.choice(candidates))
    return number, cluster.nodes[number]


def other_host(cluster: ScheduledCluster, draw: Draw, number: int) -> str:
    """Draw another node or a ZooKeeper server."""
    others = [f"node-{n}" for n in cluster.nodes if n != number]
    return draw("other", lambda rng: rng.choice([*others, *server_names(cluster)]))


def node_names(cluster: ScheduledCluster) -> list[str]:
    return [f"node-{n}" for n in cluster.nodes]


def server_names(cluster: ScheduledCluster) -> list[str]:
    return [f"zk-{n + 1}" for n in range(len(cluster.servers))]
