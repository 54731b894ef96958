"""What the process that cleans a log is told, and what it answers; both are pickled."""

from collections.abc import Mapping
from typing import Final, NamedTuple

BYTES_PER_KEY: Final = 48
"""Of an `OffsetMap`: 24 for hash and offset, as many again while duplicates are removed or for `LatestRecords`."""


class ProducerEnd(NamedTuple):
    """The end of an active producer in the log: its last data offset, None where only a marker is left."""

    last_data_offset: int | None
    epoch: int


class SourceSegment(NamedTuple):
    """A segment to read; `size` in bytes."""

    base_offset: int
    size: int


class CleaningJob(NamedTuple):
    """One cleaning of one log.

    Keys are collected from `start` to `end`, the base offset of a segment. `groups` covers all segments below `end`;
    each group becomes one segment. `transaction_indexes` are the base offsets of all segments that may have one.
    """

    directory: str
    groups: tuple[tuple[SourceSegment, ...], ...]
    transaction_indexes: tuple[int, ...]
    start: int
    end: int
    map_capacity: int
    read_bytes: int
    now_ms: int
    delete_retention_ms: int
    index_interval_bytes: int
    index_max_bytes: int
    producers: Mapping[int, ProducerEnd]


class CleanedFiles(NamedTuple):
    """One group is rewritten, and its files with the suffix `.cleaned` are synced."""

    base_offset: int
    replaced: tuple[int, ...]
    """The base offsets of the segments that the files replace, in order."""
    size: int


class CleaningFinished(NamedTuple):
    """Every record below `end_offset` was compared with those after it."""

    end_offset: int
    read_bytes: int
    written_bytes: int
    read_records: int
    written_records: int
    keyless_records: int
    map_utilization: float


class CleaningFailed(NamedTuple):
    """The log cannot be cleaned; `errno` where a file operation failed."""

    reason: str
    errno: int | None = None


Event = CleanedFiles | CleaningFinished | CleaningFailed


class Progress(NamedTuple):
    """Bytes read and written since the last answer; `event` is None while a group is being worked on."""

    io_bytes: int
    event: Event | None = None
