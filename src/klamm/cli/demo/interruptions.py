"""The interruptions of the demo: one node is killed, another is stopped; both are started again."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from klamm.cli.demo.observer import ClusterObserver, wait_until
from klamm.embedded.cluster import LocalCluster
from klamm.embedded.nodes import NodeProcess
from klamm.runtime.clock import Clock


@dataclass(slots=True)
class Interruption:
    """Times in ms are wall-clock times, to match the journal; the others are loop times, to match acknowledgements."""

    what: str
    node: int
    began_ms: int
    began: float
    was_controller: bool
    ended_ms: int = 0
    ended: float = 0.0
    recovery_s: float = 0.0
    """From the signal until every partition had all its replicas in sync again."""


class Interruptions:
    """`say` is called with each step."""

    def __init__(
        self, cluster: LocalCluster, observer: ClusterObserver, clock: Clock, print_line: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._observer = observer
        self._clock = clock
        self._say = print_line
        self._killed: NodeProcess | None = None

    async def kill_the_controllers_node(self) -> Interruption:
        """Kill the controller's node by SIGKILL; start it again when another node is controller."""
        node = await self._controllers_node()
        self._say(f"SIGKILL to {node.name}, the active controller")
        interruption = self._record_begin(f"SIGKILL of {node.name}, the active controller", node, was_controller=True)
        self._killed = node
        node.kill()
        await wait_until("another node is controller", lambda: self._has_controller_other_than(node.broker_id))
        self._say(f"node {await self._observer.controller_id()} is the controller now; starting {node.name} again")
        return await self._restart_and_wait(node, interruption)

    async def stop_another_node(self) -> Interruption:
        """Stop the node with most leaders, except the killed one, by SIGTERM; start it again when it ended."""
        controller, leaders = await self._controllers_node(), await self._observer.leaders()
        others = [n for n in self._cluster.nodes if n is not self._killed]
        node = max(others, key=lambda n: leaders[n.broker_id])
        self._say(f"SIGTERM to {node.name}, leader of {leaders[node.broker_id]} partitions: controlled shutdown")
        what = f"SIGTERM to {node.name} (controlled shutdown)"
        interruption = self._record_begin(what, node, was_controller=node is controller)
        node.terminate()
        await wait_until(f"{node.name} ended", lambda: _as_awaitable(not node.is_running))
        status = node.child.exit_status if node.child else None
        self._say(f"{node.name} ended with status {status}; starting it again")
        return await self._restart_and_wait(node, interruption)

    def _record_begin(self, what: str, node: NodeProcess, *, was_controller: bool) -> Interruption:
        """Make the record of an interruption that begins now."""
        now = asyncio.get_running_loop().time()
        return Interruption(what, node.broker_id, self._clock.now_ms(), now, was_controller)

    async def _restart_and_wait(self, node: NodeProcess, interruption: Interruption) -> Interruption:
        """Start the node, wait until every replica is in sync, and record the end of the interruption."""
        node.start()
        await wait_until("every partition has all its replicas in sync", self._observer.all_in_sync)
        interruption.ended = asyncio.get_running_loop().time()
        interruption.ended_ms = self._clock.now_ms()
        interruption.recovery_s = interruption.ended - interruption.began
        self._say(f"{node.name} is back; every partition is in sync {interruption.recovery_s:.1f} s after the signal")
        return interruption

    async def _controllers_node(self) -> NodeProcess:
        """Wait until a node is controller and return it."""
        await wait_until("a node is controller", lambda: self._has_controller_other_than(-1))
        return self._cluster.node(await self._observer.controller_id())

    async def _has_controller_other_than(self, than: int) -> bool:
        """Whether a node is controller that is not node `than`."""
        return await self._observer.controller_id() not in (than, -1)


async def _as_awaitable(value: bool) -> bool:
    """Return the value from a coroutine, because `wait_until` awaits its condition."""
    return value
