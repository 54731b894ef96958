"""Changes of assignments that other clients may change, too. Source: KafkaZkClient.setTopicAssignmentRaw (3.9).

Kafka overwrites the znode with what it remembers. Here other partitions stay as they are read, and the write is guarded
by the version read, so that partitions added meanwhile are not lost.
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
"""Topic znodes that are read and written in one step."""
YIELD_ABOVE_PARTITIONS: Final = 500  # partitions
"""With more changed partitions than this, the loop runs other tasks between two topics."""


class AssignmentStore:
    """Fenced changes of topics' assignments."""

    def __init__(self, client: ZooKeeperClient, writer: FencedWriter) -> None:
        self._client = client
        self._writer = writer

    async def change(self, changes: Mapping[str, Changes], ids: Mapping[str, uuid.UUID | None]) -> dict[str, str]:
        """Write the given partitions of each topic; returns the reasons by topic for those not written.

        `ids` are the known topic ids, which a znode without one gets; a topic recreated under its name is not changed.
        """
        failed: dict[str, str] = {}
        for chunk in chunks(changes, TOPICS_AT_ONCE):
            waiting, is_first = chunk, True
            while waiting:
                waiting = await self._try_change({t: changes[t] for t in waiting}, ids, failed, is_first)
                is_first = False
        return failed

    async def _try_change(
        self,
        changes: Mapping[str, Changes],
        ids: Mapping[str, uuid.UUID | None],
        failed: dict[str, str],
        is_first: bool,
    ) -> list[str]:
        """Try once to write the partitions; returns the topics whose znode changed meanwhile.

        Where an earlier attempt was written although its answer was lost, that counts as written.
        """
        writes: dict[str, Set] = {}
        read = await self._client.get_many([znodes.topic_path(t) for t in changes])
        for (topic, partitions), result in zip(changes.items(), read, strict=True):
            if sum(len(c) for c in changes.values()) > YIELD_ABOVE_PARTITIONS:
                await asyncio.sleep(0)  # decoding and encoding holds the loop
            found = _decode_or_reason(topic, result)
            if isinstance(found, str):
                failed[topic] = found
                if result.code not in (ZkCode.OK, ZkCode.NO_NODE):
                    self._writer.add_refused(znodes.topic_path(topic))
            elif found.topic_id != ids[topic] and None not in (found.topic_id, ids[topic]):
                failed[topic] = "a newer topic has this name by now"
            elif is_first or _differs(found, partitions, ids[topic]):
                assert result.stat is not None
                payload = znodes.encode_topic(found.topic_id or ids[topic], {**found.partitions, **partitions})
                writes[topic] = Set(znodes.topic_path(topic), payload, result.stat.version)
        conflicted: list[str] = []
        refused: dict[str, str] = {}
        for topic, written in zip(writes, await self._writer.write(list(writes.values())), strict=True):
            if written.code is ZkCode.BAD_VERSION:
                conflicted.append(topic)
            elif written.code is not ZkCode.OK:
                refused[topic] = f"ZooKeeper answered {written.code.name}"
        for topic in await self._written_before_refusal({t: changes[t] for t in refused}, ids):
            del refused[topic]
        failed |= refused
        return conflicted

    async def _written_before_refusal(
        self, refused: Mapping[str, Changes], ids: Mapping[str, uuid.UUID | None]
    ) -> list[str]:
        """The topics whose change was refused although ZooKeeper has it.

        The connection may break after a write, and the client repeats it: of the two answers only the refusal arrives.
        """
        written: list[str] = []
        read = await self._client.get_many([znodes.topic_path(t) for t in refused]) if refused else []
        for (topic, partitions), result in zip(refused.items(), read, strict=True):
            found = _decode_or_reason(topic, result)
            if not isinstance(found, str) and found.topic_id == ids[topic] and not _differs(found, partitions, None):
                written.append(topic)
        return written


def _differs(found: TopicZnode, wanted: Changes, topic_id: uuid.UUID | None) -> bool:
    """Whether the znode lacks one of these assignments, or the topic id."""
    lacks_id = found.topic_id is None and topic_id is not None
    return lacks_id or any(found.partitions.get(n) != a for n, a in wanted.items())


def _decode_or_reason(topic: str, result: GetResult) -> TopicZnode | str:
    """The decoded topic znode, or the reason why it cannot be read."""
    if result.code is not ZkCode.OK:
        return "its znode is gone" if result.code is ZkCode.NO_NODE else f"ZooKeeper answered {result.code.name}"
    try:
        return znodes.decode_topic(topic, result.data)
    except MalformedZnode as error:
        return str(error)
