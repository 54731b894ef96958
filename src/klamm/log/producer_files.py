"""Producer snapshot files, and the replay of batches after the newest snapshot. Source: ProducerStateManager.java."""

from collections.abc import Iterable

from klamm.log.errors import CorruptFile
from klamm.log.names import SNAPSHOT, offset_of, segment_file
from klamm.log.producers import CompletedTransaction, Producer, Producers
from klamm.log.scan import ScannedBatch
from klamm.log.segment import Segment
from klamm.log.segments import Segments
from klamm.log.snapshots import parse_snapshot, snapshot_bytes
from klamm.runtime.disk import Disk, File
from klamm.wire.records import BatchHeader, CorruptRecords, end_marker_of
from klamm.wire.records.batch import Buffer


class SnapshotFiles:
    """The `.snapshot` files of one log directory."""

    __slots__ = ("_disk", "directory")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.directory = directory

    def path(self, offset: int) -> str:
        """The path of the snapshot at this offset."""
        return f"{self.directory}/{segment_file(offset, SNAPSHOT)}"

    def offsets(self) -> list[int]:
        """The offsets that have a snapshot, in ascending order."""
        names = self._disk.list_directory(self.directory)
        found = (offset_of(name) for name in names if name.endswith(SNAPSHOT))
        return [offset for offset in found if offset is not None]

    def write(self, producers: Producers) -> str | None:
        """Write the producer state at its end offset, without syncing.

        Returns the path, None if the snapshot exists.
        """
        if producers.snapshot_offset >= producers.end_offset:
            return None
        path = self.path(producers.end_offset)
        file = self._disk.open(path, create=True)
        try:
            content = snapshot_bytes(producers.by_id)
            file.pwrite([content], 0)
            file.truncate(len(content))
        finally:
            file.close()
        producers.snapshot_offset = producers.end_offset
        return path

    def load_newest(self, most: int) -> tuple[int, list[Producer]] | None:
        """Load the newest valid snapshot at or before `most`; damaged ones are removed."""
        for offset in reversed([o for o in self.offsets() if o <= most]):
            path = self.path(offset)
            try:
                return offset, parse_snapshot(self._disk.read(path), path)
            except CorruptFile:
                self._disk.remove(path)
        return None

    def remove(self, offsets: Iterable[int]) -> None:
        """Delete the snapshots at these offsets."""
        for offset in offsets:
            path = self.path(offset)
            if self._disk.exists(path):
                self._disk.remove(path)


def rebuild_producers(
    disk: Disk, producers: Producers, segments: Segments, directory: str, start: int, end: int
) -> list[str]:
    """Restore the producer state at `end`: from the newest snapshot, then the batches after it.

    A segment that cannot be parsed is replayed up to its damage; the result has a sentence for each. Raises OSError.
    """
    notes: list[str] = []
    files = SnapshotFiles(disk, directory)
    newest = files.load_newest(end)
    if newest is not None and newest[0] >= start:
        producers.restore(newest[1], newest[0])
        producers.snapshot_offset = newest[0]
    else:
        producers.restore((), start)
        producers.snapshot_offset = -1
    begin = producers.end_offset
    for segment in segments.from_slot(segments.slot_of(begin)):
        if segment.base_offset >= end:
            break
        try:
            _replay_segment(producers, segment, disk, begin, end)
        except CorruptRecords as error:
            notes.append(f"{error}: the producer state was read up to this batch. Check the disk.")
    producers.end_offset = end
    return notes


def _replay_segment(producers: Producers, segment: Segment, disk: Disk, begin: int, end: int) -> None:
    """Update the producer state with the segment's batches between these offsets."""
    spot = segment.find(begin)
    for found in segment.headers(spot.position) if spot else ():
        if found.header.base_offset >= end:
            break
        if found.header.has_producer:
            _replay(producers, found, disk, segment.log_path)


def _replay(producers: Producers, found: ScannedBatch, disk: Disk, path: str) -> None:
    """Update the producer state with one batch."""
    header, buffer = found.header, found.buffer
    if header.is_control:
        file: File = disk.open_read(path)
        try:
            buffer = file.pread(header.size, found.position)
        finally:
            file.close()
        header = header._replace(position=0)
    update_producers(producers, header, buffer)


def update_producers(producers: Producers, header: BatchHeader, buffer: Buffer) -> CompletedTransaction | None:
    """Update the producer state with a written batch; the transaction it completed, if any.

    `buffer` is read for control batches only.
    """
    if not header.is_control:
        producers.on_batch_written(header, header.base_offset, header.max_timestamp)
        return None
    marker = end_marker_of(buffer, header)
    return None if marker is None else producers.on_marker_written(header, marker, header.last_offset)
