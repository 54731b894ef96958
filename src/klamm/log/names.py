"""Names of log directories and of the files in them. Source: LogFileUtils.java, UnifiedLog.scala."""

from enum import StrEnum
from typing import Final, NamedTuple

from klamm.model.ids import TopicPartition, parse_topic_partition

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
REPLACED_BY: Final = "replaced-by"
"""Names the copy that replaces this log: after a crash in between, the log with this file is the one to delete."""

_MAX_NAME_LENGTH: Final = 255
_OFFSET_DIGITS: Final = 20


class DirectoryKind(StrEnum):
    """Suffixes of log directory names: in use, waiting for deletion, future replica, stray replica."""

    LIVE = ""
    DELETE = "-delete"
    FUTURE = "-future"
    STRAY = "-stray"


class DirectoryName(NamedTuple):
    """The parts of a log directory's name."""

    partition: TopicPartition
    kind: DirectoryKind


def segment_file(base_offset: int, suffix: str) -> str:
    """The file name of a segment, such as `00000000000000000042.log`."""
    return f"{base_offset:0{_OFFSET_DIGITS}d}{suffix}"


def offset_of(file: str) -> int | None:
    """The offset at the beginning of a segment file's name; None for other names."""
    digits = file.partition(".")[0]
    return int(digits) if len(digits) == _OFFSET_DIGITS and digits.isascii() and digits.isdigit() else None


def parse_directory(name: str) -> DirectoryName:
    """The partition and kind of a log directory's name. Raises ValueError."""
    for kind in (DirectoryKind.DELETE, DirectoryKind.FUTURE, DirectoryKind.STRAY):
        stem = name.removesuffix(kind)
        front, dot, unique = stem.rpartition(".")
        if stem != name and dot and len(unique) == 32 and not set(unique) - set("0123456789abcdef"):
            return DirectoryName(parse_topic_partition(front), kind)
    return DirectoryName(parse_topic_partition(name), DirectoryKind.LIVE)


def future_directory(partition: TopicPartition, unique: str) -> str:
    """The directory name of a future log; for long topic names it is longer than a file name may be."""
    return f"{partition}.{unique}{DirectoryKind.FUTURE}"


def can_have_future_directory(partition: TopicPartition) -> bool:
    """Whether the directory name of a future log is short enough (KAFKA-4893)."""
    return len(future_directory(partition, "0" * 32)) <= _MAX_NAME_LENGTH


def deleted_directory(partition: TopicPartition, unique: str) -> str:
    """The directory name of a log that waits to be removed; a long topic name is shortened."""
    suffix = f"-{partition.partition}.{unique}{DirectoryKind.DELETE}"
    return partition.topic[: _MAX_NAME_LENGTH - len(suffix)] + suffix
