"""A cluster whose nodes reach each other, and ZooKeeper, through proxies: for tests that partition the network."""

from collections.abc import Collection, Iterable, Sequence
from itertools import product
from typing import Final

from klamm.embedded.nodes import NodeProcess
from klamm.model.errors import UsageError
from klamm.runtime.ports import free_ports
from klamm.runtime.socket_owners import can_find_owners, owner_of_port
from klamm.testing.links import HOST, ZOOKEEPER, Pair, Path

INTERNAL: Final = "INTERNAL"
"""The listener that nodes use among themselves."""


def route_through_proxies(nodes: Sequence[NodeProcess], zookeeper_port: int) -> list[Path]:
    """Give each node a separate listener for other nodes and let it advertise a proxy; returns the proxies to open.

    Clients still connect to the nodes directly. Raises UsageError where the system does not support it.
    """
    if not can_find_owners():
        raise UsageError("network_faults=True needs Linux: proxies read from /proc which node owns a connection.")
    paths: list[Path] = []
    for node in nodes:
        internal, proxy, zookeeper = free_ports(3)
        clients = f"PLAINTEXT://{node.address}"
        node.properties |= {
            "listeners": f"{clients},{INTERNAL}://{HOST}:{internal}",
            "advertised.listeners": f"{clients},{INTERNAL}://{HOST}:{proxy}",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{INTERNAL}:PLAINTEXT",
            "inter.broker.listener.name": INTERNAL,
            "zookeeper.connect": node.properties["zookeeper.connect"].replace(
                f"{HOST}:{zookeeper_port}", f"{HOST}:{zookeeper}"
            ),
        }
        paths += [
            Path(proxy, internal, node.broker_id),
            Path(zookeeper, zookeeper_port, ZOOKEEPER, source=node.broker_id),
        ]
    return paths


def owning_node(nodes: Iterable[NodeProcess], port: int) -> int | None:
    """The broker id of the node whose connection has this local port; None where it is not a node's."""
    ids = {node.child.pid: node.broker_id for node in nodes if node.child is not None and node.is_running}
    owner = owner_of_port(port, ids)
    return None if owner is None else ids[owner]


def pairs_between(cut_off: Collection[int], others: Collection[int]) -> set[Pair]:
    """Each pair of a member that is cut off and one of the others: the links to cut."""
    return {frozenset(pair) for pair in product(cut_off, others)}
