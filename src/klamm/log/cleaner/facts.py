"""A log as the cleaner sees it: the facts that selection needs, and the job for the process that rewrites it."""

from collections.abc import Iterable

from klamm.log.cleaner.job import CleaningJob, ProducerEnd, SourceSegment
from klamm.log.cleaner.selection import DirtyRange, LogFacts, SegmentFacts, group_segments
from klamm.log.errors import StorageFailed
from klamm.log.log import Log
from klamm.log.producers import Producer
from klamm.log.segment import Segment
from klamm.log.settings import CleanerSettings

MAX_GROUP_SEGMENTS = 32
"""Segments that one replaces: more would hold the event loop while their files are renamed."""
_NO_LAG = 2**63 - 1


def log_facts(log: Log) -> LogFacts:
    """Return what the choice of a log to clean needs to know of this log now. Raises StorageFailed."""
    needs_first = log.config.max_compaction_lag_ms < _NO_LAG
    return LogFacts(
        _facts_of(log, log.segments, needs_first=needs_first),
        log.start_offset,
        log.end_offset,
        log.last_stable_offset,
        log.recovery_point,
        log.cleaning.first_dirty,
    )


def _facts_of(log: Log, segments: Iterable[Segment], *, needs_first: bool) -> list[SegmentFacts]:
    """Return what the choice of a log needs of these segments; `needs_first` reads first timestamps too.

    A segment without timestamps has the time at which it was last modified. Raises StorageFailed.
    """
    try:
        return [
            SegmentFacts(
                segment.base_offset,
                segment.size,
                segment.largest_timestamp().timestamp,
                segment.first_timestamp if needs_first else None,
            )
            for segment in segments
        ]
    except StorageFailed:
        raise  # reported already
    except OSError as error:
        if not log.has_failed:
            log.on_io_error(error)
        raise StorageFailed(str(error)) from error


def cleaning_job(log: Log, dirty: DirtyRange, settings: CleanerSettings, now_ms: int) -> CleaningJob:
    """Return all facts that the worker process needs to clean this log; later changes of the log do not affect it."""
    config = log.config
    segments = [segment for segment in log.segments if segment.base_offset < dirty.end]
    index_bytes = [max(segment.offset_index.size, segment.time_index.size) for segment in segments]
    facts = _facts_of(log, segments, needs_first=False)
    groups = group_segments(facts, index_bytes, dirty.end, config, MAX_GROUP_SEGMENTS)
    return CleaningJob(
        directory=log.directory,
        groups=tuple(tuple(SourceSegment(s.base_offset, s.size) for s in group) for group in groups),
        transaction_indexes=tuple(segment.base_offset for segment in log.segments),
        start=dirty.start,
        end=dirty.end,
        map_capacity=settings.map_capacity,
        read_bytes=settings.read_bytes,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        index_interval_bytes=config.index_interval_bytes,
        index_max_bytes=config.segment_index_bytes,
        producers={producer_id: _producer_end(p) for producer_id, p in log.producers.by_id.items()},
    )


def _producer_end(producer: Producer) -> ProducerEnd:
    """Return the last data offset (None where the producer has no batch) and the epoch of the producer."""
    return ProducerEnd(producer.last_offset if producer.last_offset >= 0 else None, producer.epoch)
