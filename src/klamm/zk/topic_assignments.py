"""Changing assignments that others may change, too. Source: KafkaZkClient.setTopicAssignmentRaw (3.9).

Kafka writes what it remembers over whatever is there; here what nobody asked to change stays as it is read, and the
version read guards the write: partitions that somebody added meanwhile are not lost.
"""

import asyncio
import uuid
from collections.abc import Mapping
from typing import Final

from klamm.model.assignment import ReplicaAssignment
from klamm.zk import znodes
from klamm.zk.errors import ZkCode
from klamm.zk.fenced import FencedWriter, chunks
from klamm.zk.operations import GetResult, Set
from klamm.zk.port import ZooKeeperClient
from klamm.zk.znodes import MalformedZnode, TopicZnode

Changes = Mapping[int, ReplicaAssignment]

TOPICS_AT_ONCE: Final = 50
REST_AFTER: Final = 500  # partitions


class AssignmentStore:
    """Fenced changes of topics' assignments."""

    def __init__(self, client: ZooKeeperClient, writer: FencedWriter) -> None:
        self._client = client
        self._writer = writer

    async def change(self, changes: Mapping[str, Changes], ids: Mapping[str, uuid.UUID | None]) -> dict[str, str]:
        """Write the given partitions of each topic; why not, by topic, for those that were not written.

        `ids` are the topics as they are known: one deleted and created anew under its name is left alone.
        """
        failed: dict[str, str] = {}
        for chunk in chunks(changes, TOPICS_AT_ONCE):
            waiting, is_first = chunk, True
            while waiting:
                waiting = await self._change({t: changes[t] for t in waiting}, ids, failed, is_first)
                is_first = False
        return failed

    async def _change(
        self,
        changes: Mapping[str, Changes],
        ids: Mapping[str, uuid.UUID | None],
        failed: dict[str, str],
        is_first: bool,
    ) -> list[str]:
        """One attempt; the topics that moved under us. What is there at a second one may be our own write."""
        writes: dict[str, Set] = {}
        read = await self._client.get_many([znodes.topic_path(t) for t in changes])
        for (topic, partitions), result in zip(changes.items(), read, strict=True):
            if sum(len(c) for c in changes.values()) > REST_AFTER:
                await asyncio.sleep(0)  # decoding and encoding holds the loop
            found = _decoded(topic, result)
            if isinstance(found, str):
                failed[topic] = found
            elif found.topic_id != ids[topic] and None not in (found.topic_id, ids[topic]):
                failed[topic] = "another topic has its name by now"
            elif is_first or any(found.partitions.get(n) != a for n, a in partitions.items()):
                assert result.stat is not None
                payload = znodes.encode_topic(found.topic_id or ids[topic], {**found.partitions, **partitions})
                writes[topic] = Set(znodes.topic_path(topic), payload, result.stat.version)
        conflicted: list[str] = []
        for topic, written in zip(writes, await self._writer.write(list(writes.values())), strict=True):
            if written.code is ZkCode.BAD_VERSION:
                conflicted.append(topic)
            elif written.code is not ZkCode.OK:
                failed[topic] = f"ZooKeeper: {written.code.name}"
        return conflicted


def _decoded(topic: str, result: GetResult) -> TopicZnode | str:
    if result.code is not ZkCode.OK:
        return "its znode is gone" if result.code is ZkCode.NO_NODE else f"ZooKeeper: {result.code.name}"
    try:
        return znodes.decode_topic(topic, result.data)
    except MalformedZnode as error:
        return str(error)
