"""What lies on the disks: the batches of every replica, read from segment files without asking any process."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from klamm.log.names import LOG, REPLACED_BY, DirectoryKind, DirectoryName, offset_of, parse_directory, segment_file
from klamm.model.ids import TopicPartition
from klamm.sim.cluster_tier.keyed_records import name_of
from klamm.sim.disk import SimulatedDisk
from klamm.sim.power_loss import Inode
from klamm.wire.records import CorruptRecords
from klamm.wire.records.batch import BatchHeader, batches, crc_is_valid, crc_mismatch
from klamm.wire.records.record import Record, records


class StoredBatch(NamedTuple):
    header: BatchHeader
    values: tuple[bytes, ...]
    offsets: Sequence[int]
    """Of the values: compaction removes some of them."""


class BatchIdentity(NamedTuple):
    """What tells a batch of a partition from every other."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int


class SegmentBatches:
    """The batches of one segment file; what was appended since the last look is read, and no more."""

    __slots__ = ("_inode", "_position", "_revision", "batches", "damage")

    def __init__(self, inode: Inode) -> None:
        self._inode = inode
        self._revision = -1
        self._position = 0
        self.batches: list[StoredBatch] = []
        self.damage: str | None = None
        """Why the file cannot be read on from there."""

    def refresh(self) -> None:
        """Read the batches that were written since the last call.

        After a truncation the file is read from its start.
        """
        inode = self._inode
        if inode.revision != self._revision:
            self._revision, self._position, self.damage = inode.revision, 0, None
            self.batches = []
        if self._position < len(inode.content) and self.damage is None:
            self._read(bytes(inode.content[self._position :]))

    def _read(self, content: bytes) -> None:
        """Decode the batches in `content` up to the first damage, and keep their headers and values."""
        read = 0
        try:
            for header in batches(content):
                if not crc_is_valid(content, header):
                    raise crc_mismatch(header)
                decoded = list(records(content, header))
                values = tuple(name_of(r) for r in decoded)
                self.batches.append(StoredBatch(header, values, _offsets(header, decoded)))
                read = header.position + header.size
        except CorruptRecords as error:
            self.damage = str(error)
        self._position += read

    @property
    def position(self) -> int:
        """Up to which byte the file was read."""
        return self._position

    def batches_after(self, offset: int) -> Iterator[StoredBatch]:
        """Yield the batches after that of the offset, the last one first."""
        for batch in reversed(self.batches):
            if batch.header.base_offset <= offset:
                return
            yield batch


def _offsets(header: BatchHeader, decoded: Sequence[Record]) -> Sequence[int]:
    """The offsets of the records of a batch."""
    if len(decoded) == header.last_offset_delta + 1:
        return range(header.base_offset, header.next_offset)
    return [record.offset for record in decoded]


