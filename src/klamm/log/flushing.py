"""Bringing a log to the device: which files, and how far it is safe then. Source: UnifiedLog.scala (flush)."""

from collections.abc import Sequence
from dataclasses import dataclass

from klamm.log.names import INDEX, LOG, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX
from klamm.log.segment import Segment
from klamm.runtime.disk import Disk

_SYNCED = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)


@dataclass(frozen=True, slots=True)
class FlushJob:
    """Work for a thread; it touches nothing but the files named here.

    `generation` counts the log's cuts: what was flushed before a cut says nothing of what came after it.
    """

    up_to: int
    generation: int
    paths: tuple[str, ...]
    directories: tuple[str, ...]

    def run(self, disk: Disk) -> None:
        """Sync all; files that are gone were given up meanwhile. Raises OSError."""
        for path in self.paths:
            try:
                file = disk.open(path)
            except FileNotFoundError:
                continue
            try:
                file.sync()
            finally:
                file.close()
        for directory in self.directories:
            if disk.exists(directory):
                disk.sync_directory(directory)


def files_to_sync(segments: Sequence[Segment]) -> tuple[str, ...]:
    """Every file of these segments, and the snapshots taken at their beginnings."""
    return tuple(segment.path(suffix) for segment in segments for suffix in (*_SYNCED, SNAPSHOT))
