"""The finalized features in `/feature`, as this node knows them. Source: FinalizedFeatureChangeListener.scala."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from klamm.broker.znode_follower import OnUnexpectedError, ZnodeFollower, log_unexpected_error
from klamm.zk.store import Store
from klamm.zk.znodes import FEATURE, MalformedZnode

NOTHING_FINALIZED: Final = -1
log = structlog.get_logger("features")


class Features(ZnodeFollower):
    """The finalized features that this node knows."""

    def __init__(
        self, store: Callable[[], Store], on_unexpected_error: OnUnexpectedError = log_unexpected_error
    ) -> None:
        """`store()` is that of the newest ZooKeeper session; raises KlammError where there is none."""
        super().__init__("the finalized features", FEATURE, self.read, on_unexpected_error)
        self._store = store
        self.levels: Mapping[str, int] = {}
        self.epoch = NOTHING_FINALIZED
        """The znode's version; -1 where there is none, or features are disabled."""
        self._seen = NOTHING_FINALIZED
        self._changed = asyncio.Event()

    async def wait_for_epoch(self, epoch: int, timeout_s: float) -> bool:
        """Wait until this version of the feature znode, or a later one, is read; False after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._seen < epoch:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def read(self) -> None:
        """Read the finalized features and set the watch for their next change. Raises KlammError."""
        store = self._store()
        try:
            found = await store.watch_features()
        except MalformedZnode as error:
            log.error(
                "content of /feature ignored: it cannot be read; the last known finalized features stay in use",
                reason=str(error),
                action="See klamm audit --zookeeper.",
            )
            return
        if found is None:
            self.levels, self.epoch, self._seen = {}, NOTHING_FINALIZED, NOTHING_FINALIZED
        else:
            features, self._seen = found
            self.levels = features.levels if features.enabled else {}
            self.epoch = self._seen if features.enabled else NOTHING_FINALIZED
        self._changed.set()
