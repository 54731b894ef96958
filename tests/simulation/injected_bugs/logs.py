"""Mutants that each remove a guard of logs, recovery or diverging fetches; see `replication_and_log.py`."""

from dataclasses import replace
from typing import Any, Final

from tests.simulation.injected_bugs.mutant import Mutant, Patch

from klamm.log.cleaner.latest_records import LatestRecords
from klamm.log.cleaner.offset_map import OffsetMap
from klamm.log.epochs import EpochEntry
from klamm.log.loader import Loader
from klamm.log.log import Log
from klamm.log.log_storage import LogStorage
from klamm.log.retention import RetentionLimits, expired_segment_count
from klamm.model.ids import BrokerId, TopicPartition
from klamm.replication import partition_reads
from klamm.replication.fetcher import Fetcher
from klamm.replication.fetcher_manager import FetcherManager, InitialFetchState
from klamm.replication.isr_changes import record_follower_fetch
from klamm.replication.partition_fetch_state import NO_EPOCH


def same_leader_not_compared(patch: Patch) -> None:
    """A follower that missed leader epochs compares nothing where the leader is the one that it knew."""
    add, leaders = FetcherManager.add, dict[tuple[int, TopicPartition], BrokerId]()

    def add_some(self: FetcherManager, following: dict[TopicPartition, InitialFetchState]) -> None:
        add(self, following)
        for tp, state in following.items():
            if leaders.get((id(self), tp)) == state.leader:
                for fetcher in self._fetchers.values():
                    if (followed := fetcher._followed.get(tp)) is not None:
                        followed.last_fetched_epoch = NO_EPOCH
                        fetcher._session.set_position(tp, followed.position())
            leaders[id(self), tp] = state.leader

    patch.setattr(FetcherManager, "add", add_some)


def diverging_fetch_counts(patch: Patch) -> None:
    """A leader takes the offset of a diverging fetch for what the follower has."""
    find = partition_reads._find_divergence

    def count_first(partition: Any, own_log: Log, epoch: int, offset: int) -> Any:
        for replica in partition.replicas.values():
            if find(partition, own_log, epoch, offset) is not None:
                record_follower_fetch(partition, replica, offset, own_log.start_offset, own_log.end_offset)
        return find(partition, own_log, epoch, offset)

    patch.setattr(partition_reads, "_find_divergence", count_first)


def high_watermark_before_divergence(patch: Patch) -> None:
    """A follower takes the leader's high watermark for its own before it has cut what diverged."""
    apply = Fetcher._apply_response

    async def apply_first(self: Fetcher, response: Any) -> None:
        for topic in response.responses:
            name = topic.topic or self._session.topic_name(topic.topic_id)
            for answer in topic.partitions:
                followed = self._followed.get(TopicPartition(name or "", answer.partition_index))
                if followed is not None and answer.diverging_epoch.end_offset >= 0 and followed.partition.log:
                    followed.partition.update_from_leader(answer.high_watermark, answer.log_start_offset)
        await apply(self, response)

    patch.setattr(Fetcher, "_apply_response", apply_first)


def retention_ignores_high_watermark(patch: Patch) -> None:
    """Retention deletes segments above the high watermark."""

    def count(segments: Any, end: int, limits: RetentionLimits) -> int:
        return expired_segment_count(segments, end, limits._replace(high_watermark=end))

    patch.setattr("klamm.log.log.expired_segment_count", count)


def every_shutdown_is_clean(patch: Patch) -> None:
    """After a crash the logs are loaded as after a clean shutdown: nothing is recovered."""
    init = Loader.__init__

    def begin(self: Any, *args: Any, **named: Any) -> None:
        init(self, *args, **named)
        self._known = replace(self._known, is_clean=True)

    patch.setattr(Loader, "__init__", begin)


def epoch_0_is_lost(patch: Patch) -> None:
    """A start forgets leader epoch 0."""
    stored = Loader._stored_epochs

    def without_0(self: Loader, segments: Any) -> list[EpochEntry] | None:
        entries = stored(self, segments)
        return None if entries is None else [entry for entry in entries if entry.epoch]

    patch.setattr(Loader, "_stored_epochs", without_0)


def io_errors_are_ignored(patch: Patch) -> None:
    """A log goes on after its device refused a call."""
    patch.setattr(LogStorage, "_report_failure", lambda self, error: None)


def diverged_follower_halts(patch: Patch) -> None:
    """A follower whose log diverged from the leader's stops to fetch instead of truncating."""

    async def halt(self: Fetcher, topic_partition: TopicPartition, _followed: object, _leader: object) -> None:
        self._stop_fetching(topic_partition)

    patch.setattr(Fetcher, "_truncate_diverged", halt)


def newest_values_compacted_away(patch: Patch) -> None:
    """The cleaner takes the newest record of a key for an older one."""
    get = OffsetMap.get

    def one_too_many(self: OffsetMap, hashes: Any) -> Any:
        found = get(self, hashes)
        return found + (found >= 0)

    patch.setattr(OffsetMap, "get", one_too_many)
    create = LatestRecords.__init__
    patch.setattr(LatestRecords, "__init__", lambda self, marks: create(self, marks + 2))  # one offset is two marks


MUTANTS: Final = (
    Mutant(
        "47", "KAFKA-7164", "missed epochs of the same leader are not compared", same_leader_not_compared, (63, 58, 42)
    ),
    Mutant("51", "KAFKA-13141", "a diverging fetch advances the follower", diverging_fetch_counts, (58, 61, 63, 74)),
    Mutant(
        "52", "KAFKA-14704", "the high watermark comes before the cut", high_watermark_before_divergence, (49, 58, 61)
    ),
    Mutant("54", "KAFKA-5634", "retention deletes above the high watermark", retention_ignores_high_watermark, (68,)),
    Mutant("56", "KAFKA-10471", "a crash counts as a clean shutdown", every_shutdown_is_clean, (70, 65)),
    Mutant("57", "KAFKA-10432", "leader epoch 0 is lost at a start", epoch_0_is_lost, (64, 65)),
    Mutant("58", "KAFKA-10778", "a log is written after an I/O error", io_errors_are_ignored, (72,)),
    Mutant("cl", "", "compaction removes the newest value", newest_values_compacted_away, (48,)),
    Mutant("59", "KAFKA-3924", "a diverged follower stops", diverged_follower_halts, (42, 41, 64)),
)
