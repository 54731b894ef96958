"""Shared objects and counters that all partitions of a broker use."""

from collections.abc import Callable
from dataclasses import dataclass, field

from klamm.model.ids import BrokerId, TopicPartition
from klamm.replication.ports import AlterPartitionPort, MetadataPort
from klamm.replication.purgatory import Purgatory
from klamm.replication.quota import ReplicationQuota


@dataclass(slots=True)
class Counts:
    """Counters of the broker's partitions since it started."""

    isr_shrinks: int = 0
    isr_expands: int = 0
    failed_isr_updates: int = 0
    bytes_in: int = 0
    messages_in: int = 0


@dataclass(frozen=True, slots=True)
class ReplicationContext:
    """Shared by all partitions of a broker; `now_ms` is the event loop's time."""

    broker_id: BrokerId
    metadata: MetadataPort
    alter_partition: AlterPartitionPort
    produces: Purgatory[TopicPartition]
    deletes: Purgatory[TopicPartition]
    now_ms: Callable[[], float]
    leader_quota: ReplicationQuota
    lag_time_max_ms: int = 30_000
    counts: Counts = field(default_factory=Counts)
