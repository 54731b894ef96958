"""The small text files that say how far something got. Source: CheckpointFile.java, OffsetCheckpointFile.scala."""

from collections.abc import Iterable, Mapping
from typing import Final

from klamm.log.errors import CorruptFile
from klamm.model.ids import TopicPartition
from klamm.runtime.disk import Disk

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"

_VERSION: Final = "0"


def checkpoint_text(lines: Iterable[str]) -> bytes:
    """Version, number of lines, the lines."""
    entries = list(lines)
    return "".join(f"{line}\n" for line in (_VERSION, str(len(entries)), *entries)).encode()


def checkpoint_lines(content: bytes, path: str) -> list[list[str]]:
    """The entries, split at their spaces. Raises CorruptFile."""
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise CorruptFile(f"{path} is not text: {error}") from error
    if len(lines) < 2 or lines[0].strip() != _VERSION or not lines[1].strip().isdigit():
        raise CorruptFile(f"{path} does not begin with version {_VERSION} and a number of entries")
    entries = [line.split() for line in lines[2:]]
    if len(entries) != int(lines[1]):
        raise CorruptFile(f"{path} announces {lines[1].strip()} entries and has {len(entries)}")
    return entries


def offsets_text(offsets: Mapping[TopicPartition, int]) -> bytes:
    return checkpoint_text(f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())


def parse_offsets(content: bytes, path: str) -> dict[TopicPartition, int]:
    """Raises CorruptFile, naming the line."""
    offsets = {}
    for number, fields in enumerate(checkpoint_lines(content, path), start=3):
        try:
            topic, partition, offset = fields
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError as error:
            raise CorruptFile(f"{path} line {number}: {' '.join(fields)!r} is not TOPIC PARTITION OFFSET") from error
    return offsets


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Empty where there is no file. Raises OSError, CorruptFile."""
    try:
        content = disk.read(path)
    except FileNotFoundError:
        return {}
    return parse_offsets(content, path)
