"""Which log to clean, and which of its offsets: facts in, a choice out. Source: LogCleanerManager.scala."""

from collections.abc import Sequence
from typing import NamedTuple

from klamm.config.topic_config import TopicConfig


class SegmentFacts(NamedTuple):
    """`first_timestamp` is that of the first batch; None where it is not known or there is none."""

    base_offset: int
    size: int
    largest_timestamp: int
    first_timestamp: int | None = None


class LogFacts(NamedTuple):
    """`segments` in order, the active one last. `checkpoint`: the log was cleaned below it; None if it never was."""

    segments: Sequence[SegmentFacts]
    log_start: int
    end_offset: int
    last_stable_offset: int
    recovery_point: int
    checkpoint: int | None


class DirtyRange(NamedTuple):
    """Offsets whose records have not been compared with earlier ones; `end` is the base offset of a segment.

    `is_reset`: the checkpoint lay outside the log, and cleaning begins again at the log start.
    """

    start: int
    end: int
    cleanable_bytes: int
    total_bytes: int
    is_reset: bool = False
    overdue_ms: int = 0
    """How long a record has waited beyond `max.compaction.lag.ms`."""

    @property
    def ratio(self) -> float:
        """The share of dirty bytes in the log; the log with the highest share is cleaned first."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    def is_due(self, config: TopicConfig) -> bool:
        """Whether the log should be cleaned.

        Its share of dirty bytes is above `min.cleanable.dirty.ratio`, or a record has waited for too long.
        """
        if not self.cleanable_bytes:
            return False
        return self.overdue_ms > 0 or self.ratio > config.min_cleanable_dirty_ratio


def find_dirty_range(facts: LogFacts, config: TopicConfig, now_ms: int) -> DirtyRange:
    """The range to clean: from the checkpoint to the first segment that must not be cleaned yet.

    That is the active segment, or one with records that are undecided, unflushed or younger than
    `min.compaction.lag.ms`.
    """
    start, is_reset = _first_dirty(facts)
    segments = facts.segments
    limit = min(facts.last_stable_offset, facts.recovery_point, segments[-1].base_offset)
    if config.min_compaction_lag_ms > 0:
        youngest = now_ms - config.min_compaction_lag_ms
        for segment in _from(segments, start)[:-1]:
            if segment.largest_timestamp > youngest:
                limit = min(limit, segment.base_offset)
                break
    end = _from(segments, max(start, limit))[0].base_offset
    clean = sum(segment.size for segment in segments if segment.base_offset < start)
    dirty = [segment for segment in _from(segments, min(start, end)) if segment.base_offset < end]
    cleanable = sum(segment.size for segment in dirty)
    overdue = _overdue_ms(_from(segments, start)[:-1], config, now_ms)
    return DirtyRange(start, end, cleanable, clean + cleanable, is_reset, overdue)


def _first_dirty(facts: LogFacts) -> tuple[int, bool]:
    """The offset where cleaning continues, and whether the checkpoint could not be used."""
    if facts.checkpoint is None:
        return facts.log_start, False
    if facts.log_start <= facts.checkpoint <= facts.end_offset:
        return facts.checkpoint, False
    return facts.log_start, True


def _from(segments: Sequence[SegmentFacts], offset: int) -> Sequence[SegmentFacts]:
    """The segments from the one that contains `offset` on."""
    slot = max((i for i, segment in enumerate(segments) if segment.base_offset <= offset), default=0)
    return segments[slot:]


def _overdue_ms(dirty: Sequence[SegmentFacts], config: TopicConfig, now_ms: int) -> int:
    """Return for how many ms the oldest dirty record has waited beyond `max.compaction.lag.ms`; 0 if none has."""
    known = [s.first_timestamp for s in dirty if s.first_timestamp is not None and s.first_timestamp > 0]
    return max(0, now_ms - config.max_compaction_lag_ms - min(known)) if known else 0


def group_segments(
    segments: Sequence[SegmentFacts], index_bytes: Sequence[int], end: int, config: TopicConfig, most: int
) -> list[list[SegmentFacts]]:
    """Group adjacent segments that are cleaned into one: within `segment.bytes`, `segment.index.bytes`, 2^31 offsets.

    `index_bytes`: the larger of the two index sizes of each segment. At most `most` segments form a group, so that
    replacing them does not hold the event loop.
    """
    groups: list[list[SegmentFacts]] = []
    size = index_size = 0
    for i, segment in enumerate(segments):
        last_offset = (segments[i + 1].base_offset if i + 1 < len(segments) else end) - 1
        fits = (
            bool(groups)
            and len(groups[-1]) < most
            and size + segment.size <= config.segment_bytes
            and index_size + index_bytes[i] <= config.segment_index_bytes
            and last_offset - groups[-1][0].base_offset < 2**31
        )
        if fits:
            groups[-1].append(segment)
            size, index_size = size + segment.size, index_size + index_bytes[i]
        else:
            groups.append([segment])
            size, index_size = segment.size, index_bytes[i]
    return groups
