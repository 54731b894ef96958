"""Replaces the damaged ranges of a closed segment by batches of another replica.

A new segment is written beside the old one, from what is intact and what was fetched. It is checked as a whole, synced,
and swapped in as after a compaction: a kill at any moment leaves the old segment or the new one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final, NamedTuple

from klamm.log.flushing import sync_files
from klamm.log.log import Log
from klamm.log.names import CLEANED, INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX
from klamm.log.open_files import OpenFiles
from klamm.log.repair.checking import CheckedSegment, DamagedRange, Place, check_segment
from klamm.log.segment import Segment
from klamm.model.errors import KlammError
from klamm.runtime.disk import Buffer, Disk
from klamm.runtime.workers import WorkerFailed, Workers
from klamm.runtime.world import World
from klamm.wire.records import CorruptRecords

COPY_BYTES: Final = 8 * 1024 * 1024
_OPEN_FILES: Final = 4
_KINDS: Final = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)

FetchRange = Callable[[DamagedRange], AsyncIterator[Buffer]]
"""Yields the whole batches of a range, in order. Raises KlammError, OSError where the replica cannot give them."""


class CannotRepair(KlammError):
    """The segment stays as it is for now; the text says why."""


class NewSegment(NamedTuple):
    """The `.cleaned` files to index: where they are, and what the segment may hold."""

    directory: str
    base_offset: int
    end_offset: int
    latest_epoch: int | None
    index_interval_bytes: int
    index_max_bytes: int
    now_ms: int


async def repair_segment(world: World, workers: Workers, log: Log, segment: Segment, fetch: FetchRange) -> None:
    """Replace the damaged ranges of the segment with batches that `fetch` gets from another replica.

    Raises CannotRepair, StorageFailed, and what `fetch` raises.
    """
    if log.cleaning.is_running or log.cleaning.is_paused:
        raise CannotRepair(
            f"the log {log.directory} cannot be repaired while it is compacted or copied to another log directory"
        )
    slot = log.segments.slot_of(segment.base_offset)
    following = log.segments.at(slot + 1)
    if following is None or log.segments.at(slot) is not segment:
        raise CannotRepair(f"the log {log.directory} was truncated before the repair")
    log.cleaning.begin(following.base_offset)
    try:
        await _write_new_log(world.disk, segment, fetch)
        new = NewSegment(
            log.directory,
            segment.base_offset,
            following.base_offset,
            log.latest_epoch,
            log.config.index_interval_bytes,
            log.config.segment_index_bytes,
            world.clock.now_ms(),
        )
        result = await workers.run(index_new_segment, world.disk, new)
        if isinstance(result, str):
            raise CannotRepair(f"the fetched batches do not fit into {segment.log_path}: {result}")
        if not await log.replace_segments([segment.base_offset], result):
            raise CannotRepair(f"the log {log.directory} was truncated during the repair")
    except WorkerFailed as error:
        raise CannotRepair(str(error)) from error
    finally:
        await asyncio.shield(log.end_cleaning("repair"))


async def _write_new_log(disk: Disk, segment: Segment, fetch: FetchRange) -> None:
    """Write the `.cleaned` log file: the intact bytes of the segment, and fetched batches for the damaged ranges."""
    target = segment.path(LOG) + CLEANED
    transactions = segment.path(TRANSACTION_INDEX)
    await disk.in_thread(_begin, disk, target, transactions)
    size = position = 0
    for damage in segment.damaged:
        size = await _copy(disk, segment, position, damage.position, target, size)
        async for content in fetch(damage):
            size += await disk.in_thread(_write, disk, target, content, size)
        position = damage.end_position
    await _copy(disk, segment, position, segment.size, target, size)


async def _copy(disk: Disk, segment: Segment, start: int, end: int, target: str, at: int) -> int:
    """Append bytes of the segment to the target, which has `at` bytes; returns its new size. Raises CannotRepair."""
    for position in range(start, end, COPY_BYTES):
        count = min(COPY_BYTES, end - position)
        if await disk.in_thread(_copy_piece, disk, segment.log_path, position, count, target, at) != count:
            raise CannotRepair(f"{segment.log_path} was truncated during the repair")
        at += count
    return at


def _begin(disk: Disk, target: str, transactions: str) -> None:
    """Create the new log file, and copy the transaction index, which names offsets and no file positions."""
    for path in (target, transactions + CLEANED):
        if disk.exists(path):
            disk.remove(path)
    disk.open(target, create=True).close()
    if disk.exists(transactions):
        content = disk.read(transactions)
        disk.open(transactions + CLEANED, create=True).close()
        _write(disk, transactions + CLEANED, content, 0)


def _copy_piece(disk: Disk, source: str, position: int, count: int, target: str, at: int) -> int:
    """Copy bytes from one file to another; returns how many there were."""
    file = disk.open_read(source)
    try:
        content = file.pread(count, position)
    finally:
        file.close()
    return _write(disk, target, content, at)


def _write(disk: Disk, path: str, content: Buffer, at: int) -> int:
    """Write the bytes to the file at position `at`; returns their number."""
    file = disk.open(path)
    try:
        return file.pwrite((content,), at)
    finally:
        file.close()


def index_new_segment(disk: Disk, new: NewSegment) -> int | str:
    """Check the whole `.cleaned` log file, write its indexes and sync all files.

    Returns its size, or why it cannot be used. Raises OSError.
    """
    files = OpenFiles(disk, _OPEN_FILES)
    segment = Segment(
        files,
        new.directory,
        new.base_offset,
        index_interval_bytes=new.index_interval_bytes,
        index_max_bytes=new.index_max_bytes,
        created_ms=new.now_ms,
        suffix=CLEANED,
    )
    size = disk.size(segment.log_path)
    checked = CheckedSegment(segment.log_path, "", size, new.base_offset, new.end_offset, new.latest_epoch)
    progress = check_segment(disk, checked, Place(0, new.base_offset), None, size)
    if progress.damaged or progress.errno is not None:
        return progress.damaged[0].reason if progress.damaged else progress.error
    try:
        segment.size = size
        for found in list(segment.headers(0)) if size else ():
            header = found.header
            segment.index_batch(
                found.position, header.size, header.base_offset, header.last_offset, header.max_timestamp
            )
        segment.seal()
    except CorruptRecords as error:
        return str(error)
    finally:
        files.close()
    sync_files(disk, [segment.path(kind) for kind in _KINDS], ())
    return size
