"""Which replicas this broker hosts, and how many of them are healthy. Source: ReplicaManager.scala (3.9)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.replication.context import ReplicationContext
from klamm.replication.partition import Partition
from klamm.replication.ports import MetadataPort, PartitionRefused


class HostedPartitions:
    """The partitions that this broker hosts; each is online, or offline because its log directory failed."""

    def __init__(self, context: ReplicationContext) -> None:
        self._context = context
        self._online: dict[TopicPartition, Partition] = {}
        self._offline: set[TopicPartition] = set()
        self.on_offline: Callable[[Sequence[TopicPartition]], None] = lambda topic_partitions: None
        """Called after partitions went offline; must not raise."""

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._online.values()))

    def __len__(self) -> int:
        return len(self._online)

    @property
    def metadata(self) -> MetadataPort:
        """The metadata cache of the broker."""
        return self._context.metadata

    @property
    def offline(self) -> frozenset[TopicPartition]:
        """The partitions whose log directory has failed."""
        return frozenset(self._offline)

    def get(self, topic_partition: TopicPartition) -> Partition | None:
        """The online partition, or None."""
        return self._online.get(topic_partition)

    def is_offline(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition is hosted on a failed log directory."""
        return topic_partition in self._offline

    def find(self, topic_partition: TopicPartition) -> Partition:
        """The online partition. Raises PartitionRefused with the code of `absence_error`."""
        partition = self._online.get(topic_partition)
        if partition is not None:
            return partition
        raise PartitionRefused(self.absence_error(topic_partition), f"{topic_partition} is not served by this broker")

    def absence_error(self, topic_partition: TopicPartition) -> ErrorCode:
        """The error code for a partition that is not hosted online here.

        KAFKA_STORAGE_ERROR if it is offline, NOT_LEADER_OR_FOLLOWER if another broker has it,
        UNKNOWN_TOPIC_OR_PARTITION otherwise.
        """
        if topic_partition in self._offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.metadata.contains(topic_partition):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def create(self, topic_partition: TopicPartition) -> Partition:
        """Create a hosted partition, which is online, and return it."""
        partition = self._online[topic_partition] = Partition(topic_partition, self._context)
        return partition

    def remove(self, topic_partition: TopicPartition) -> Partition | None:
        """Stop hosting the partition; requests that wait on it are answered."""
        self._offline.discard(topic_partition)
        partition = self._online.pop(topic_partition, None)
        if partition is not None:
            partition.stop_hosting()
        return partition

    def set_offline(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """Mark partitions as offline after their log directory failed: requests get KAFKA_STORAGE_ERROR."""
        for topic_partition in topic_partitions:
            self._offline.add(topic_partition)
            partition = self._online.pop(topic_partition, None)
            if partition is not None:
                partition.stop_hosting()
        self.on_offline(topic_partitions)


@dataclass(slots=True)
class PartitionHealth:
    """Counts of the partitions hosted here; those from `led` on count only partitions led here.

    A transaction without a batch since `late_before_ms` is late.
    """

    late_before_ms: int = 0
    hosted: int = 0
    producer_ids: int = 0
    led: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    reassigning: int = 0
    with_late_transactions: int = 0

    def add(self, partition: Partition) -> None:
        """Count the partition, its producers, and what is wrong with it."""
        self.hosted += 1
        if partition.log is None:
            return
        self.producer_ids += len(partition.log.producers)
        if not partition.is_leader:
            return
        oldest_ms = partition.log.producers.oldest_transaction_ms
        self.with_late_transactions += oldest_ms is not None and oldest_ms < self.late_before_ms
        in_sync = len(partition.isr_state.isr)
        self.led += 1
        self.under_replicated += in_sync < len(partition.assignment.origin)
        self.under_min_isr += in_sync < partition.effective_min_isr
        self.at_min_isr += in_sync == partition.effective_min_isr
        self.reassigning += partition.assignment.is_being_reassigned
