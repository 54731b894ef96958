"""Mutants of throttles, copies, damaged records, sizes of fetches and metrics: a cluster at rest shows them."""

from collections.abc import Iterator
from typing import Final

from tests.simulation.injected_bugs.mutant import Mutant, Patch

from klamm.log.log import Log
from klamm.model.ids import TopicPartition
from klamm.replication import appending, partition_reads
from klamm.replication.fetch_data import FetchData, FetchParams
from klamm.replication.fetch_sessions import FetchAnswer, FetchContext, IncrementalFetch, must_send
from klamm.replication.fetch_waiter import CachedPartition
from klamm.replication.fetcher import Fetcher
from klamm.replication.fetching import FetchService, ReadOutcome
from klamm.replication.hosted_partitions import PartitionHealth
from klamm.replication.log_dir_moves import LogDirMoves
from klamm.replication.partition import Partition
from klamm.replication.record_repair import RecordRepair
from klamm.replication.replica import RemoteReplica
from klamm.runtime.disk import Buffer


def sent_bytes_are_not_counted(patch: Patch) -> None:
    """What a leader sends to throttled followers does not count."""
    patch.setattr(FetchService, "_count_throttled_bytes", lambda self, answer: None)


def throttled_followers_fetch_on(patch: Patch) -> None:
    """A follower fetches on, whatever its limit says."""
    patch.setattr(Fetcher, "_delay_throttled", lambda self: None)


def moves_are_not_limited(patch: Patch) -> None:
    """What is copied between log directories does not count."""
    begin = LogDirMoves.start

    def start(self: LogDirMoves) -> None:
        self._quota.record = lambda size: None  # type: ignore[method-assign]
        begin(self)

    patch.setattr(LogDirMoves, "start", start)


def copies_begin_at_the_log_start(patch: Patch) -> None:
    """A new replica refuses a batch that begins before the log start of its leader."""

    def append(self: Partition, records: Buffer) -> None:
        self.hosted_log.append_as_follower(records)

    patch.setattr(Partition, "append_as_follower", append)


def damaged_records_are_sent(patch: Patch) -> None:
    """Nobody compares records with their checksums before they are sent."""

    async def unchecked(self: FetchService, answer: FetchAnswer, params: FetchParams) -> FetchAnswer:
        return answer

    patch.setattr(FetchService, "_without_damage", unchecked)


def damaged_records_stay(patch: Patch) -> None:
    """Damage is found, and nobody repairs it."""

    def ignore(self: RecordRepair, damaged: Log) -> None:
        return

    patch.setattr(RecordRepair, "on_damage", ignore)


def partitions_take_no_turns(patch: Patch) -> None:
    """A partition with records stays the first of its session."""

    def record(
        self: IncrementalFetch,
        results: dict[CachedPartition, FetchData],
        changed: list[tuple[CachedPartition, FetchData]],
    ) -> Iterator[None]:
        for cached, data in results.items():
            if must_send(cached, data):
                changed.append((cached, data))
                cached.sent_high_watermark, cached.sent_log_start_offset = data.high_watermark, data.log_start_offset
                if data.records:
                    later = [other for other in self.waiter.changed if other is not cached]
                    self.waiter.changed = dict.fromkeys([cached, *later])
            yield

    patch.setattr(IncrementalFetch, "_record_changed", record)


def fetches_do_not_wait(patch: Patch) -> None:
    """A fetch is answered at once, whatever it wants to wait for."""

    def wait(self: FetchService, params: FetchParams, context: FetchContext, outcome: ReadOutcome) -> bool:
        return params.is_follower and outcome.size < params.min_bytes and not outcome.is_urgent

    patch.setattr(FetchService, "_has_to_wait", wait)


def one_fetcher_has_all(patch: Patch) -> None:
    """All partitions of a leader are fetched by one fetcher."""

    def first(topic_partition: TopicPartition, count: int) -> int:
        return 0

    patch.setattr("klamm.replication.fetcher_manager.fetcher_id", first)


def followers_count_as_leaders(patch: Patch) -> None:
    """LeaderCount counts each partition that is hosted."""
    add = PartitionHealth.add

    def add_leader(self: PartitionHealth, partition: Partition) -> None:
        add(self, partition)
        self.led += not partition.is_leader

    patch.setattr(PartitionHealth, "add", add_leader)


def any_acks_are_valid(patch: Patch) -> None:
    """acks=2 is taken for acks=1."""
    patch.setattr(appending, "VALID_ACKS", (-1, 0, 1, 2))


def followers_in_sync_are_throttled(patch: Patch) -> None:
    """The throttle holds back records of followers that are in sync, too."""

    def throttled(partition: Partition, replica: RemoteReplica) -> bool:
        quota = partition.context.leader_quota
        return quota.is_on and quota.covers(partition.topic_partition) and quota.is_exceeded()

    patch.setattr(partition_reads, "_is_throttled", throttled)


def new_epochs_wake_no_follower(patch: Patch) -> None:
    """A follower learns of a new leader epoch when its fetch that was under way is over."""
    patch.setattr(FetchService, "on_leader_epochs_begun", lambda self, partitions: None)


MUTANTS: Final = (
    Mutant("y1", "KIP-73", "sent bytes are not counted", sent_bytes_are_not_counted, (82,)),
    Mutant("y2", "KIP-73", "throttled followers fetch on", throttled_followers_fetch_on, (82,)),
    Mutant("y3", "KIP-113", "moves are not limited", moves_are_not_limited, (82,)),
    Mutant("y4", "KIP-107", "copies begin at the log start", copies_begin_at_the_log_start, (82,)),
    Mutant("y5", "", "damaged records are sent", damaged_records_are_sent, (82,)),
    Mutant("y6", "", "damaged records stay", damaged_records_stay, (82,)),
    Mutant("y7", "KAFKA-12330", "partitions take no turns", partitions_take_no_turns, (82,)),
    Mutant("y8", "", "fetches do not wait", fetches_do_not_wait, (82,)),
    Mutant("y9", "", "one fetcher has all partitions", one_fetcher_has_all, (67,)),
    Mutant("y10", "", "followers count as leaders", followers_count_as_leaders, (80,)),
    Mutant("y11", "", "any acks are valid", any_acks_are_valid, (82,)),
    Mutant("y12", "KIP-73", "followers in sync are throttled", followers_in_sync_are_throttled, (82,)),
    Mutant("y13", "", "new epochs wake no follower", new_epochs_wake_no_follower, (82,)),
)
