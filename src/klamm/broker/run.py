"""A node as a process: read the file, run until asked to stop, leave in order."""

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog

from klamm.broker.node import Node
from klamm.config.node_config import NodeConfig, WrongConfig, parse_node_config
from klamm.model.errors import KlammError
from klamm.runtime.large_buffers import keep_large_buffers
from klamm.runtime.main_loop import allow_many_open_files, run_loop, say, settle_memory
from klamm.runtime.signals import call_when_asked_to_stop
from klamm.runtime.world import World, real_world
from klamm.telemetry.logs import LogLevels, configure_logs

OK: Final = 0
FAILED: Final = 1
log = structlog.get_logger("node")


def run_node(config_path: str, overrides: Mapping[str, str] | None = None, log_level: str = "info") -> int:
    """Run the node that this server.properties describes; the exit status. Errors are said on standard error."""
    world = real_world()
    try:
        config = parse_node_config(world.disk.read(config_path), config_path, overrides)
    except OSError as error:
        say(f"{config_path} cannot be read: {error.strerror}; name a server.properties file")
        return FAILED
    except WrongConfig as error:
        say(str(error))
        return FAILED
    log_levels = configure_logs(log_level)
    for warning in config.warnings:
        log.warning(warning)
    log.info("open files allowed", limit=allow_many_open_files())
    keep_large_buffers()
    return run_loop(_run(world, config, log_levels))


async def _run(world: World, config: NodeConfig, log_levels: LogLevels) -> int:
    node = Node(world, config, log_levels)
    asked = _StopRequests(node)
    call_when_asked_to_stop(asked.ask)
    starting = asyncio.create_task(node.start())
    try:
        await asked.first_of(starting)
    except (KlammError, OSError) as error:
        say(f"cannot start: {error}")
        await node.abandon()
        return FAILED
    if not starting.done():
        log.info("asked to stop while starting")
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await node.abandon()
        return OK
    settle_memory()
    failure = await asked.wait(node)
    await node.stop()
    if failure:
        say(failure)
    return FAILED if failure else OK


class _StopRequests:
    """The first one asks for an orderly stop, the second for a quick one."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._event = asyncio.Event()

    def ask(self) -> None:
        if self._event.is_set():
            log.warning("asked again, stopping without waiting for the controller")
            self._node.skip_controlled_shutdown()
        self._event.set()

    async def first_of(self, starting: "asyncio.Task[None]") -> None:
        """Returns when the start is done, or when asked to stop before. Raises what the start raises."""
        asked = asyncio.create_task(self._event.wait())
        await asyncio.wait((starting, asked), return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if starting.done():
            starting.result()

    async def wait(self, node: Node) -> str | None:
        """Why the node cannot go on; None where it was asked to stop."""
        asked = asyncio.create_task(self._event.wait())
        failed = asyncio.create_task(node.failed())
        await asyncio.wait((asked, failed), return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        failed.cancel()
        return failed.result() if failed.done() and not failed.cancelled() else None
