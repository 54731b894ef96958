"""Offsets in ZooKeeper, where consumers before 0.9 kept them; version 0 of OffsetCommit and OffsetFetch still does.

Source: KafkaZkClient.scala, ZkData.scala (ConsumerOffset, 3.9).
"""

from klamm.model.ids import TopicPartition
from klamm.zk.errors import NodeExists, NoNode
from klamm.zk.port import ZooKeeperClient
from klamm.zk.znodes import MalformedZnode, consumer_offset_path


class ConsumerOffsets:
    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client

    async def write_consumer_offset(self, group_id: str, partition: TopicPartition, offset: int) -> None:
        """Write the offset to the group's znode of the partition. Raises ZkError."""
        path, content = consumer_offset_path(group_id, partition), str(offset).encode()
        try:
            await self._client.set(path, content)
        except NoNode:
            await self._client.ensure_path(path.rpartition("/")[0])
            try:
                await self._client.create(path, content)
            except NodeExists:
                await self._client.set(path, content)

    async def read_consumer_offset(self, group_id: str, partition: TopicPartition) -> int | None:
        """Return the offset in the group's znode of the partition; None where it was never written.

        Raises ZkError, MalformedZnode.
        """
        path = consumer_offset_path(group_id, partition)
        try:
            content, _ = await self._client.get(path)
        except NoNode:
            return None
        try:
            return int(content or b"")
        except ValueError:
            raise MalformedZnode(path, reason=f"{content!r} is not an offset") from None
