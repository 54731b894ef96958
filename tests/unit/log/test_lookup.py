"""Offsets by timestamp, against the plain list of all records."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.log.support import NOW_MS, Partition, _walk, batch

from klamm.log import segment
from klamm.log.loader import CheckpointedState
from klamm.log.log import Log
from klamm.log.scan import ScannedBatch, scan_headers
from klamm.wire.records import Codec, NewRecord, build_batch, records


def fill(log: Log, times: list[list[int]]) -> None:
    for number, batch_times in enumerate(times):
        content = build_batch([NewRecord(b"v", None, time) for time in batch_times], Codec(number % 5))
        log.append_as_leader(content, number // 3)


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

    for timestamp in range(32):
        expected = next((entry for entry in known if entry[0] >= timestamp), None)
        assert log.offset_for_timestamp(timestamp) == expected
    largest = max((entry[0] for entry in known), default=None)
    found = log.max_timestamp()
    assert found == next((entry for entry in known if entry[0] == largest), None)
    log.mark_failed()


def test_offset_lookup_by_timestamp_does_not_find_records_without_timestamp(orders: Partition) -> None:
    log = orders.open()
    assert (log.max_timestamp(), log.offset_for_timestamp(0)) == (None, None)
    fill(log, [[-1], [-1]])

    assert (log.max_timestamp(), log.offset_for_timestamp(0)) == (None, None)


def test_offset_lookup_by_timestamp_uses_log_append_time(orders: Partition) -> None:
    log = orders.open(message_timestamp_type="LogAppendTime")
    fill(log, [[5, 6], [7]])

    found = log.offset_for_timestamp(NOW_MS)

    assert found is not None
    assert (found.timestamp, found.offset) == (NOW_MS, 0)


def test_offset_lookup_by_timestamp_does_not_find_truncated_records(orders: Partition) -> None:
    log = orders.open(index_interval_bytes=0)
    fill(log, [[1], [2], [3], [4], [5], [10]])
    log.truncate_to(3)
    fill(log, [[12], [4], [13], [9]])

    found = log.offset_for_timestamp(11)

    assert found is not None
    assert (found.timestamp, found.offset) == (12, 3)
    assert log.offset_for_timestamp(4) == (12, 3, 0)


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

    newest = NOW_MS + 899 * distinct_timestamps // 1000
    assert log.segments.active.largest_timestamp().timestamp == newest
    assert log.offset_for_timestamp(newest) == (newest, -(-1000 * (newest - NOW_MS) // distinct_timestamps), 0)
    assert log.max_timestamp() == log.offset_for_timestamp(newest)
    assert len(headers_read) < 60
