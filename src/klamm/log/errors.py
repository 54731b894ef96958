"""Errors of logs."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition

REPAIR: Final = "Repair the disk, or free space if it is full, and restart the node."
REPLACE_REPLICA: Final = (
    "Check the disk. To copy the replica from its leader, stop this node, move the partition's directory away and "
    "start the node."
)


class RecordError(NamedTuple):
    """Why one record of a batch is refused; `batch_index` counts from the batch's first record."""

    batch_index: int
    message: str


class AppendRefused(KlammError):
    """Nothing was written; `code` is what the producer gets."""

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[RecordError] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.record_errors = tuple(record_errors)


class OffsetOutOfRange(KlammError):
    """The offset is before the log's start or after its end."""

    def __init__(self, partition: TopicPartition, offset: int, start: int, end: int) -> None:
        super().__init__(f"{partition}: offset {offset} is out of range; the log has offsets {start} to {end}")
        self.offset = offset
        self.start = start
        self.end = end


class UnexpectedOffset(KlammError):
    """A follower was given records that begin before its log's end, or whose offsets do not rise."""

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class StorageFailed(KlammError, OSError):
    """The log directory met an I/O error and is out of use until the node starts again."""


class ColdRead(NamedTuple):
    """Bytes of a file that are not in the page cache."""

    path: str
    position: int
    size: int


class NotCached(KlammError):
    """A read would wait for the device: do `read` in a thread first."""

    def __init__(self, read: ColdRead) -> None:
        super().__init__(f"{read.size} bytes of {read.path} at byte {read.position} are not in the page cache")
        self.read = read


class SliceLost(KlammError):
    """Bytes that a response refers to are no longer in the file; other bytes must not be sent instead."""


class BadLogDirectory(KlammError):
    """A log directory that this node must not use; the text has the reason and the remedy."""


class CorruptFile(KlammError):
    """A checkpoint, snapshot or index file that cannot be parsed."""


class ProducersRestoring(KlammError):
    """Producer state is still being restored after a truncation; retry the append soon."""
