"""Which segments exceed the topic's retention. Source: UnifiedLog.scala (deleteOldSegments, ref. 4.7)."""

from collections.abc import Sequence
from typing import NamedTuple, Self

from klamm.config.topic_config import TopicConfig


class SegmentFacts(NamedTuple):
    """What retention needs to know of a segment."""

    base_offset: int
    size: int
    largest_timestamp: int


class RetentionLimits(NamedTuple):
    """Retention limits and offsets; `retention_ms` and `retention_bytes` are -1 without a limit."""

    log_start: int
    high_watermark: int
    now_ms: int
    retention_ms: int
    retention_bytes: int

    @classmethod
    def of(cls, config: TopicConfig, log_start: int, high_watermark: int, now_ms: int) -> Self:
        """The limits of a topic config."""
        if not config.is_deleted:
            return cls(log_start, high_watermark, now_ms, -1, -1)
        return cls(log_start, high_watermark, now_ms, config.retention_ms, config.retention_bytes)

    @classmethod
    def of_start(cls, log_start: int, high_watermark: int) -> Self:
        """The log start as the only limit."""
        return cls(log_start, high_watermark, 0, -1, -1)


def expired_segment_count(segments: Sequence[SegmentFacts], end_offset: int, limits: RetentionLimits) -> int:
    """How many of the oldest segments retention deletes; none at or above the high watermark.

    If all segments have expired, the caller first rolls, so that an empty segment remains.
    """
    excess = sum(segment.size for segment in segments) - limits.retention_bytes
    count = 0
    for slot, segment in enumerate(segments):
        is_last = slot == len(segments) - 1
        upper = end_offset if is_last else segments[slot + 1].base_offset
        if upper > limits.high_watermark or (is_last and not segment.size):
            break
        too_much = limits.retention_bytes >= 0 and excess - segment.size >= 0
        too_old = limits.retention_ms >= 0 and limits.now_ms - segment.largest_timestamp > limits.retention_ms
        before_start = not is_last and upper <= limits.log_start
        if not (too_much or too_old or before_start):
            break
        excess -= segment.size
        count += 1
    return count
