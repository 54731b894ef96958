"""Handles failures of log directories. Source: ReplicaManager.handleLogDirFailure (3.9), KIP-112.

The controller is notified by a znode. It then sends LeaderAndIsr to this broker and elects other leaders for the
partitions that are offline.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from klamm.broker.context import NodeContext
from klamm.log.errors import REPAIR
from klamm.log.manager import LogManager
from klamm.log.registry import DirectoryFailure
from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId
from klamm.zk.store import Store

_RETRY_BACKOFF_S: Final = 1.0
log = structlog.get_logger("node")


class LogDirFailures:
    """A part of a node. A directory may fail while the logs are loaded, so it is built before them."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._notifier = LogDirFailureNotifier(context.store)
        self._listeners: list[Callable[[DirectoryFailure], None]] = []

    def add_listener(self, listener: Callable[[DirectoryFailure], None]) -> None:
        """Call the listener at each failure, in the order of addition; it must not raise."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Do nothing: there is no work before the first failure of a log directory."""

    async def close(self) -> None:
        """Stop the task that reports failed directories to the controller."""
        await self._notifier.close()

    def on_failure(self, failure: DirectoryFailure, logs: LogManager) -> None:
        """Call the listeners and notify the controller; if no log directory is left, the node stops."""
        log.error(
            "log directory failed: its replicas are offline",
            directory=failure.directory,
            reason=failure.reason,
            replicas=len(failure.partitions),
            action=REPAIR,
        )
        for listener in self._listeners:
            listener(failure)
        if logs.live_directories:
            self._notifier.notify(self._context.broker_id)
        else:
            self._context.status.report_failure(
                f"All log directories failed, the last one is {failure.directory}: {failure.reason}. {REPAIR}"
            )


class LogDirFailureNotifier:
    """Notifies the controller of failed log directories; one notification covers all earlier failures."""

    def __init__(self, store: Callable[[], Store]) -> None:
        """`store()` is that of the newest ZooKeeper session; raises KlammError where there is none."""
        self._store = store
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def notify(self, broker_id: BrokerId) -> None:
        """Write the notification, retrying until ZooKeeper takes it. Does nothing after `close`."""
        if self._closed:
            return
        if self._task is not None:
            self._task.cancel()  # the new notification stands for it
        self._task = asyncio.get_running_loop().create_task(self._write_notification(broker_id), name="log-dir-failure")

    async def close(self) -> None:
        """Stop reporting failed directories to the controller."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _write_notification(self, broker_id: BrokerId) -> None:
        """Write the znode, retrying until ZooKeeper accepts it."""
        while True:
            try:
                await self._store().announce_log_dir_failure(broker_id)
                return
            except KlammError as error:
                log.warning(
                    "cannot tell the controller of the failed log directory; retrying",
                    reason=str(error),
                    retry_s=_RETRY_BACKOFF_S,
                )
            await asyncio.sleep(_RETRY_BACKOFF_S)
