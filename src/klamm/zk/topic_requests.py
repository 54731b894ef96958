"""Topic administration in ZooKeeper by any node, without a fence.

Source: AdminZkClient.deleteTopic, createPartitionsWithAssignment (3.9).
"""

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from klamm.model.assignment import assignment_of
from klamm.zk import znodes
from klamm.zk.errors import BadVersion, NodeExists, NoNode, ZkCode, error_of
from klamm.zk.fenced import chunks
from klamm.zk.operations import Create
from klamm.zk.port import ZooKeeperClient
from klamm.zk.znodes import TopicZnode

REQUESTS_AT_ONCE = 500
"""Deletion requests in one multi."""


class DeletionsRequested(NamedTuple):
    """The topics for which no new deletion request was made."""

    missing: Set[str]
    """Topics that do not exist."""
    marked_before: Set[str]
    """Topics whose deletion was requested before."""


class TopicRequestStore:
    """Deletion requests and added partitions."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client

    async def request_deletions(self, topics: Sequence[str]) -> DeletionsRequested:
        """Request the deletion of these topics, in few multis. Raises ZkError."""
        missing: set[str] = set()
        marked_before: set[str] = set()
        for chunk in chunks(topics, REQUESTS_AT_ONCE):
            there = await self._client.exists_many([znodes.topic_path(t) for t in chunk])
            existing = [t for t, stat in zip(chunk, there, strict=True) if stat is not None]
            missing.update(t for t, stat in zip(chunk, there, strict=True) if stat is None)
            marked = await self._client.exists_many([znodes.delete_topic_path(t) for t in existing])
            marked_before.update(t for t, stat in zip(existing, marked, strict=True) if stat is not None)
            await self._mark([t for t, stat in zip(existing, marked, strict=True) if stat is None])
        return DeletionsRequested(missing, marked_before)

    async def _mark(self, topics: Sequence[str]) -> None:
        """Create the deletion requests of these topics, in one multi if possible."""
        if len(topics) <= 1:
            await self._mark_singly(topics)
            return
        results = await self._client.multi([Create(znodes.delete_topic_path(t)) for t in topics])
        failed = next((r.code for r in results if r.code not in (ZkCode.OK, ZkCode.RUNTIME_INCONSISTENCY)), None)
        if failed is ZkCode.NODE_EXISTS:
            await self._mark_singly(topics)
        elif failed is not None:
            raise error_of(failed, znodes.DELETE_TOPICS)

    async def _mark_singly(self, topics: Sequence[str]) -> None:
        """Create deletion requests one by one, because another client creates some of them at the same time."""
        for topic in topics:
            try:
                await self._client.create(znodes.delete_topic_path(topic), None)
            except NodeExists:
                continue

    async def read(self, topic: str) -> tuple[TopicZnode, int] | None:
        """The topic and the version of its znode; None if there is none. Raises MalformedZnode."""
        [read] = await self._client.get_many([znodes.topic_path(topic)])
        if read.code is ZkCode.NO_NODE:
            return None
        if read.code is not ZkCode.OK or read.stat is None:
            raise error_of(read.code, read.path)
        return znodes.decode_topic(topic, read.data), read.stat.version

    async def add_partitions(
        self, topic: str, now: TopicZnode, added: Mapping[int, Sequence[int]], version: int
    ) -> bool:
        """Add partitions to a topic as it was read; false if it changed since, or was deleted.

        Where the answer to an earlier attempt was lost, its repetition is refused although the partitions were added.
        """
        grown = {n: assignment_of(tuple(r)) for n, r in added.items()}
        payload = znodes.encode_topic(now.topic_id, {**now.partitions, **grown})
        try:
            await self._client.set(znodes.topic_path(topic), payload, version)
        except NoNode:
            return False
        except BadVersion:
            there = await self.read(topic)
            return there is not None and all(there[0].partitions.get(n) == replicas for n, replicas in grown.items())
        return True
