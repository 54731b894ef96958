"""Checkpoint files: one offset per partition, as text. Source: CheckpointFile.java, OffsetCheckpointFile.scala."""

from collections.abc import Iterable, Mapping
from typing import Final

from klamm.log.errors import CorruptFile
from klamm.model.ids import TopicPartition
from klamm.runtime.disk import Disk
from klamm.runtime.small_files import Replacement, SmallFile, replace_files

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEANED_OFFSETS: Final = "cleaner-offset-checkpoint"

_VERSION: Final = "0"


def checkpoint_text(lines: Iterable[str]) -> bytes:
    """The content of a checkpoint file: version, number of lines, the lines."""
    entries = list(lines)
    return "".join(f"{line}\n" for line in (_VERSION, str(len(entries)), *entries)).encode()


def checkpoint_lines(content: bytes, path: str) -> list[list[str]]:
    """The fields of each entry in a checkpoint file. Raises CorruptFile."""
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise CorruptFile(f"{path} is not text: {error}") from error
    if len(lines) < 2 or lines[0].strip() != _VERSION or not lines[1].strip().isdigit():
        raise CorruptFile(f"{path}: line 1 must be the version {_VERSION} and line 2 the number of entries")
    entries = [line.split() for line in lines[2:]]
    if len(entries) != int(lines[1]):
        raise CorruptFile(f"{path}: line 2 announces {lines[1].strip()} entries, the file has {len(entries)}")
    return entries


def offsets_text(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The content of a checkpoint file of these offsets."""
    return checkpoint_text(f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())


def parse_offsets(content: bytes, path: str) -> dict[TopicPartition, int]:
    """The offsets in a checkpoint file. Raises CorruptFile, naming the line."""
    offsets = {}
    for number, fields in enumerate(checkpoint_lines(content, path), start=3):
        try:
            topic, partition, offset = fields
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError as error:
            raise CorruptFile(f"{path}, line {number}: {' '.join(fields)!r} is not TOPIC PARTITION OFFSET") from error
    return offsets


class OffsetCheckpoint:
    """One offset checkpoint file of a log directory, and the offsets last read or written."""

    __slots__ = ("_disk", "_file", "_retained", "written")

    def __init__(self, disk: Disk, directory: str, name: str) -> None:
        self._disk = disk
        self._file = SmallFile(f"{directory}/{name}")
        self._retained: dict[TopicPartition, int] = {}
        self.written: Mapping[TopicPartition, int] = {}
        """What was read or written last."""

    def read(self) -> str | None:
        """Load the checkpoint file. A damaged one counts as empty, and the reason is returned. Raises OSError."""
        try:
            self.written = read_offsets(self._disk, self._file.path)
        except CorruptFile as error:
            return str(error)
        return None

    def retain(self, partition: TopicPartition) -> None:
        """Keep the stored offset of this partition in every later write, because its log cannot be read."""
        if partition in self.written:
            self._retained[partition] = self.written[partition]

    def next_version(self) -> int:
        """A new version number for offsets read from memory; `write` skips versions older than the last written."""
        return self._file.next_version()

    def write(self, offsets: Mapping[TopicPartition, int], version: int) -> None:
        """Replace the checkpoint file, in any thread, unless a newer version was written already. Raises OSError."""
        offsets = {**self._retained, **offsets}
        replace_files(self._disk, [Replacement(self._file, version, offsets_text(offsets))])
        if version == self._file.version:
            self.written = offsets

    def write_now(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the checkpoint file with these offsets. Raises OSError."""
        self.write(offsets, self.next_version())


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """The offsets in a checkpoint file, empty where there is no file. Raises OSError, CorruptFile."""
    try:
        content = disk.read(path)
    except FileNotFoundError:
        return {}
    return parse_offsets(content, path)
