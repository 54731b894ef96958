"""Topics that are gone and of which nobody will tell: looked for when another controller is heard of.

A controller tells all brokers of a deletion, and deletes the topic's znodes when the replicas are gone. Where it falls
with that UpdateMetadata still on its way to a broker that holds no replica, the next one does not know that the topic
ever was. Apache Kafka's brokers name such a topic until they are started again.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.znode_follower import OnUnexpectedError, log_unexpected_error
from klamm.model.errors import KlammError
from klamm.zk import znodes
from klamm.zk.store import Store

_RETRY_S: Final = 1.0
log = structlog.get_logger("node")


class StaleTopics:
    """Compares the metadata cache with ZooKeeper's list of topics, once for each controller epoch."""

    def __init__(
        self,
        cache: MetadataCache,
        store: Callable[[], Store],
        on_topic_gone: Callable[[str], None] = lambda _topic: None,
        on_unexpected_error: OnUnexpectedError = log_unexpected_error,
    ) -> None:
        """`store()` is that of the newest ZooKeeper session; raises KlammError where there is none.

        `on_topic_gone` hears of each topic that is forgotten; it must not raise.
        """
        self._cache = cache
        self._store = store
        self._on_topic_gone = on_topic_gone
        self._on_unexpected_error = on_unexpected_error
        self._epoch = -1
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def metadata_updated(self) -> None:
        """Call it after each update; nothing happens unless it came from a newer controller, or after `close`."""
        if self._cache.controller_epoch <= self._epoch or self._closed:
            return
        self._epoch = self._cache.controller_epoch
        if self._task is not None:
            self._task.cancel()  # the new look sees what that one would
        self._task = asyncio.get_running_loop().create_task(self._forget(), name="forgotten-topics")

    async def close(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _forget(self) -> None:
        while True:
            try:
                if missing := await self._missing(self._cache.topics()):
                    await self._forget_where_unchanged(missing)
                return
            except KlammError as error:
                log.warning("metadata is not compared with ZooKeeper yet", reason=str(error))
            except Exception as error:  # what the cache says goes on; the next controller brings the next look
                self._on_unexpected_error("comparing metadata with ZooKeeper", error)
                return
            await asyncio.sleep(_RETRY_S)

    async def _forget_where_unchanged(self, missing: Iterable[str]) -> None:
        """Look once more, for what was told before that look: a topic may be made anew meanwhile, and be told of."""
        before = {t: list(self._cache.partitions(t).values()) for t in missing}
        for topic in await self._missing(before):
            now = list(self._cache.partitions(topic).values())
            if len(now) == len(before[topic]) and all(a is b for a, b in zip(now, before[topic], strict=True)):
                self._cache.forget_topic(topic)
                self._on_topic_gone(topic)
                log.info("topic forgotten: it is gone, and nobody told", topic=topic)

    async def _missing(self, topics: Iterable[str]) -> list[str]:
        """Of topics that were once told of, those that are gone by now."""
        asked = list(topics)
        store = self._store()
        await store.client.sync(znodes.TOPICS)
        there = frozenset(await store.list_topics())
        return [t for t in asked if t not in there]
