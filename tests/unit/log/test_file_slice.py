"""What a fetch answers is read later: the bytes that were chosen then, or none."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from tests.unit.log.support import Partition, batch, read_bytes

from klamm.log.errors import SliceLost
from klamm.log.file_slice import FileSlice
from klamm.log.log import Log
from klamm.log.open_files import OpenFiles
from klamm.runtime.disk import RealDisk

MAX = 1 << 20
SIZE = len(batch("a"))


def filled(orders: Partition, count: int = 3, **configs: object) -> Log:
    """A log with some batches."""
    log = orders.open(**configs)
    for number in range(count):
        log.append_as_leader(batch(chr(ord("a") + number)), 0)
    log.update_high_watermark(count)
    return log


def slice_of(log: Log, offset: int = 0, max_bytes: int = MAX, bound: int = 1 << 40) -> FileSlice:
    found = log.slice(offset, max_bytes, bound, True).records
    assert isinstance(found, FileSlice)
    return found


def content(found: FileSlice) -> bytes:
    parts, at = [], 0
    while at < len(found):
        part = found.read_cached(at, 50)
        assert part
        parts.append(bytes(part))
        at += len(part)
    return b"".join(parts)


@pytest.mark.parametrize(
    ("offset", "max_bytes", "bound"), [(0, MAX, 3), (1, MAX, 3), (0, MAX, 2), (0, SIZE + 5, 3), (1, 1, 3), (2, MAX, 2)]
)
def test_a_file_slice_of_a_log_returns_the_same_bytes_as_a_read(
    orders: Partition, offset: int, max_bytes: int, bound: int
) -> None:
    log = filled(orders)
    at_once = log.read(offset, max_bytes, bound).records

    later = log.slice(offset, max_bytes, bound, True).records

    assert len(later) == len(at_once)
    assert (content(later) if isinstance(later, FileSlice) else later) == at_once


def truncate_and_write_elsewhere(log: Log) -> None:
    """Behind the slice: it ends where the cut is."""
    log.append_as_leader(batch("x"), 0)
    log.truncate_to(3)
    log.append_as_leader(batch("y"), 1)


def start_over(log: Log) -> None:
    """Truncate the log fully, and append a larger batch."""
    log.truncate_fully_and_start_at(0)
    log.append_as_leader(batch("z" * 500), 1)


def fail(log: Log) -> None:
    """Mark the log as failed."""
    log.mark_failed()


CHANGES: dict[str, Callable[[Log], object]] = {
    "nothing": lambda log: None,
    "append": lambda log: log.append_as_leader(batch("x"), 0),
    "truncation behind the slice": truncate_and_write_elsewhere,
    "truncation of everything": start_over,
    "other files in use": lambda log: log.segments.active._files.close(),
    "directory out of use": fail,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_file_slice_returns_its_bytes_after_the_log_changed(
    orders: Partition, change: Callable[[Log], object]
) -> None:
    log = filled(orders)
    expected = read_bytes(log, 0, MAX)
    found = slice_of(log)
    first = found.read_cached(0, 10)

    change(log)

    assert bytes(first or b"") == expected[:10]
    assert content(found) == expected


def test_a_file_slice_returns_its_bytes_after_retention_deleted_the_segment(orders: Partition) -> None:
    log = filled(orders, segment_bytes=SIZE, retention_bytes=0, file_delete_delay_ms=0)
    expected = read_bytes(log, 0, MAX)
    found = slice_of(log)
    path = log.segments.first.log_path

    assert log.delete_old_segments()

    assert not Path(path).exists()
    assert content(found) == expected


async def test_a_file_slice_of_a_truncated_segment_raises_slice_lost(orders: Partition) -> None:
    """The next leader's records come to stand where the slice has still to read."""
    log = filled(orders)
    found = slice_of(log)
    assert found.read_cached(0, SIZE)

    log.truncate_to(2)
    log.append_as_leader(batch("Z"), 1)

    with pytest.raises(SliceLost, match="truncated to"):
        found.read_cached(2 * SIZE, SIZE)
    with pytest.raises(SliceLost, match="truncated to"):
        await found.read(2 * SIZE, SIZE)
    assert content(slice_of(log)) == read_bytes(log, 0, MAX)


async def test_a_truncation_while_a_thread_reads_a_file_slice_raises_slice_lost(orders: Partition) -> None:
    log = filled(orders)
    found = slice_of(log)
    disk = log._world.disk

    async def in_thread(call, *args):  # type: ignore[no-untyped-def]
        log.truncate_to(2)
        log.append_as_leader(batch("Z"), 1)
        return call(*args)

    found._disk = type("Disk", (), {"in_thread": staticmethod(in_thread)})()
    with pytest.raises(SliceLost, match="truncated to"):
        await found.read(0, 3 * SIZE)
    assert disk is log._world.disk


def test_reading_a_file_slice_of_a_closed_file_truncated_meanwhile_raises_slice_lost(orders: Partition) -> None:
    log = filled(orders)
    found = slice_of(log)
    log.segments.active._files.close()

    log.truncate_to(2)
    log.append_as_leader(batch("Z"), 1)

    with pytest.raises(SliceLost):
        content(found)


async def test_a_file_slice_truncated_by_another_process_raises_slice_lost(orders: Partition) -> None:
    log = filled(orders)
    found = slice_of(log)
    os.truncate(log.segments.active.log_path, SIZE)

    with pytest.raises(SliceLost, match="another process truncated it"):
        content(found)
    with pytest.raises(SliceLost, match="another process truncated it"):
        await found.read(0, 3 * SIZE)
    assert len(slice_of(log)) == SIZE  # what is asked for from now on


def test_an_io_error_while_reading_a_file_slice_marks_the_log_as_failed(orders: Partition) -> None:
    log = filled(orders)
    found = slice_of(log)

    class Broken:
        def pread_cached(self, count: int, position: int) -> bytes:
            raise OSError(5, "Input/output error")

        def close(self) -> None:
            pass

    found._shared.file = cast(Any, Broken())
    with pytest.raises(SliceLost, match="Input/output error"):
        content(found)
    assert log.has_failed


def test_records_are_copied_into_memory_when_readers_hold_too_many_open_files(orders: Partition) -> None:
    log = filled(orders)
    files = OpenFiles(RealDisk(), most=2)
    for number in range(2):
        path = Path(orders.directory) / f"kept-{number}"
        path.write_bytes(b"x")
    for segment in log.segments:
        segment.use(files)
    kept = [files.lend(f"{orders.directory}/kept-{number}") for number in range(2)]

    assert log.slice(0, MAX, 3, True).records == read_bytes(log, 0, MAX)

    kept.clear()
    assert content(slice_of(log)) == read_bytes(log, 0, MAX)


def test_a_file_dropped_from_the_cache_is_closed_when_its_last_reader_ends(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abc")

    def descriptors() -> int:
        return [file.path for file in psutil.Process().open_files()].count(str(path))  # not those of other tests

    files = OpenFiles(RealDisk())
    kept = [files.lend(str(path)) for _ in range(3)]
    files.forget(str(path))
    assert descriptors() == 1

    kept.clear()

    assert descriptors() == 0


def test_a_file_slice_kept_over_a_truncation_notices_the_next_one(orders: Partition) -> None:
    log = filled(orders, 4)
    chosen = slice_of(log, 0, 2 * SIZE)
    log.truncate_to(3)
    assert len(content(chosen)) == 2 * SIZE

    log.truncate_to(1)
    for value in "xyz":
        log.append_as_leader(batch(value), 1)

    with pytest.raises(SliceLost):
        content(chosen)
