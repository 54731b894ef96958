"""Topic administration in ZooKeeper by any node, without a fence.

Source: AdminZkClient.deleteTopic, createPartitionsWithAssignment (3.9).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from klamm.model.assignment import ReplicaAssignment
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

    missing: Collection[str]
    """Topics that do not exist."""
    marked_before: Collection[str]
    """Topics whose deletion was requested before."""


class TopicRequestStore:
    """Deletion requests and added partitions."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client

    async def request_deletions(self, topics: Sequence[str]) -> DeletionsRequested:
        """Request the deletion of these topics, in few multis. Raises ZkError."""
        there = await self._client.exists_many([znodes.topic_path(t) for t in topics])
        missing = [t for t, stat in zip(topics, there, strict=True) if stat is None]
        existing = [t for t, stat in zip(topics, there, strict=True) if stat is not None]
        marked = await self._client.exists_many([znodes.delete_topic_path(t) for t in existing])
        new = [t for t, stat in zip(existing, marked, strict=True) if stat is None]
        for chunk in chunks(new, REQUESTS_AT_ONCE):
            if len(chunk) == 1:
                await self._mark_singly(chunk)
                continue
            results = await self._client.multi([Create(znodes.delete_topic_path(t)) for t in chunk])
            failed = next((r.code for r in results if r.code not in (ZkCode.OK, ZkCode.RUNTIME_INCONSISTENCY)), None)
            if failed is ZkCode.NODE_EXISTS:
                await self._mark_singly(chunk)
            elif failed is not None:
                raise error_of(failed, znodes.DELETE_TOPICS)
        return DeletionsRequested(missing, {t for t in existing if t not in new})

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
        """Add partitions to a topic as it was read; false if it changed since, or was deleted."""
        grown = {n: ReplicaAssignment(tuple(r)) for n, r in added.items()}  # type: ignore[arg-type]
        payload = znodes.encode_topic(now.topic_id, {**now.partitions, **grown})
        try:
            await self._client.set(znodes.topic_path(topic), payload, version)
        except (BadVersion, NoNode):
            return False
        return True
