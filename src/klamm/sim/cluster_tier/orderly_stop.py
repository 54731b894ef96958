"""The end of a run: every node is stopped as SIGTERM does, without a controlled shutdown, which has nowhere to go."""

import asyncio
from collections.abc import Mapping
from typing import Final

from klamm.sim.cluster_tier.invariants.shutdown import NodeStopped
from klamm.sim.cluster_tier.node import SimulatedNode
from klamm.sim.cluster_tier.watch import describe
from klamm.sim.loop import SimulatedLoop

_TIMEOUT_S: Final = 60.0


async def stop_all(loop: SimulatedLoop, nodes: Mapping[int, SimulatedNode]) -> dict[int, NodeStopped]:
    """Stop all nodes at once, and return how each ended."""
    found = await asyncio.gather(*(_stop(loop, node) for node in nodes.values()))
    return dict(zip(nodes, found, strict=True))


async def _stop(loop: SimulatedLoop, node: SimulatedNode) -> NodeStopped:
    """Stop a node, and return how it ended."""
    if node.node is None:
        return NodeStopped(0.0, "it was not running", ())
    directories, began_s = node.live_directories, loop.now
    node.node.skip_controlled_shutdown()
    stopping = loop.spawn(node.host, node.node.stop(), "stop")
    await asyncio.wait([stopping], timeout=_TIMEOUT_S)
    return NodeStopped(loop.now - began_s, error_of(stopping), directories)


def error_of(stopping: "asyncio.Task[None]") -> str:
    """What a node's stop raised, or that it did not end; empty where it ended."""
    if not stopping.done():
        return f"it did not end; it waits in {stopping.get_stack(limit=1)}"
    if stopping.cancelled():
        return "its stop was cancelled by a part of the node"
    error = stopping.exception()
    return "" if error is None else f"its stop raised {describe(error)}"
