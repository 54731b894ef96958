"""A running node: broker and controller in one process. Source: KafkaServer.scala (3.9).

`assembly.py` builds its parts and starts them; this is what happens to it afterwards.
"""

import asyncio

import structlog

from klamm.broker.assembly import assemble
from klamm.broker.controlled_shutdown import ControlledShutdown, let_clients_move
from klamm.broker.lifecycle import BrokerState, Lifecycle, NodeStatus
from klamm.broker.parts import Parts
from klamm.config.node_config import NodeConfig
from klamm.runtime.world import World
from klamm.telemetry.logs import LogLevels
from klamm.zk.errors import SessionExpired

log = structlog.get_logger("node")


async def start_node(world: World, config: NodeConfig, log_levels: LogLevels) -> "Node":
    """Start a node, again if its ZooKeeper session expires meanwhile.

    Raises KlammError where it cannot run; nothing is left open then, nor after a cancellation.
    """
    while True:
        try:
            return await _start_once(world, config, log_levels)
        except SessionExpired as error:
            log.warning("the ZooKeeper session expired while the node started: starting again", reason=str(error))


async def _start_once(world: World, config: NodeConfig, log_levels: LogLevels) -> "Node":
    """Start a node. Raises KlammError, SessionExpired among them, after everything was closed."""
    status = NodeStatus(BrokerState.STARTING)
    lifecycle = Lifecycle()
    try:
        parts = await assemble(world, config, log_levels, status, lifecycle)
    except BaseException:
        await lifecycle.close()
        raise
    status.state = BrokerState.RUNNING
    context = parts.context
    log.info("ready", broker=context.broker_id, epoch=status.broker_epoch, cluster=context.cluster_id)
    return Node(parts, lifecycle)


class Node:
    """Get it from `start_node`; then `stop` it."""

    def __init__(self, parts: Parts, lifecycle: Lifecycle) -> None:
        self.parts = parts
        self._context = parts.context
        self._status = parts.context.status
        self._lifecycle = lifecycle
        self._without_controller = asyncio.Event()

    async def wait_for_failure(self) -> str:
        """Wait until the node cannot continue; return the reason."""
        return await asyncio.shield(self._status.failure)

    async def stop(self) -> None:
        """Hand over all leaders, then close everything in order; never raises."""
        log.info("stopping", broker=self._context.broker_id)
        if self._context.config.controlled_shutdown_enable and not self._status.failure.done():
            self._status.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            await self._hand_over_leaders()
        self._status.state = BrokerState.SHUTTING_DOWN
        await self._lifecycle.close()
        self._status.state = BrokerState.NOT_RUNNING
        log.info("stopped", broker=self._context.broker_id)

    def skip_controlled_shutdown(self) -> None:
        """Stop without waiting for the controller."""
        self._without_controller.set()

    async def _hand_over_leaders(self) -> None:
        """Run the controlled shutdown, and serve clients until they know the new leaders; or until it is skipped."""
        handover = asyncio.create_task(self._shut_down_controlled())
        skipped = asyncio.create_task(self._without_controller.wait())
        await asyncio.wait((handover, skipped), return_when=asyncio.FIRST_COMPLETED)
        for task in (handover, skipped):
            task.cancel()
        await asyncio.gather(handover, skipped, return_exceptions=True)

    async def _shut_down_controlled(self) -> None:
        """Have the controller move the leaders; then clients may move."""
        context, replicas = self._context, self.parts.replicas
        led = [p for p in replicas.partitions() if p.is_leader and len(p.assignment.replicas) > 1]
        replicas.begin_shutdown()
        shutdown = ControlledShutdown(
            context.world,
            context.config,
            context.broker_id,
            lambda: self._status.broker_epoch,
            context.sessions,
        )
        if await shutdown.run():
            await let_clients_move(led)
