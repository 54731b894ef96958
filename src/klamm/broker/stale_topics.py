"""Removing deleted topics from the metadata cache after a change of controller.

A controller tells all brokers of a deletion by UpdateMetadata, and deletes the topic's znodes when the replicas are
gone. Where it crashes before that request reached a broker without a replica, the next controller does not know that
the topic existed. Apache Kafka's brokers list such a topic until they are restarted.
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

_RETRY_BACKOFF_S: Final = 1.0
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

        `on_topic_gone` gets each topic that is removed; it must not raise.
        """
        self._cache = cache
        self._store = store
        self._on_topic_gone = on_topic_gone
        self._on_unexpected_error = on_unexpected_error
        self._epoch = -1
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def metadata_updated(self) -> None:
        """Start a check at the first UpdateMetadata of each controller epoch; call it after each one, until `close`."""
        if self._cache.controller_epoch <= self._epoch or self._closed:
            return
        self._epoch = self._cache.controller_epoch
        if self._task is not None:
            self._task.cancel()  # the new check covers it
        self._task = asyncio.get_running_loop().create_task(self._remove_deleted(), name="forgotten-topics")

    async def close(self) -> None:
        """Stop the check of stale topics."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _remove_deleted(self) -> None:
        """Remove the topics that ZooKeeper no longer has from the metadata; retried while ZooKeeper does not answer."""
        while True:
            try:
                if missing := await self._deleted_topics(self._cache.topics()):
                    await self._remove_unchanged(missing)
                return
            except KlammError as error:
                log.warning("cannot compare the metadata with ZooKeeper; retrying", reason=str(error))
            except Exception as error:  # the cache stays as it is until the next controller's first request
                self._on_unexpected_error("comparing metadata with ZooKeeper", error)
                return
            await asyncio.sleep(_RETRY_BACKOFF_S)

    async def _remove_unchanged(self, missing: Iterable[str]) -> None:
        """Remove topics still missing in a second read.

        One whose metadata changed in between may have been recreated, and stays.
        """
        before = {t: list(self._cache.partitions(t).values()) for t in missing}
        for topic in await self._deleted_topics(before):
            now = list(self._cache.partitions(topic).values())
            if len(now) == len(before[topic]) and all(a is b for a, b in zip(now, before[topic], strict=True)):
                self._cache.forget_topic(topic)
                self._on_topic_gone(topic)
                log.info("topic removed from the metadata: it is deleted in ZooKeeper", topic=topic)

    async def _deleted_topics(self, topics: Iterable[str]) -> list[str]:
        """Those of the topics that ZooKeeper no longer has."""
        asked = list(topics)
        store = self._store()
        await store.sync(znodes.TOPICS)
        there = frozenset(await store.list_topics())
        return [t for t in asked if t not in there]
