"""The client of one read: the brokers its options name, asked with its options' timeouts."""

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from klamm.client.backoff import Backoff
from klamm.client.blocking import BlockingClient, BlockingSettings
from klamm.client.leaders import OffsetAndEpoch
from klamm.client.offsets import LATEST, find_offsets, list_offsets
from klamm.client.steps import retried
from klamm.client.truncations import Truncation, find_truncations
from klamm.model.ids import TopicPartition
from klamm.runtime.blocking import BlockingWorld
from klamm.spark.options import ReadOptions
from klamm.spark.pool import ClientPool
from klamm.spark.ranges import OffsetRange
from klamm.spark.sizes import describe_sizes
from klamm.wire.messages import MetadataResponseTopic

MAX_CONNECT_S: Final = 1_000_000.0
"""For a connection to open: sockets refuse more than 2**31 - 1 ms."""


class ReadClient:
    def __init__(self, client: BlockingClient, options: ReadOptions) -> None:
        self.client = client
        self.cluster = client.cluster
        self.options = options

    @property
    def world(self) -> BlockingWorld:
        """Time and network of this process."""
        return self.client.world

    @property
    def topic_ids(self) -> dict[str, uuid.UUID]:
        """The ids that topics must have: others with their names count as gone."""
        return self.cluster.topic_ids

    @topic_ids.setter
    def topic_ids(self, topic_ids: dict[str, uuid.UUID]) -> None:
        """Set the ids that topics must have."""
        self.cluster.topic_ids = topic_ids

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster; None until a broker told it."""
        return self.cluster.cluster_id

    def close(self) -> None:
        """Close the connections."""
        self.client.close()

    def backoff(self, total_s: float) -> Backoff:
        """Return a backoff whose retries end after `total_s` seconds."""
        return Backoff(self.client.world.now_s, total_s, self.options.backoff_s, self.options.max_backoff_s)

    def topics(self, names: Collection[str] | None) -> dict[str, MetadataResponseTopic]:
        """Read the metadata of the named topics, or of all, in order of names; unknown ones have an error code.

        Raises Unreachable.
        """
        backoff = self.backoff(self.options.api_timeout_s)
        return self.client.run(retried("asking for metadata", lambda: self.cluster.refresh(names), backoff))

    def offsets(
        self, times: Mapping[TopicPartition, int], read_committed: bool | None = None
    ) -> dict[TopicPartition, int]:
        """The partitions' offsets for these times, see `list_offsets`.

        With `read_committed` None the isolation level is that of the options.
        """
        committed = self.options.read_committed if read_committed is None else read_committed
        backoff = self.backoff(self.options.api_timeout_s)
        return self.client.run(list_offsets(self.cluster, times, backoff, committed))

    def ends(
        self, partitions: Iterable[TopicPartition], read_committed: bool | None = None
    ) -> dict[TopicPartition, OffsetAndEpoch]:
        """The partitions' ends, with the epochs of the leaders whose logs end there; else as `offsets`."""
        committed = self.options.read_committed if read_committed is None else read_committed
        backoff = self.backoff(self.options.api_timeout_s)
        return self.client.run(find_offsets(self.cluster, dict.fromkeys(partitions, LATEST), backoff, committed))

    def see_epochs(self, epochs: Mapping[TopicPartition, int]) -> None:
        """Record leader epochs of the topics in `topic_ids`: leaders with older epochs are not used any more."""
        for partition, epoch in epochs.items():
            self.cluster.see_epoch(partition, epoch)

    def truncations(self, positions: Mapping[TopicPartition, OffsetAndEpoch]) -> Mapping[TopicPartition, Truncation]:
        """Which logs do not have the records before these positions any more, see `find_truncations`."""
        backoff = self.backoff(self.options.api_timeout_s)
        return self.client.run(find_truncations(self.cluster, positions, backoff))

    def sizes(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The stored bytes of these partitions, as their leaders say; partitions without an answer are left out."""
        return self.client.run(describe_sizes(self.cluster, partitions))

    def locate(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """The ranges as they are: all is fetched."""
        return list(ranges)


def settings_of(options: ReadOptions) -> BlockingSettings:
    """Return the client settings that follow from the options of the read."""
    return BlockingSettings(
        client_id=options.client_id,
        connect_timeout_s=min(options.connect_timeout_s, options.request_timeout_s, MAX_CONNECT_S),
        answer_timeout_s=options.request_timeout_s + options.fetch_wait_ms / 1000,
    )


@contextmanager
def read_client(world: BlockingWorld, options: ReadOptions, pool: ClientPool | None = None) -> Iterator[ReadClient]:
    """Yield a client for one read, from the pool or, with `pool` None, with connections that are closed at the end."""
    own = ClientPool()
    with (pool or own).lend(world, options.bootstrap, settings_of(options)) as client:
        yield ReadClient(client, options)
    own.close()
