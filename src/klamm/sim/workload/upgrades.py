"""The verb that upgrades and downgrades: nodes restart one by one with another inter.broker.protocol.version."""

import asyncio
from typing import Final

from klamm.runtime.randomness import Rng
from klamm.sim.actions import ClusterUnderTest, Draw, call_after, restart
from klamm.sim.nodes.broker import Node

_OLDEST: Final = "2.6-IV0"
"""Leaders write their ISRs to ZooKeeper, and registrations have no features."""
PROTOCOLS: Final = (_OLDEST, "2.8-IV1", "3.9-IV0")
"""The second has AlterPartition and topic ids."""
_SHUTDOWN_LIMIT_S: Final = 4.0
_MAX_DOWNTIME_S: Final = 2.0


async def roll_protocol(cluster: ClusterUnderTest, draw: Draw) -> None:
    """Nodes restart one by one with another inter.broker.protocol.version; often some nodes keep theirs."""
    has_features = any(node.broker.supports_features for node in cluster.nodes.values())
    if has_features and _OLDEST in cluster.protocols.values():
        return  # as in Kafka, controllers with a newer protocol ignore brokers that lack a finalized feature
    protocol = draw("protocol", lambda rng: rng.choice(PROTOCOLS[1:] if has_features else PROTOCOLS))
    numbers = draw("nodes", lambda rng: _draw_nodes(cluster, rng))
    in_order = draw("in_order", lambda rng: rng.random() < 0.7)
    back_s = draw("back_s", lambda rng: _MAX_DOWNTIME_S * rng.random())
    for number in numbers:
        cluster.log(f"node {number} is to restart with inter.broker.protocol.version={protocol}")
        cluster.protocols[number] = protocol
        node = cluster.nodes[number]
        try:
            if in_order and node.host.is_alive and node.broker.is_ready:
                leaving = cluster.loop.spawn(node.host, node.broker.shut_down(), "shut-down")
                await asyncio.wait([leaving], timeout=_SHUTDOWN_LIMIT_S)
        finally:
            _restart_after(cluster, number, node, back_s)
        await asyncio.sleep(2 * back_s)


def _draw_nodes(cluster: ClusterUnderTest, rng: Rng) -> list[int]:
    """All nodes, or some of them, in a random order."""
    numbers = list(cluster.nodes)
    return rng.sample(numbers, rng.choice((len(numbers), rng.randint(1, len(numbers)))))


def _restart_after(cluster: ClusterUnderTest, number: int, node: Node, back_s: float) -> None:
    """End this process of the node, and start the next one later, unless another one runs already."""
    if cluster.nodes[number] is node:
        cluster.loop.kill(node.host)
        call_after(cluster, back_s, restart, cluster, number)
