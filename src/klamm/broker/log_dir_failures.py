"""Telling the controller that a log directory failed. Source: ReplicaManager.handleLogDirFailure (3.9), KIP-112.

The controller asks this broker about all its replicas then, and finds other leaders for those that are out of use.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId
from klamm.zk.store import Store

_RETRY_S: Final = 1.0
log = structlog.get_logger("node")


class LogDirFailureNotifier:
    """One notice under way at a time: it stands for every directory that failed before it is written."""

    def __init__(self, store: Callable[[], Store]) -> None:
        """`store()` is that of the newest ZooKeeper session; raises KlammError where there is none."""
        self._store = store
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def notify(self, broker_id: BrokerId) -> None:
        """Written as soon as ZooKeeper takes it; nothing after `close`."""
        if self._closed:
            return
        if self._task is not None:
            self._task.cancel()  # the new one is as good
        self._task = asyncio.get_running_loop().create_task(self._write(broker_id), name="failure-notice")

    async def close(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _write(self, broker_id: BrokerId) -> None:
        while True:
            try:
                await self._store().announce_log_dir_failure(broker_id)
                return
            except KlammError as error:
                log.warning("the controller does not know of the failed log directory yet", reason=str(error))
            await asyncio.sleep(_RETRY_S)
