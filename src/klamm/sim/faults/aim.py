"""Choice of the node that a fault hits: nodes with an important role are chosen more often than others."""

from collections.abc import Callable, Iterable
from typing import Final

from klamm.sim.actions import Draw, NodeUnderTest, ScheduledCluster

Role = Callable[[ScheduledCluster], Iterable[int]]


def all_nodes(cluster: ScheduledCluster) -> Iterable[int]:
    """The numbers of all nodes."""
    return cluster.nodes


def controllers(cluster: ScheduledCluster) -> Iterable[int]:
    """The numbers of the nodes whose controller is active."""
    return (n for n, node in cluster.nodes.items() if node.host.is_alive and node.is_controller)


def sole_isr_members(cluster: ScheduledCluster) -> Iterable[int]:
    """Brokers that are the only ISR member of some partition."""
    return (v[-1].isr[0] for v in cluster.history.states.versions.values() if len(v[-1].isr) == 1)


def leaders(cluster: ScheduledCluster) -> Iterable[int]:
    """Brokers that lead some partition."""
    return (v[-1].leader for v in cluster.history.states.versions.values() if v[-1].has_leader)


def leaders_awaiting_alter_partition(cluster: ScheduledCluster) -> Iterable[int]:
    """Leaders that wait for a response to AlterPartition."""
    for number, node in cluster.nodes.items():
        if node.waits_for_alter_partition:
            yield number


ROLES: Final[dict[str, Role]] = {
    "any node": all_nodes,
    "controller": controllers,
    "sole ISR member": sole_isr_members,
    "leader": leaders,
    "leader awaiting AlterPartition": leaders_awaiting_alter_partition,
}
_WEIGHTS: Final = (4, 5, 1, 1, 1)


def draw_node(cluster: ScheduledCluster, draw: Draw) -> tuple[int, NodeUnderTest]:
    """Draw a role, such as leader or controller, and one of the nodes that have it; return its number and the node.

    If no node has the role, any node is drawn.
    """
    role = draw("role", lambda rng: rng.choices(tuple(ROLES), _WEIGHTS)[0])
    candidates = sorted({n for n in ROLES[role](cluster) if n in cluster.nodes}) or list(cluster.nodes)
    number = draw("node", lambda rng: rng.choice(candidates))
    return number, cluster.nodes[number]


def draw_other_host(cluster: ScheduledCluster, draw: Draw, number: int) -> str:
    """Draw another node or a ZooKeeper server; return its host name."""
    others = [f"node-{n}" for n in cluster.nodes if n != number]
    return draw("other", lambda rng: rng.choice([*others, *server_names(cluster)]))


def node_names(cluster: ScheduledCluster) -> list[str]:
    """Host names of all nodes."""
    return [f"node-{n}" for n in cluster.nodes]


def server_names(cluster: ScheduledCluster) -> list[str]:
    """Host names of all ZooKeeper servers."""
    return [f"zk-{n + 1}" for n in range(len(cluster.servers))]
