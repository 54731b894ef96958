"""What all partitions of a broker share."""

from collections.abc import Callable
from dataclasses import dataclass

from klamm.model.ids import BrokerId, TopicPartition
from klamm.replication.ports import AlterPartitionPort, MetadataPort
from klamm.replication.purgatory import Purgatory


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Handed to each partition; `now_ms` is the event loop's time."""

    broker_id: BrokerId
    metadata: MetadataPort
    alter_partition: AlterPartitionPort
    produces: Purgatory[TopicPartition]
    now_ms: Callable[[], float]
    lag_time_max_ms: int = 30_000
