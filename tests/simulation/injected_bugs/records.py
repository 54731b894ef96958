"""Mutants of compaction with tombstones, moves between log directories, DeleteRecords and ListOffsets."""

from typing import Any, Final

import numpy as np
from tests.simulation.injected_bugs.mutant import Mutant, Patch

from klamm.config.topic_config import TopicConfig
from klamm.log import log, log_reads, lookup
from klamm.log.cleaner import cleaner
from klamm.log.cleaner.filtering import BatchFilter
from klamm.log.cleaner.key_hashes import KeyHashes
from klamm.log.cleaner.offset_map import OffsetMap
from klamm.log.cleaner.selection import find_dirty_range
from klamm.log.cleaning_state import CleaningState
from klamm.log.directory_moves import DirectoryMoves
from klamm.log.retention import RetentionLimits, expired_segment_count
from klamm.replication.log_copy import LogCopy
from klamm.replication.partition import Partition

_NEVER: Final = 1 << 62


def tombstones_removed_at_once(patch: Patch) -> None:
    """The cleaner removes tombstones without waiting for delete.retention.ms."""
    patch.setattr(BatchFilter, "_may_drop_tombstones", lambda self, headers: np.ones(len(headers), np.bool_))


def tombstones_stay(patch: Patch) -> None:
    """The cleaner never removes a tombstone."""
    patch.setattr(BatchFilter, "_may_drop_tombstones", lambda self, headers: np.zeros(len(headers), np.bool_))


def tombstones_delete_nothing(patch: Patch) -> None:
    """The cleaner keeps the values before a tombstone, and removes the tombstone after its time."""
    add, init = OffsetMap.add, OffsetMap.__init__

    def values_only(self: OffsetMap, hashes: KeyHashes, offsets: Any, tombstones: Any) -> bool:
        values = ~tombstones
        kept = KeyHashes(hashes.first[values], hashes.second[values])
        return add(self, kept, offsets[values], tombstones[values])

    patch.setattr(OffsetMap, "add", values_only)

    def begin(self: OffsetMap, capacity: int, start: int = 0) -> None:
        init(self, capacity, start)
        self.start = _NEVER  # every record is compared by its key

    patch.setattr(OffsetMap, "__init__", begin)


def compaction_lag_ignored(patch: Patch) -> None:
    """The cleaner compacts records that are younger than min.compaction.lag.ms."""

    def find(facts: Any, config: TopicConfig, now_ms: int) -> Any:
        return find_dirty_range(facts, config, now_ms + config.min_compaction_lag_ms)

    patch.setattr(cleaner, "find_dirty_range", find)


def cleaned_while_copied(patch: Patch) -> None:
    """A log is compacted while it is copied to another log directory."""
    patch.setattr(CleaningState, "pause", lambda self: None)


def incomplete_copies_replace_logs(patch: Patch) -> None:
    """A copy replaces the log without the records that were appended while it was synced."""
    complete: Any = vars(LogCopy)["is_complete"]

    def is_complete(self: LogCopy) -> bool:
        return getattr(self, "_is_copied", False) or complete.fget(self)

    def copy_nothing(self: LogCopy) -> int:
        self._is_copied = True  # type: ignore[attr-defined]
        return 0

    patch.setattr(LogCopy, "copy_now", copy_nothing)
    patch.setattr(LogCopy, "is_complete", property(is_complete))


def copies_forgotten_at_start(patch: Patch) -> None:
    """A start forgets the copies of logs in other log directories."""

    def forget(self: DirectoryMoves) -> None:
        for partition in list(self._futures.logs):
            self._futures.remove(partition)

    patch.setattr(DirectoryMoves, "match_futures", forget)


def deletion_answered_early(patch: Patch) -> None:
    """DeleteRecords is answered before followers have raised their log start, which they never do."""
    patch.setattr(Partition, "low_watermark", property(lambda self: self.leader_log.start_offset))
    update = Partition.update_from_leader
    patch.setattr(Partition, "update_from_leader", lambda self, high, start: update(self, high, -1))


def one_segment_too_many(patch: Patch) -> None:
    """The segment that contains the log start is deleted with those before it."""

    def count(segments: Any, end: int, limits: RetentionLimits) -> int:
        expired = expired_segment_count(segments, end, limits)
        bases = [s.base_offset for s in segments]
        is_inside = len(bases) > expired + 1 and bases[expired] < limits.log_start <= limits.high_watermark
        fits = is_inside and bases[expired + 1] <= limits.high_watermark
        return expired + int(fits)

    patch.setattr(log, "expired_segment_count", count)


def newest_segment_is_searched(patch: Patch) -> None:
    """ListOffsets looks for a time in the newest segment that has it, not in the oldest one."""

    def find(segments: Any, timestamp: int, start: int) -> Any:
        found = lookup.find_now(segments, timestamp, start)
        later = lookup.find_now(segments, timestamp, segments.active.base_offset)
        return later if later is not None else found

    patch.setattr(log_reads, "find_now", find)


MUTANTS: Final = (
    Mutant("tb1", "KIP-534", "tombstones are removed at once", tombstones_removed_at_once, (75,)),
    Mutant("tb2", "KAFKA-8522", "tombstones are never removed", tombstones_stay, (75,)),
    Mutant("tb3", "", "values before a tombstone stay", tombstones_delete_nothing, (75,)),
    Mutant("cl2", "KIP-58", "min.compaction.lag.ms is ignored", compaction_lag_ignored, (75,)),
    Mutant("mv1", "KIP-113", "an incomplete copy replaces a log", incomplete_copies_replace_logs, (76,)),
    Mutant("mv2", "KIP-113", "a start forgets unfinished copies", copies_forgotten_at_start, (76,)),
    Mutant("mv3", "", "a log is compacted while it is copied", cleaned_while_copied, (76, 75)),
    Mutant("dr1", "KIP-107", "followers keep deleted records", deletion_answered_early, (77,)),
    Mutant("dr2", "KIP-107", "the segment of the log start is deleted", one_segment_too_many, (77,)),
    Mutant("lo1", "KIP-33", "a time is looked up in the newest segment", newest_segment_is_searched, (78,)),
)
