"""The batches in the log directory of a stopped broker, read from the files without any code of klamm's log."""

import hashlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

_PREFIX: Final = struct.Struct(">qi")
"""Base offset, and the bytes that follow."""
_LAST_OFFSET_DELTA: Final = struct.Struct(">i")
_DELTA_AT: Final = 23


class StoredBatch(NamedTuple):
    """Where a batch ends, and the digest of all its bytes."""

    next_offset: int
    digest: bytes


def batches_of(partition_directory: Path) -> list[StoredBatch]:
    """All whole batches of a partition's segments, in order."""
    return [b for path in sorted(partition_directory.glob("*.log")) for b in _batches_in(path.read_bytes())]


def _batches_in(content: bytes) -> Iterator[StoredBatch]:
    """The batches of one segment, up to one that is cut off, or to preallocated bytes."""
    position = 0
    while position + _PREFIX.size < len(content):
        base_offset, length = _PREFIX.unpack_from(content, position)
        end = position + _PREFIX.size + length
        if not length or end > len(content):
            return
        (delta,) = _LAST_OFFSET_DELTA.unpack_from(content, position + _DELTA_AT)
        yield StoredBatch(base_offset + delta + 1, hashlib.sha256(content[position:end]).digest())
        position = end


class StoredLogs:
    """What a stopped broker has below the high watermarks of its partitions, to compare with what it has later."""

    def __init__(self, log_dirs: Sequence[str], high_watermarks: Mapping[str, int]) -> None:
        """`high_watermarks` is by the name of the partition's directory, which is in one of `log_dirs`."""
        self._log_dirs = log_dirs
        self._high_watermarks = dict(high_watermarks)
        self._batches = {name: self._committed(name) for name in high_watermarks}

    def short(self) -> list[str]:
        """The partitions that end before their high watermark."""
        return [
            f"{name} ends at {found[-1].next_offset if found else 0}, the high watermark was {end}"
            for name, found in self._batches.items()
            if (found[-1].next_offset if found else 0) < (end := self._high_watermarks[name])
        ]

    def changed(self) -> list[str]:
        """The partitions that do not have the same bytes below these high watermarks any more."""
        return [
            f"{name}: the batches below {self._high_watermarks[name]} have changed"
            for name, before in self._batches.items()
            if self._committed(name) != before
        ]

    def _committed(self, name: str) -> list[StoredBatch]:
        """The batches of a partition that begin below its high watermark."""
        found = [batch for log_dir in self._log_dirs for batch in batches_of(Path(log_dir) / name)]
        end, committed, begin = self._high_watermarks[name], [], 0
        for batch in found:
            if begin >= end:
                break
            committed.append(batch)
            begin = batch.next_offset
        return committed


def cleaned_up_to(log_dirs: str, topic: str, partition: int = 0) -> int:
    """What the cleaner checkpoints in a broker's log directories say of a partition; -1 before the first cleaning."""
    checkpoints = [Path(log_dir) / "cleaner-offset-checkpoint" for log_dir in log_dirs.split(",")]
    lines = [line.split() for path in checkpoints if path.exists() for line in path.read_text().splitlines()[2:]]
    return next((int(offset) for name, p, offset in lines if (name, p) == (topic, str(partition))), -1)
