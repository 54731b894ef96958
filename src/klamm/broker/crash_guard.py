"""Keeps a crash guard running, and tells it this node's ZooKeeper sessions.

When the node's process has ended without an orderly stop, the guard closes the sessions, so that the controller learns
of it at once instead of after the session timeout. `klamm.crash.guard=false` turns it off.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import structlog

from klamm.config.node_config import NodeConfig
from klamm.model.ids import BrokerId
from klamm.runtime.crash_guard import Guard, GuardedSession, NoCrashGuard
from klamm.runtime.world import World
from klamm.zk.errors import AuthFailed, SessionClosed, SessionExpired, ZkError
from klamm.zk.process_ends import process_end_path
from klamm.zk.store import Store

_RETRY_S: Final = 1.0
"""Guards are not started more often than this."""
log = structlog.get_logger("node")


class CrashGuard:
    """A part of a node: `start` starts the guard, which is started again when it ends."""

    def __init__(self, world: World, config: NodeConfig) -> None:
        self._world = world
        self._is_enabled = config.klamm_crash_guard
        self._chroot = config.zookeeper_chroot
        self._sessions: dict[int, GuardedSession] = {}
        self._record_path = ""
        self._guard: Guard | None = None
        self._keeper: asyncio.Task[None] | None = None
        self.starts = 0
        """How many guards were started."""

    @property
    def is_running(self) -> bool:
        """Whether the crash guard, a process beside the node, runs."""
        return self._guard is not None

    async def start(self) -> None:
        """Start the crash guard, a process that closes this node's ZooKeeper session after a crash.

        Where that fails, the node runs without it and tries again.
        """
        if not self._is_enabled:
            return
        try:
            await self._start_guard()
        except NoCrashGuard as error:
            log.warning(
                "the node runs without a crash guard: a crash is noticed after zookeeper.session.timeout.ms",
                reason=str(error),
                action=f"{error.remedy}, or set klamm.crash.guard=false to remove this warning.",
            )
            return
        self._keeper = asyncio.get_running_loop().create_task(self._keep_running(), name="crash-guard")

    async def close(self) -> None:
        """Let the crash guard process end: at once, or after this process if a session could not be closed."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._guard is not None:
            await self._guard.close()
            self._guard = None

    def watch(self, session: GuardedSession) -> None:
        """Tell the crash guard to close this ZooKeeper session when the node's process has ended."""
        self._sessions[session.session_id] = session = replace(session, record_path=self._record_path)
        self._tell(lambda guard: guard.watch(session))

    def forget(self, session_id: int) -> None:
        """Tell the crash guard that this ZooKeeper session has ended and need not be closed after a crash."""
        if self._sessions.pop(session_id, None) is not None:
            self._tell(lambda guard: guard.forget(session_id))

    async def begin_record(self, store: Store, broker: BrokerId) -> None:
        """Let the crash guard record in ZooKeeper how this process ended; remove the record of an earlier process.

        The node does not need it to run: where ZooKeeper refuses, the end is not recorded. Raises ZkError where the
        session has ended.
        """
        if not self._is_enabled:
            return
        try:
            await store.begin_process_record(broker)
        except (SessionExpired, SessionClosed, AuthFailed):
            raise
        except ZkError as error:
            log.warning(
                "cannot prepare the record in ZooKeeper of how this process ends: the end will not be recorded",
                reason=str(error),
                action="Let klamm create, write and delete /klamm and what is below it (setAcl).",
            )
            return
        self._record_path = self._chroot + process_end_path(broker)
        for session in list(self._sessions.values()):
            self.watch(session)

    def _tell(self, say: Callable[[Guard], None]) -> None:
        """Send a message to the crash guard process; one that does not read is killed and replaced."""
        if self._guard is None:
            return
        try:
            say(self._guard)
        except OSError as error:
            log.warning("the crash guard does not answer; starting another", reason=str(error))
            self._guard.kill()

    async def _start_guard(self) -> None:
        """Start a crash guard process and tell it all ZooKeeper sessions of the node.

        Where it cannot be started now, the node continues without it.

        Raises NoCrashGuard.
        """
        try:
            self._guard = await self._world.guards.start()
        except NoCrashGuard:
            raise
        except OSError as error:
            log.warning(
                "cannot start the crash guard; trying again",
                reason=str(error),
                retry_s=_RETRY_S,
                action="Check the limits on processes and memory of this node.",
            )
            return
        self.starts += 1
        for session in self._sessions.values():
            self._tell(lambda guard, session=session: guard.watch(session))  # type: ignore[misc]

    async def _keep_running(self) -> None:
        """Start another crash guard process when one has ended, or could not be started."""
        loop = asyncio.get_running_loop()
        while True:
            retry_at = loop.time() + _RETRY_S
            if self._guard is not None:
                await self._guard.wait_for_end()
                self._guard = None
                log.warning("the crash guard has ended; starting another")
            await asyncio.sleep(max(0.0, retry_at - loop.time()))
            await self._start_guard()
