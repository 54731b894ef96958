"""A node as a process: read the configuration, run until asked to stop, stop in order."""

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog

from klamm.broker.node import Node, start_node
from klamm.config.node_config import NodeConfig, WrongConfig, parse_node_config
from klamm.model.errors import KlammError
from klamm.runtime.main_loop import allow_many_open_files, freeze_startup_objects, run_loop, say
from klamm.runtime.memory import keep_large_buffers
from klamm.runtime.network import reason_of
from klamm.runtime.signals import on_stop_signals
from klamm.runtime.world import World, real_world
from klamm.telemetry.logs import LogLevels, configure_logs

OK: Final = 0
FAILED: Final = 1
log = structlog.get_logger("node")


def run_node(config_path: str, overrides: Mapping[str, str] | None = None, log_level: str = "info") -> int:
    """Run the node that this server.properties describes and return its exit status. Errors go to standard error."""
    world = real_world()
    try:
        config = parse_node_config(world.disk.read(config_path), config_path, overrides)
    except OSError as error:
        say(f"Cannot read {config_path}: {reason_of(error)}. Pass the path of a server.properties file.")
        return FAILED
    except WrongConfig as error:
        say(str(error))
        return FAILED
    log_levels = configure_logs(log_level)
    for warning in config.warnings:
        log.warning(warning)
    log.info("open files allowed", limit=allow_many_open_files())
    keep_large_buffers()
    return run_loop(_run_until_stopped(world, config, log_levels))


async def _run_until_stopped(world: World, config: NodeConfig, log_levels: LogLevels) -> int:
    """Start the node and run it until it fails or receives a stop signal; return the exit status."""
    requests = _StopRequests()
    on_stop_signals(requests.receive)
    starting = asyncio.create_task(start_node(world, config, log_levels))
    try:
        node = await requests.start_unless_stopped(starting)
    except (KlammError, OSError) as error:
        say(str(error))
        return FAILED
    if node is None:
        log.info("stopped while starting")
        return OK
    freeze_startup_objects()
    failure = await requests.wait_for_end(node)
    await node.stop()
    if failure:
        say(failure)
    return FAILED if failure else OK


class _StopRequests:
    """Stop signals: the first one requests a controlled shutdown, the second skips it."""

    def __init__(self) -> None:
        self._received = asyncio.Event()
        self._node: Node | None = None

    def receive(self) -> None:
        """Handle a stop signal: the first stops in order, the second skips the controlled shutdown."""
        if self._received.is_set() and self._node is not None:
            log.warning("second stop request: stopping without waiting for the controller")
            self._node.skip_controlled_shutdown()
        self._received.set()

    async def start_unless_stopped(self, starting: "asyncio.Task[Node]") -> Node | None:
        """Wait for the start and return the running node; None where a stop signal came first.

        Raises what the start raises.
        """
        received = asyncio.create_task(self._received.wait())
        await asyncio.wait((starting, received), return_when=asyncio.FIRST_COMPLETED)
        received.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return None
        self._node = starting.result()
        return self._node

    async def wait_for_end(self, node: Node) -> str | None:
        """Wait for a stop signal or a failure. Returns the reason of the failure, None for a stop signal."""
        received = asyncio.create_task(self._received.wait())
        failed = asyncio.create_task(node.wait_for_failure())
        await asyncio.wait((received, failed), return_when=asyncio.FIRST_COMPLETED)
        received.cancel()
        failed.cancel()
        return failed.result() if failed.done() and not failed.cancelled() else None
