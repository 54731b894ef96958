"""What planning asks of where the records are: brokers or log directories."""

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from klamm.client.backoff import Backoff
from klamm.client.leaders import OffsetAndEpoch
from klamm.client.truncations import Truncation
from klamm.model.ids import TopicPartition
from klamm.runtime.blocking import BlockingWorld
from klamm.spark.options import ReadOptions
from klamm.spark.ranges import OffsetRange
from klamm.wire.messages import MetadataResponseTopic


class Transport(Protocol):
    options: ReadOptions
    topic_ids: dict[str, uuid.UUID]
    """The ids that topics must have: others with their names count as gone."""

    @property
    def world(self) -> BlockingWorld:
        """Time and network of this process."""
        ...

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster; None where it is not known."""
        ...

    def backoff(self, total_s: float) -> Backoff:
        """Return a backoff whose retries end after `total_s` seconds."""
        ...

    def topics(self, names: Collection[str] | None) -> dict[str, MetadataResponseTopic]:
        """The named topics, or all, in order of names; unknown ones have an error code."""
        ...

    def offsets(
        self, times: Mapping[TopicPartition, int], read_committed: bool | None = None
    ) -> dict[TopicPartition, int]:
        """The partitions' offsets for these times, see `klamm.client.offsets.list_offsets`. Raises TopicGone."""
        ...

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndEpoch]:
        """The partitions' ends, with the epochs of the leaders whose logs end there. Raises TopicGone."""
        ...

    def see_epochs(self, epochs: Mapping[TopicPartition, int]) -> None:
        """Ask no leader of an older epoch than these any more."""
        ...

    def truncations(self, positions: Mapping[TopicPartition, OffsetAndEpoch]) -> Mapping[TopicPartition, Truncation]:
        """Which logs do not have the records before these positions any more. Raises TopicGone."""
        ...

    def sizes(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The stored bytes of these partitions; those of which they are not known are left out."""
        ...

    def locate(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """The same offsets, with the replica in whose files each part is to be read, if not from brokers."""
        ...

    def close(self) -> None:
        """Close the connections."""
