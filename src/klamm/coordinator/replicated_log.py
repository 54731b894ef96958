"""The topic of a coordinator on this broker's replicas."""

from collections.abc import Awaitable, Callable

from klamm.coordinator.topic_partitions import Appended, LogBounds
from klamm.log.file_slice import FileSlice
from klamm.log.producers import Origin
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.replication.ports import PartitionRefused
from klamm.replication.replica_manager import ReplicaManager
from klamm.runtime.disk import Buffer


class ReplicatedLog:
    def __init__(
        self, replicas: ReplicaManager, topic: str, confirm_leadership: Callable[[TopicPartition], Awaitable[bool]]
    ) -> None:
        self._topic = topic
        self._replicas = replicas
        self._confirm_leadership = confirm_leadership

    async def append(self, partition: int, batch: bytes, acks: int, timeout_ms: int) -> Appended:
        """Append the batch to the partition, which this broker leads, and wait for replication as `acks` requires.

        The result has the error and the base offset.
        """
        topic_partition = TopicPartition(self._topic, partition)
        results = await self._replicas.append(acks, timeout_ms, {topic_partition: batch}, Origin.COORDINATOR)
        result = results[topic_partition]
        return Appended(result.error, result.base_offset)

    def bounds(self, partition: int) -> LogBounds | None:
        """Return log start and end offset of the partition; None where this broker does not lead it."""
        hosted = self._replicas.partition(TopicPartition(self._topic, partition))
        if hosted is None or not hosted.is_leader or hosted.log is None:
            return None
        return LogBounds(hosted.log.start_offset, hosted.log.end_offset)

    def max_batch_bytes(self, partition: int) -> int:
        """Return `max.message.bytes` of the topic; 0 where this broker has no replica of the partition."""
        hosted = self._replicas.partition(TopicPartition(self._topic, partition))
        return 0 if hosted is None or hosted.log is None else hosted.log.config.max_message_bytes

    async def confirm_leadership(self, partition: int) -> bool:
        """Whether it is certain that no other broker had become leader of the partition when this was called."""
        return await self._confirm_leadership(TopicPartition(self._topic, partition))

    async def read(self, partition: int, offset: int, max_bytes: int) -> Buffer:
        """Return the batches from `offset` on, at most `max_bytes` but at least one batch.

        Raises PartitionRefused where this broker does not lead the partition.
        """
        topic_partition = TopicPartition(self._topic, partition)
        hosted = self._replicas.partition(topic_partition)
        if hosted is None:
            raise PartitionRefused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic_partition} is not led by this broker")
        own_log = hosted.leader_log
        found = own_log.slice(offset, max_bytes, own_log.end_offset, min_one_message=True).records
        return await found.read(0, len(found)) if isinstance(found, FileSlice) else found