class ReplicaLog:
    """The log of one replica, over its segments."""

    def __init__(self, directory: str, segments: Mapping[int, SegmentBatches]) -> None:
        self.directory = directory
        self._bases = sorted(segments)
        self._segments = [segments[base] for base in self._bases]

    def refresh(self) -> None:
        """Read what was written since the last call."""
        for segment in self._segments:
            segment.refresh()

    @property
    def start(self) -> int:
        """The base offset of the first segment; 0 without segments."""
        return self._bases[0] if self._bases else 0

    @property
    def active_base(self) -> int:
        """The base offset of the last segment; 0 without segments."""
        return self._bases[-1] if self._bases else 0

    @property
    def end(self) -> int:
        """The offset after the last record; records after damage do not count."""
        end = self.start
        for base, segment in zip(self._bases, self._segments, strict=True):
            end = max(end, base)
            if segment.batches:
                end = segment.batches[-1].header.next_offset
            if segment.damage is not None:
                break
        return end

    def batch_start(self, path: str, position: int) -> int:
        """The base offset of the batch that has this byte of a segment file."""
        base = int(path.rpartition("/")[2].removesuffix(LOG))
        start, end = base, 0
        for batch in self._segments[self._bases.index(base)].batches:
            start, end = batch.header.base_offset, end + batch.header.size
            if position < end:
                break
        return start

    @property
    def size(self) -> int:
        """The bytes of all intact batches."""
        return sum(segment.position for segment in self._segments)

    @property
    def damage(self) -> str | None:
        """The first damage found in a segment; None where all batches are intact."""
        return next((s.damage for s in self._segments if s.damage is not None), None)

    def segment_batches(self) -> Iterator[tuple[str, Sequence[StoredBatch]]]:
        """Yield the file name and the batches of each segment in order."""
        for base, segment in zip(self._bases, self._segments, strict=True):
            yield segment_file(base, LOG), segment.batches

    def is_on_device(self, disk: SimulatedDisk, offset: int) -> bool:
        """Whether a power loss leaves the record at the offset, if the log has it."""
        at = bisect_right(self._bases, offset) - 1
        if at < 0:
            return False
        later = sum(batch.header.size for batch in self._segments[at].batches_after(offset))
        return disk.is_on_device(
            f"{self.directory}/{segment_file(self._bases[at], LOG)}", self._segments[at].position - later
        )

    def end_on_device(self, disk: SimulatedDisk) -> int:
        """The offset up to which a power loss leaves the log."""
        end = self.start
        for name, stored in self.segment_batches():
            path, position = f"{self.directory}/{name}", 0
            is_synced = disk.is_on_device(path)
            for batch in stored:
                position += batch.header.size
                if not is_synced and not disk.is_on_device(path, position):
                    return end
                end = batch.header.next_offset
        return end

    def batches(self) -> Iterator[StoredBatch]:
        """Yield the batches of all segments in order."""
        for segment in self._segments:
            yield from segment.batches

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Yield offset and name of each record in order, but for the markers of transactions."""
        for batch in self.batches():
            if batch.header.is_control:
                continue
            yield from zip(batch.offsets, batch.values, strict=True)

    def identities(self) -> list[BatchIdentity]:
        """What identifies each batch of all segments, in order, to compare replicas."""
        headers = (batch.header for batch in self.batches())
        return [BatchIdentity(h.base_offset, h.last_offset, h.partition_leader_epoch, h.crc) for h in headers]

    def start_of_epoch(self, epoch: int) -> int:
        """The offset of the first record of this leader epoch or a later one; the log end where there is none."""
        for batch in self.batches():
            if batch.header.partition_leader_epoch >= epoch:
                return batch.header.base_offset
        return self.end

    @property
    def is_single(self) -> bool:
        """Whether the log has only one segment."""
        return len(self._bases) == 1

    @property
    def end_of_first(self) -> int:
        """The offset after the last record of the first segment; its base offset where it has none."""
        first = self._segments[0].batches
        return first[-1].header.next_offset if first else self.start

    def end_below(self, base: int, size: int) -> int:
        """The offset after the last batch in the first bytes of a segment."""
        end, position = base, 0
        for batch in self._segments[self._bases.index(base)].batches:
            position += batch.header.size
            if position > size:
                break
            end = batch.header.next_offset
        return end

    def value_at(self, offset: int) -> bytes | None:
        """The value of the record at the offset; None where no batch has it."""
        batch = self._batch_at(offset)
        if batch is None or offset not in batch.offsets:
            return None
        return batch.values[batch.offsets.index(offset)]

    def epoch_at(self, offset: int) -> int | None:
        """The leader epoch of the record at the offset; None where there is none."""
        batch = self._batch_at(offset)
        return None if batch is None else batch.header.partition_leader_epoch

    def _batch_at(self, offset: int) -> StoredBatch | None:
        """Return the batch that has the offset; None where no batch has it."""
        at = bisect_right(self._bases, offset) - 1
        if at < 0:
            return None
        stored = self._segments[at].batches
        slot = bisect_right(stored, offset, key=lambda b: b.header.base_offset) - 1
        return stored[slot] if slot >= 0 and offset <= stored[slot].header.last_offset else None


class DiskLogs:
    """All logs on the disk of one machine."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self._segments: dict[Inode, SegmentBatches] = {}
        self._logs: dict[str, tuple[tuple[str, ...], ReplicaLog]] = {}
        """The log in each directory that was read, and the names that the directory had then."""

    def of(self, partition: TopicPartition) -> ReplicaLog | None:
        """The log of the partition in a working log directory; None where there is none.

        A log that was moved to another log directory has a mark there, until it is deleted.
        """
        name = f"{partition.topic}-{partition.partition}"
        paths = [f"/{root}/{name}" for root in self.disk.children("/")]
        found = [path for path in paths if self.disk.is_directory(path) and not self.disk.is_failed(path)]
        if not found:
            return None
        return self.read(min(found, key=lambda path: self.disk.inode_exists(f"{path}/{REPLACED_BY}")))

    def partitions(self) -> Iterator[TopicPartition]:
        """The partitions that have a log on this disk which the broker uses."""
        yield from dict.fromkeys(found.partition for _, found in self.directories(DirectoryKind.LIVE))

    def directories(self, kind: DirectoryKind) -> Iterator[tuple[str, DirectoryName]]:
        """Path and parsed name of each directory of this kind in a working log directory."""
        for root in self.disk.children("/"):
            for name in self.disk.children(f"/{root}"):
                path = f"/{root}/{name}"
                if not self.disk.is_directory(path) or self.disk.is_failed(path):
                    continue
                try:
                    found = parse_directory(name)
                except ValueError:
                    continue
                if found.kind is kind:
                    yield path, found

    @property
    def has_failed_directory(self) -> bool:
        """Whether an injected fault made a log directory of this disk fail."""
        return any(self.disk.is_failed(f"/{root}") for root in self.disk.children("/"))

    def read(self, path: str) -> ReplicaLog:
        """Return the log whose segment files lie in the directory `path`."""
        names = self.disk.children(path)
        listed, log = self._logs.get(path, ((), None))
        if log is None or listed is not names:
            log = ReplicaLog(path, self._segments_of(path, names))
            self._logs[path] = names, log
        log.refresh()
        return log

    def _segments_of(self, path: str, names: Iterable[str]) -> dict[int, SegmentBatches]:
        """The segments with these file names in the directory, by base offset."""
        segments: dict[int, SegmentBatches] = {}
        for name in names:
            base = offset_of(name)
            if base is None or not name.endswith(LOG):
                continue
            inode = self.disk.inode(f"{path}/{name}")
            if inode is not None:
                known = self._segments.get(inode)
                segments[base] = known if known is not None else SegmentBatches(inode)
                self._segments[inode] = segments[base]
        return segments
