"""Reads the batches of one replica between two offsets, while a broker may roll, compact or delete its segments."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple
from uuid import UUID

import numpy as np

from klamm.log.names import PARTITION_METADATA
from klamm.log.open_files import OpenFiles
from klamm.log.partition_metadata import read_topic_id
from klamm.log.replicas.directories import StoredReplica, was_cleaned
from klamm.log.replicas.segment_files import SegmentFile, SegmentFiles, list_segment_files, open_segment
from klamm.log.runs import is_legacy_at, is_legacy_intact_at, legacy_run_at, run_at
from klamm.log.segment import Segment
from klamm.model.errors import KlammError
from klamm.model.topic_ids import id_to_text
from klamm.runtime.disk import Disk, File
from klamm.wire.records.batch import HEADER_BYTES, IDENTIFYING_BYTES, BatchHeader, CorruptRecords, header_at
from klamm.wire.records.legacy import is_compressed
from klamm.wire.records.up_conversion import grouped
from klamm.wire.vectors.any_format import converted
from klamm.wire.vectors.batches import CorruptBatch, Run

FIRST_READ_BYTES: Final = 256 * 1024
"""Of a small range; each further read of a segment has twice as many bytes."""
MAX_READ_BYTES: Final = 8 << 20
_MAX_VANISHED: Final = 1_000
"""Times that a file may vanish between its listing and its opening, without any batch read in between."""


class StoredRun(NamedTuple):
    """Batches read at once, from byte `position` of the file `path` on; checksums are not verified yet.

    Those that were converted from an old format have other positions and sizes than in the file.
    """

    run: Run
    path: str
    position: int


class _FileRun(NamedTuple):
    """Batches of a file, the bytes that they have there, and where each begins in these."""

    run: Run
    length: int
    positions: Sequence[int]


class Gap(NamedTuple):
    """Offsets that the replica lacks, though compaction did not remove them; `end` is exclusive."""

    start: int
    end: int
    reason: str


class ReplicaGone(KlammError):
    """The replica is not in its directory any more."""


class OldFormat(CorruptBatch):
    """An intact message of format 0 or 1, which this reader does not convert."""


class ReplicaReader:
    """Goes from `offset` to before `end`; gaps that compaction may have left, here or on the leader, are passed over.

    `topic_id` is that of the topic to read, None where it has none: a directory of another topic counts as gone.
    `converts`: whether messages of format 0 and 1 come as batches of format 2; else one of them raises OldFormat.
    Raises ReplicaGone, CorruptBatch with file and position, CorruptFile, OSError.
    """

    def __init__(
        self,
        disk: Disk,
        replica: StoredReplica,
        topic_id: UUID | None,
        start: int,
        end: int,
        *,
        converts: bool = False,
    ) -> None:
        self.offset = start
        self._disk = disk
        self._replica = replica
        self._directory = replica.directory
        self._topic_id = topic_id
        self._end = end
        self._converts = converts
        self._files = OpenFiles(disk, most=1)
        self._done = -1
        """The base offset of the last segment that was read to its end."""
        self._has_copied_gaps = False
        """Whether a gap was found that the log has from its leader."""

    def __iter__(self) -> Iterator[StoredRun | Gap]:
        self._listed = self._list()
        vanished = 0
        while self.offset < self._end:
            file = self._listed.at(self.offset, self._done)
            if file is None or file.base_offset > self.offset:
                if not self._has_changed():
                    yield from self._pass_gap(file)
                continue
            try:
                segment = self._open(file)
            except FileNotFoundError:
                vanished += 1
                if not self._has_changed() and vanished > _MAX_VANISHED:
                    raise
                continue
            before = self.offset
            yield from self._read(segment)
            self._done = file.base_offset
            vanished = vanished if self.offset == before else 0
        self._files.close()

    # ---- files

    def _list(self) -> SegmentFiles:
        """The segments as they are now. Raises ReplicaGone."""
        try:
            return list_segment_files(self._disk, self._directory)
        except FileNotFoundError as error:
            raise self._gone() from error

    def _has_changed(self) -> bool:
        """List the segments again; whether the listing is another one, which is then used."""
        before, self._listed = self._listed, self._list()
        if before.segments == self._listed.segments:
            return False
        self._done = -1
        return True

    def _open(self, file: SegmentFile) -> Segment:
        """Open a segment. Raises FileNotFoundError where it was renamed or deleted, ReplicaGone."""
        segment = open_segment(self._files, self._directory, file)
        # only now: a directory that was replaced before has another id, and one that is replaced later does not matter
        if self._topic_id is None:
            return segment
        found = read_topic_id(self._disk, f"{self._directory}/{PARTITION_METADATA}")
        if found is None:
            raise self._gone()
        if found != self._topic_id:
            raise ReplicaGone(
                f"topic {self._replica.partition.topic} was deleted and created again: {self._directory} had topic id "
                f"{id_to_text(self._topic_id)} and has {id_to_text(found)} now"
            )
        return segment

    def _gone(self) -> ReplicaGone:
        """The error for a directory that was renamed or removed."""
        return ReplicaGone(f"{self._directory} is gone: the topic was deleted, or the replica was moved")

    # ---- batches

    def _read(self, segment: Segment) -> Iterator[StoredRun]:
        """Yield the batches of a segment from the current offset on."""
        position = begin = self._position_in(segment)
        file = self._files.get(segment.log_path)
        read_bytes = FIRST_READ_BYTES
        while self.offset < self._end and position < (size := file.size()):
            try:
                run, length, positions = self._run_at(file, position, size, read_bytes)
            except CorruptBatch as error:
                raise self._unreadable(segment, file, position + (error.position or 0), error) from error
            if not run.positions:  # the next batch is behind the end
                self._check_behind_end(segment, file, position)
                self.offset = self._end
                return
            wrong = self._wrong_offset(segment, run, position + length, is_first=position == begin)
            intact = run if wrong is None else run.first(wrong[0])
            if intact.positions:
                yield StoredRun(intact, segment.log_path, position)
                self.offset = intact.next_offset
            if wrong is not None:
                raise CorruptBatch(self._damage(segment, position + positions[wrong[0]], wrong[1]))
            position += length
            read_bytes = min(2 * read_bytes, MAX_READ_BYTES)

    def _run_at(self, file: File, position: int, size: int, read_bytes: int) -> _FileRun:
        """The batches from this position on, before the end; messages of old formats are converted.

        Raises CorruptBatch.
        """
        if not (self._converts and is_legacy_at(file, position)):
            run = run_at(file, position, size, read_bytes, self._end)
            return _FileRun(run, sum(run.sizes), run.positions)
        try:
            old = legacy_run_at(file, position, size, read_bytes)
        except CorruptRecords as error:
            raise CorruptBatch(str(error), 0) from error
        headers = list(_before(old.headers, self._end))
        self._check_no_gaps(headers)
        length = headers[-1].position + headers[-1].size if headers else 0
        positions = [group[0].position for group in grouped(headers)]
        return _FileRun(converted(memoryview(old.buffer), headers), length, positions)

    def _check_no_gaps(self, headers: list[BatchHeader]) -> None:
        """Raise CorruptBatch where adjacent uncompressed messages, which may become one batch, leave a gap."""
        for before, header in pairwise(headers):
            gap = not is_compressed(header) and header.base_offset != before.next_offset
            if gap and not self._may_have_gaps():
                raise CorruptBatch(
                    f"the message with offset {header.base_offset} does not follow the one with offset "
                    f"{before.base_offset}, although the log was never compacted",
                    header.position,
                )

    def _position_in(self, segment: Segment) -> int:
        """Where to begin in the segment's file: at the batch with the current offset, or at the first damage before."""
        position = 0
        try:
            for found in segment.headers_from(self.offset):
                if found.header.last_offset >= self.offset:
                    return found.position
                position = found.position + found.header.size
        except CorruptRecords:
            pass  # the read from there says what is wrong
        return position

    def _unreadable(self, segment: Segment, file: File, position: int, error: CorruptBatch) -> CorruptBatch:
        """The error for what is at this position of the file: damage, or a message of an old format."""
        if not self._converts and is_legacy_intact_at(file, position, file.size()):
            return OldFormat(
                self._damage(
                    segment, position, "the message has format 0 or 1, and only batches of format 2 are read here"
                )
            )
        return CorruptBatch(self._damage(segment, position, str(error)))

    def _damage(self, segment: Segment, position: int, problem: str) -> str:
        """Return the error text for a batch that cannot be read: file, byte, and what is wrong."""
        return f"{self._replica.partition}, offset {self.offset}: {segment.log_path}, byte {position}: {problem}"

    def _wrong_offset(self, segment: Segment, run: Run, following: int, *, is_first: bool) -> tuple[int, str] | None:
        """The first batch whose offset, which no checksum covers, falls or leaves a gap that cannot be right.

        Returns its number and what is wrong. The first run may begin with a batch that has the current offset, all
        others after the run before. `following` is the position of the next batch in the file.
        """
        first = run.headers["base_offset"].astype(np.int64)
        least = max(min(int(first[0]), self.offset), segment.base_offset) if is_first else self.offset
        follows = np.concatenate(([least], run.last_offsets[:-1] + 1))
        falls = (first < follows) | (run.headers["last_offset_delta"] < 0)
        jumps = first > follows
        if jumps.any() and not self._may_have_gaps():
            jumps[:-1] &= falls[1:]
            jumps[-1] &= not self._is_right_behind(segment, following, run.next_offset)
            self._has_copied_gaps = not jumps.any()
        elif jumps.any():
            jumps[:] = False
        if not (falls | jumps).any():
            return None
        i = int(np.argmax(falls | jumps))
        problem = "is not after the batch before" if falls[i] else "does not follow the batch before"
        never = "" if falls[i] else ", although the log was never compacted"
        return i, f"the base offset {first[i]} of a batch {problem}, which ends at {follows[i] - 1}{never}"

    def _check_behind_end(self, segment: Segment, file: File, position: int) -> None:
        """Raise CorruptBatch where the batch at this position is behind the end only because its offset is damaged."""
        try:
            header = header_at(file.pread(HEADER_BYTES, position), 0)
        except CorruptRecords as error:
            raise CorruptBatch(self._damage(segment, position, str(error))) from error
        following = self._next_base(segment, position + header.size)
        is_wrong = not self._may_have_gaps() if following is None else following < header.next_offset
        if is_wrong:
            problem = f"the base offset {header.base_offset} of a batch does not follow the batch before"
            raise CorruptBatch(self._damage(segment, position, problem))

    def _is_right_behind(self, segment: Segment, position: int, next_offset: int) -> bool:
        """Whether what begins at this position shows that the base offset of the batch before it is right.

        A follower has the gaps that compaction left in its leader's log, and nothing in its directory says so. But
        behind a batch whose base offset is damaged, the next batch, or the high watermark, is too low.
        """
        following = self._next_base(segment, position)
        return next_offset <= (self._replica.high_watermark or 0 if following is None else following)

    def _next_base(self, segment: Segment, position: int) -> int | None:
        """The base offset of what begins at this position of a segment, or of the next segment; None at the end."""
        if position + IDENTIFYING_BYTES <= segment.file_size():
            start = self._files.get(segment.log_path).pread(IDENTIFYING_BYTES, position)
            if any(start):  # a preallocated file ends with zeros
                return int.from_bytes(start[:8])
        later = (file.base_offset for file in self._listed.segments if file.base_offset > segment.base_offset)
        return next(later, None)

    # ---- gaps

    def _pass_gap(self, following: SegmentFile | None) -> Iterator[Gap]:
        """Move to the next segment, or to the end; yield the gap unless compaction may have left it."""
        start = self.offset
        is_head = bool(self._listed.segments) and start < self._listed.segments[0].base_offset
        self.offset = self._end if following is None else min(self._end, following.base_offset)
        if is_head:
            assert following is not None
            reason = "retention or a DeleteRecords request deleted them"
            yield Gap(start, self.offset, f"{reason}; the log now begins at offset {following.base_offset}")
        elif following is None:
            yield Gap(start, self.offset, f"the log in {self._directory} ends at offset {start}")
        elif not self._may_have_gaps():
            yield Gap(
                start,
                self.offset,
                f"no segment in {self._directory} has these offsets, and the log was never compacted",
            )

    def _may_have_gaps(self) -> bool:
        """Whether compaction may have removed offsets of this log, or of its leader's."""
        if self._has_copied_gaps or self._listed.is_changing:
            return True
        return was_cleaned(self._disk, self._replica.log_dir, self._replica.partition)


def _before(headers: Iterable[BatchHeader], end: int) -> Iterator[BatchHeader]:
    """The messages that may reach before the offset `end`; a wrapper has the offset of its last message."""
    for header in headers:
        if header.base_offset >= end and not is_compressed(header):
            return
        yield header
        if header.next_offset >= end:
            return
