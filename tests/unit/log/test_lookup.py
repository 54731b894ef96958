"""Offsets by timestamp, against the plain list of all records."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.log.support import NOW_MS, Partition, _walk, batch

from klamm.log import segment
from klamm.log.errors import StorageFailed
from klamm.log.loader import CheckpointedState
from klamm.log.log import Log
from klamm.log.lookup import FoundOffset, find_in_files
from klamm.log.scan import ScannedBatch, scan_headers
from klamm.runtime.workers import InlineWorkers
from klamm.wire.records import Codec, NewRecord, build_batch, header_at, records
from klamm.wire.records.batch import HEADER_BYTES, sealed_batch
from klamm.wire.records.legacy import Message, encode_messages

P = ParamSpec("P")
T = TypeVar("T")


def fill(log: Log, times: list[list[int]]) -> None:
    for number, batch_times in enumerate(times):
        content = build_batch([NewRecord(b"v", None, time) for time in batch_times], Codec(number % 5))
        log.append_as_leader(content, number // 3)


def at_timestamp(log: Log, timestamp: int) -> FoundOffset | None:
    """What the log finds for a timestamp."""
    return asyncio.run(log.offset_for_timestamp(timestamp))


def at_timestamps(log: Log, timestamps: Iterable[int]) -> list[FoundOffset | None]:
    """What the log finds for each timestamp, on one event loop."""

    async def find() -> list[FoundOffset | None]:
        return [await log.offset_for_timestamp(timestamp) for timestamp in timestamps]

    return asyncio.run(find())


def newest(log: Log) -> FoundOffset | None:
    """What the log finds for the largest timestamp."""
    return asyncio.run(log.max_timestamp())


def model(log: Log) -> list[tuple[int, int, int]]:
    """(timestamp, offset, leader epoch) of every record."""
    return [
        (r.timestamp, r.offset, header.partition_leader_epoch)
        for header, buffer in _walk(log, None)
        for r in records(buffer, header)
        if r.offset >= log.start_offset
    ]


@settings(max_examples=60)
@given(
    times=st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), min_size=1, max_size=14),
    start=st.integers(0, 8),
    reopened=st.booleans(),
    cut=st.none() | st.integers(0, 40),
    more=st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), max_size=6),
)
def test_offset_lookup_by_timestamp_and_max_timestamp_match_a_full_log_scan(
    tmp_path_factory: pytest.TempPathFactory,
    times: list[list[int]],
    start: int,
    reopened: bool,
    cut: int | None,
    more: list[list[int]],
) -> None:
    from tests.unit.log.support import ManualClock

    from klamm.runtime.disk import RealDisk
    from klamm.runtime.network import RealNetwork
    from klamm.runtime.randomness import RealRandomness
    from klamm.runtime.world import World

    world = World(ManualClock(), RealNetwork(), RealDisk(), RealRandomness())
    partition = Partition(world, f"{tmp_path_factory.mktemp('lookup')}/orders-0")
    log = partition.open(segment_bytes=350, index_interval_bytes=100)
    fill(log, times)
    if cut is not None:
        log.truncate_to(cut)
        fill(log, more)
    log.update_high_watermark(log.end_offset)
    log.advance_start_offset(min(start, log.end_offset))
    if reopened:
        log.close()
        log = partition.open(CheckpointedState(True, log.end_offset, log.start_offset), segment_bytes=350)
    known = model(log)

    timestamps = range(32)
    expected = [next((entry for entry in known if entry[0] >= timestamp), None) for timestamp in timestamps]
    assert at_timestamps(log, timestamps) == expected
    largest = max((entry[0] for entry in known), default=None)
    found = newest(log)
    assert found == next((entry for entry in known if entry[0] == largest), None)
    log.mark_failed()


def test_offset_lookup_by_timestamp_does_not_find_records_without_timestamp(orders: Partition) -> None:
    log = orders.open()
    assert (newest(log), at_timestamp(log, 0)) == (None, None)
    fill(log, [[-1], [-1]])

    assert (newest(log), at_timestamp(log, 0)) == (None, None)


def test_offset_lookup_by_timestamp_uses_log_append_time(orders: Partition) -> None:
    log = orders.open(message_timestamp_type="LogAppendTime")
    fill(log, [[5, 6], [7]])

    found = at_timestamp(log, NOW_MS)

    assert found is not None
    assert (found.timestamp, found.offset) == (NOW_MS, 0)


def test_offset_lookup_by_timestamp_does_not_find_truncated_records(orders: Partition) -> None:
    log = orders.open(index_interval_bytes=0)
    fill(log, [[1], [2], [3], [4], [5], [10]])
    log.truncate_to(3)
    fill(log, [[12], [4], [13], [9]])

    found = at_timestamp(log, 11)

    assert found is not None
    assert (found.timestamp, found.offset) == (12, 3)
    assert at_timestamp(log, 4) == (12, 3, 0)


@pytest.fixture
def headers_read(monkeypatch: pytest.MonkeyPatch) -> list[ScannedBatch]:
    """Collects the batch headers that are read from files."""
    seen: list[ScannedBatch] = []

    def scan(*arguments: Any) -> Iterator[ScannedBatch]:
        for found in scan_headers(*arguments):
            seen.append(found)
            yield found

    monkeypatch.setattr(segment, "scan_headers", scan)
    return seen


@pytest.mark.parametrize("distinct_timestamps", [1, 2, 1000])
def test_truncation_and_timestamp_lookup_read_few_batch_headers(
    orders: Partition, headers_read: list[ScannedBatch], distinct_timestamps: int
) -> None:
    log = orders.open(index_interval_bytes=300)
    for number in range(1000):
        log.append_as_leader(batch("value", timestamp=NOW_MS + number * distinct_timestamps // 1000), 0)
    headers_read.clear()

    log.truncate_to(900)

    last = NOW_MS + 899 * distinct_timestamps // 1000
    assert log.segments.active.largest_timestamp().timestamp == last
    assert at_timestamp(log, last) == (last, -(-1000 * (last - NOW_MS) // distinct_timestamps), 0)
    assert newest(log) == at_timestamp(log, last)
    assert len(headers_read) < 60


def announcing(timestamp: int, *times: int) -> bytes:
    """A batch with records of these times, whose header announces another largest timestamp."""
    content = build_batch([NewRecord(b"v", None, time) for time in times])
    header = header_at(content)
    return sealed_batch(header._replace(max_timestamp=timestamp), content[HEADER_BYTES : header.size])


SEARCHED_BY_WORKER = {
    "a compressed batch": ([build_batch([NewRecord(b"v", None, 5)], Codec.ZSTD)], {}, (5, 0, 0)),
    "a batch of many records": ([build_batch([NewRecord(b"", None, n) for n in range(129)])], {}, (5, 5, 0)),
    "a large batch": ([build_batch([NewRecord(bytes(17_000), None, 5)])], {}, (5, 0, 0)),
    "many batches": (
        [batch("v", timestamp=n // 300 * 5) for n in range(301)],
        {"index_interval_bytes": 1 << 20},
        (5, 300, 0),
    ),
}


@pytest.mark.parametrize(("content", "configs", "expected"), SEARCHED_BY_WORKER.values(), ids=SEARCHED_BY_WORKER)
def test_a_timestamp_lookup_that_reads_much_runs_in_a_worker(
    orders: Partition, content: list[bytes], configs: dict[str, object], expected: tuple[int, int, int]
) -> None:
    workers = RecordingWorkers()
    orders.world = replace(orders.world, workers=workers)
    log = orders.open(**configs)
    for each in content:
        log.append_as_leader(each, 0)

    assert at_timestamp(log, 5) == expected
    assert workers.calls == [find_in_files]


def test_a_timestamp_lookup_of_a_small_batch_needs_no_worker(orders: Partition) -> None:
    workers = RecordingWorkers()
    orders.world = replace(orders.world, workers=workers)
    log = orders.open()
    fill(log, [[1, 5]])

    assert at_timestamp(log, 2) == (5, 1, 0)
    assert workers.calls == []


def test_batches_that_announce_a_wrong_largest_timestamp_do_not_mislead_offset_lookup(orders: Partition) -> None:
    log = orders.open()
    for content in (announcing(1_000, 3), announcing(7, 7), announcing(900, 5)):
        log.append_as_leader(content, 0)

    assert newest(log) == (7, 1, 0)
    assert at_timestamp(log, 4) == (7, 1, 0)
    assert at_timestamp(log, 8) is None


def test_a_timestamp_lookup_reads_messages_of_old_formats(orders: Partition) -> None:
    log = orders.open()
    old = [Message(0, 10, None, b"a"), Message(1, 20, None, b"b"), Message(2, 30, None, b"c")]
    log.append_as_follower(encode_messages(old[:1], 1, Codec.NONE) + encode_messages(old[1:], 1, Codec.GZIP))

    assert [at_timestamp(log, time) for time in (5, 15, 21, 31)] == [(10, 0, -1), (20, 1, -1), (30, 2, -1), None]
    assert newest(log) == (30, 2, -1)


def test_a_timestamp_lookup_is_repeated_when_its_segment_is_deleted_meanwhile(orders: Partition) -> None:
    workers = RecordingWorkers()
    orders.world = replace(orders.world, workers=workers)
    log = orders.open(retention_bytes=100, retention_ms=-1)
    for time in (5, 6):
        log.append_as_leader(build_batch([NewRecord(b"v", None, time)], Codec.ZSTD), 0)
        log.roll()
    log.append_as_leader(build_batch([NewRecord(b"v", None, 7)], Codec.ZSTD), 0)
    log.update_high_watermark(3)
    workers.before_first_call = log.delete_old_segments

    assert at_timestamp(log, 5) == (6, 1, 0)
    assert len(workers.calls) == 2


@pytest.mark.parametrize("kind", ["removed", "replaced"])
def test_segments_that_are_replaced_during_each_attempt_of_a_timestamp_lookup_do_not_fail_the_log(
    orders: Partition, kind: str
) -> None:
    """Compaction replaces one segment after the other, which must not look like a broken disk or damaged records."""
    workers = RecordingWorkers()
    orders.world = replace(orders.world, workers=workers)
    log = orders.open(retention_bytes=-1, retention_ms=-1)
    for time in range(9):
        log.append_as_leader(build_batch([NewRecord(b"v", None, time)] * 9, Codec.ZSTD), 0)
        log.roll()
    log.update_high_watermark(log.end_offset)

    def change() -> None:
        first, second = [segment for segment in log.segments if segment.size][:2]
        if kind == "removed":
            log.advance_start_offset(second.base_offset)
            log.delete_old_segments()
        else:
            log._local.remove([first])
            log._local._create_segment(first.base_offset)

    workers.before_each_call = change

    with pytest.raises(StorageFailed, match="replaced each time"):
        at_timestamp(log, 0)

    assert (len(workers.calls), log.has_failed) == (3, False)


class RecordingWorkers(InlineWorkers):
    """Remembers the calls that it runs."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.before_first_call: Callable[[], object] = lambda: None
        self.before_each_call: Callable[[], object] = lambda: None

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if not self.calls:
            self.before_first_call()
        self.before_each_call()
        self.calls.append(call)
        return await super().run(call, *args, **kwargs)
