"""All fetchers of a broker: one task per leader and fetcher id. Source: AbstractFetcherManager.scala."""

import asyncio
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from klamm.model.ids import BrokerId, TopicPartition
from klamm.replication.fetch_session_client import FetchSettings
from klamm.replication.fetcher import Fetcher
from klamm.replication.leader_end_point import Connect, LeaderEndPoint
from klamm.replication.partition import Partition
from klamm.replication.ports import MetadataPort
from klamm.replication.quota import ReplicationQuota


class InitialFetchState(NamedTuple):
    """The leader to fetch a partition from, and its leader epoch."""

    partition: Partition
    leader: BrokerId
    leader_epoch: int


class FetcherManager:
    """Starts, stops and fills the fetchers of a broker."""

    def __init__(
        self,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        metadata: MetadataPort,
        connect: Connect,
        settings: FetchSettings,
        quota: ReplicationQuota,
        *,
        fetchers_per_leader: int = 1,
        backoff_ms: int = 1_000,
        socket_timeout_ms: int = 30_000,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._metadata = metadata
        self._connect = connect
        self._settings = settings
        self._quota = quota
        self._per_leader = fetchers_per_leader
        self._backoff_s = backoff_ms / 1000
        self._timeout_s = socket_timeout_ms / 1000
        self._fetchers: dict[tuple[BrokerId, int], Fetcher] = {}
        self._tasks: dict[tuple[BrokerId, int], asyncio.Task[None]] = {}
        self._ending: dict[asyncio.Task[None], None] = {}
        """In order: a set of tasks would give them in that of their addresses."""
        self._admits = True

    def __len__(self) -> int:
        return len(self._fetchers)

    @property
    def failed(self) -> set[TopicPartition]:
        """Partitions that are not fetched until the next LeaderAndIsr, after an error or a fenced epoch."""
        return {tp for fetcher in self._fetchers.values() for tp in fetcher.failed}

    def leader_of(self, topic_partition: TopicPartition) -> BrokerId | None:
        """The broker from which this partition is fetched; None where it is not fetched."""
        return next((leader for (leader, _), f in self._fetchers.items() if topic_partition in f), None)

    def add(self, following: Mapping[TopicPartition, InitialFetchState]) -> None:
        """Fetch each partition from its leader, in the fetcher that its hash selects."""
        if not self._admits:
            return
        for topic_partition, (partition, leader, leader_epoch) in following.items():
            key = leader, fetcher_id(topic_partition, self._per_leader)
            fetcher = self._fetchers.get(key)
            if fetcher is None:  # one without partitions is false, and runs
                fetcher = self._start_fetcher(key)
            fetcher.add(topic_partition, partition, leader_epoch)

    def remove(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching these partitions."""
        for topic_partition in topic_partitions:
            for fetcher in self._fetchers.values():
                fetcher.remove(topic_partition)

    def set_topic_id(self, topic_partition: TopicPartition, topic_id: uuid.UUID) -> None:
        """Fetch the partition by this topic id from now on."""
        for fetcher in self._fetchers.values():
            fetcher.set_topic_id(topic_partition, topic_id)

    def stop_idle(self) -> None:
        """Stop the fetchers that have no partition left, also those whose partitions all failed."""
        for key, fetcher in list(self._fetchers.items()):
            if not len(fetcher):
                self._stop_fetcher(key)

    def refuse_new_partitions(self) -> None:
        """Make `add` do nothing: a broker in controlled shutdown must not rejoin the ISRs of new leaders."""
        self._admits = False

    async def close(self) -> None:
        """Stop all fetchers, wait until they have ended, and start no more."""
        self._admits = False
        for key in list(self._fetchers):
            self._stop_fetcher(key)
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _start_fetcher(self, key: tuple[BrokerId, int]) -> Fetcher:
        """Create the fetcher of this leader and fetcher id, and start its task."""
        leader, number = key
        client_id = f"broker-{self._broker_id}-fetcher-{number}"
        end_point = LeaderEndPoint(self._broker_id, leader, client_id, self._metadata, self._connect, self._timeout_s)
        fetcher = Fetcher(end_point, self._settings, self._broker_epoch, self._backoff_s, self._quota)
        self._fetchers[key] = fetcher
        self._tasks[key] = asyncio.get_running_loop().create_task(fetcher.run(), name=f"fetcher-{leader}-{number}")
        return fetcher

    def _stop_fetcher(self, key: tuple[BrokerId, int]) -> None:
        """Remove a fetcher and cancel its task."""
        del self._fetchers[key]
        task = self._tasks.pop(key)
        self._ending[task] = None
        task.add_done_callback(self._ending.pop)
        task.cancel()


def fetcher_id(topic_partition: TopicPartition, count: int) -> int:
    """The number of the fetcher for the partition among those of its leader, chosen by hash as in Kafka."""
    if count == 1:
        return 0
    spread = _int32(31 * _java_hash(topic_partition.topic) + topic_partition.partition)
    return (0 if spread == -(2**31) else abs(spread)) % count


def _java_hash(text: str) -> int:
    """Return what Java's `String.hashCode` returns."""
    units = memoryview(text.encode("utf-16-be")).cast("B")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return _int32(value)


def _int32(value: int) -> int:
    """The value wrapped to a signed 32-bit integer, as Java arithmetic does."""
    value &= 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value
