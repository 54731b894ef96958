"""What a node knows of the finalized features: `/feature`, followed. Source: FinalizedFeatureChangeListener.scala."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from klamm.model.errors import KlammError
from klamm.zk.store import Store
from klamm.zk.watches import WatchEvent
from klamm.zk.znodes import FEATURE, MalformedZnode

NOTHING_FINALIZED: Final = -1
_RETRY_S: Final = 1.0
log = structlog.get_logger("features")


class Features:
    """`start` once ZooKeeper may be asked; `renewed` with each later session; `close` at the end."""

    def __init__(self, store: Callable[[], Store]) -> None:
        """`store()` is that of the newest ZooKeeper session; raises KlammError where there is none."""
        self._store = store
        self.levels: Mapping[str, int] = {}
        self.epoch = NOTHING_FINALIZED
        """The znode's version; -1 where there is none, or features are disabled."""
        self._seen = NOTHING_FINALIZED
        self._wanted = asyncio.Event()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._wanted.set()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="features")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def on_watch(self, event: WatchEvent) -> None:
        if event.path == FEATURE:
            self._wanted.set()

    def renewed(self) -> None:
        """A new session knows no watches of the old one."""
        self._wanted.set()

    async def wait_for(self, epoch: int, timeout_s: float) -> bool:
        """Whether this version of the znode, or a later one, is known here in time."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._seen < epoch:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self.read()
            except KlammError as error:
                log.warning("finalized features cannot be read, trying again", reason=str(error))
                await asyncio.sleep(_RETRY_S)
                self._wanted.set()

    async def read(self) -> None:
        """Learn what is there and hear of the next change. Raises KlammError."""
        store = self._store()
        try:
            found = await store.watch_features()
        except MalformedZnode as error:
            log.error("finalized features ignored", reason=str(error))
            return
        if found is None:
            self.levels, self.epoch, self._seen = {}, NOTHING_FINALIZED, NOTHING_FINALIZED
        else:
            features, self._seen = found
            self.levels = features.levels if features.enabled else {}
            self.epoch = self._seen if features.enabled else NOTHING_FINALIZED
        self._changed.set()
