"""Segment files with `preallocate`: their size, what ends it, and starts that find zeros behind the last batch."""

import os
from pathlib import Path

import pytest
from tests.support.managed_logs import get_or_create
from tests.unit.log.simulated_node import SimulatedNode
from tests.unit.log.support import ORDERS, Partition, batch, values_of

from klamm.config.topic_config import TopicConfig
from klamm.log.loader import CheckpointedState
from klamm.log.log import Log
from klamm.log.manager import LogManager
from klamm.sim.power_loss import PowerLoss

SEGMENT_BYTES = 1000
CLEAN = CheckpointedState(is_clean=True)


def opened(orders: Partition, known: CheckpointedState | None = None, *, preallocate: bool = True) -> Log:
    return orders.open(known, segment_bytes=SEGMENT_BYTES, preallocate=str(preallocate).lower())


def fill(log: Log, count: int, first: int = 0) -> list[str]:
    """Append so many batches of one value, about ten to a segment; returns the values."""
    values = [f"value {first + number}" for number in range(count)]
    for value in values:
        log.append_as_leader(batch(value), 0)
    return values


def file_sizes(log: Log) -> list[int]:
    return [Path(segment.log_path).stat().st_size for segment in log.segments]


def test_a_preallocated_segment_has_its_full_size_until_it_is_rolled(orders: Partition) -> None:
    log = opened(orders)
    assert file_sizes(log) == [SEGMENT_BYTES]

    values = fill(log, 30)

    sizes = [segment.size for segment in log.segments]
    assert len(sizes) == 3
    assert file_sizes(log) == [*sizes[:-1], SEGMENT_BYTES]
    assert sizes[-1] < SEGMENT_BYTES
    assert log.size == sum(sizes)
    assert values_of(log) == values


def test_a_reader_keeps_what_it_was_lent_while_a_preallocated_segment_is_rolled(orders: Partition) -> None:
    log = opened(orders)
    fill(log, 3)
    lent = log.segments.active.lend_file()
    assert lent is not None
    log.roll()
    assert lent.valid_bytes == log.segments.first.size
    assert lent.file.pread(SEGMENT_BYTES, 0) == Path(log.segments.first.log_path).read_bytes()


def test_a_clean_shutdown_cuts_the_preallocated_bytes(orders: Partition) -> None:
    log = opened(orders)
    values = fill(log, 15)
    log.close()
    assert file_sizes(log) == [segment.size for segment in log.segments]

    back = opened(orders, CLEAN)
    assert (values_of(back), back.notes) == (values, [])
    assert file_sizes(back) == file_sizes(log), "only a new file is preallocated"


def test_preallocated_bytes_are_cut_off_after_the_config_was_changed(orders: Partition) -> None:
    log = opened(orders)
    fill(log, 2)
    log.update_config(TopicConfig.parse({"segment.bytes": str(SEGMENT_BYTES)}))
    log.roll()
    assert file_sizes(log) == [log.size, 0]


@pytest.mark.parametrize("count", [0, 1, 15])
def test_a_start_after_a_crash_finds_all_batches_before_the_preallocated_bytes(orders: Partition, count: int) -> None:
    values = fill(opened(orders), count)  # never closed

    back = opened(orders)

    assert (values_of(back), back.end_offset, back.notes) == (values, count, [])
    assert file_sizes(back) == [segment.size for segment in back.segments]
    values += fill(back, 10, first=count)
    assert values_of(back) == values


def test_a_segment_that_was_rolled_at_the_recovery_point_is_synced_with_the_next_flush(orders: Partition) -> None:
    """The roll has cut its file and written its indexes since they were synced."""
    log = opened(orders)
    fill(log, 3)
    log.flush_now()
    log.roll()
    assert log.recovery_point == log.segments.active.base_offset
    fill(log, 1)

    job = log.flush_job()

    assert job is not None
    assert {segment.log_path for segment in log.segments} < set(job.paths)


def test_a_note_names_the_bytes_after_preallocated_zeros_that_recovery_cuts_off(orders: Partition) -> None:
    log = opened(orders)
    values = fill(log, 3)
    with Path(log.segments.active.log_path).open("r+b") as file:
        file.seek(SEGMENT_BYTES - 5)
        file.write(b"x")

    back = opened(orders)

    assert (values_of(back), len(back.notes)) == (values, 1)
    assert "its length is 0" in back.notes[0]


def test_zeros_after_the_last_batch_of_a_rolled_segment_lose_no_record(orders: Partition) -> None:
    """A power loss may undo that the file was cut when it was rolled."""
    log = opened(orders)
    values = fill(log, 30)
    os.truncate(log.segments.first.log_path, SEGMENT_BYTES)

    back = opened(orders)

    assert (values_of(back), back.notes) == (values, [])
    assert file_sizes(back) == [segment.size for segment in back.segments]


def test_zeros_in_place_of_batches_of_a_rolled_segment_end_the_log(orders: Partition) -> None:
    log = opened(orders)
    values = fill(log, 30)
    first = log.segments.first
    spot = first.find(5)
    assert spot is not None
    os.truncate(first.log_path, spot.position)
    os.truncate(first.log_path, SEGMENT_BYTES)

    back = opened(orders)

    assert (values_of(back), back.end_offset) == (values[:5], 5)
    assert "its length is 0" in back.notes[0]


def test_truncation_cuts_the_preallocated_bytes_and_a_new_segment_has_them(orders: Partition) -> None:
    log = opened(orders)
    values = fill(log, 5)
    log.truncate_to(3)
    assert file_sizes(log) == [log.size]
    assert not log.segments.active.is_preallocated
    assert values_of(log) == values[:3]

    log.truncate_fully_and_start_at(70)
    assert file_sizes(log) == [SEGMENT_BYTES]
    assert opened(orders, CheckpointedState(log_start=70)).end_offset == 70


@pytest.mark.parametrize("how", list(PowerLoss))
def test_a_preallocated_log_keeps_all_flushed_records_in_a_power_loss(how: PowerLoss) -> None:
    overrides = {"orders": {"segment.bytes": str(SEGMENT_BYTES), "preallocate": "true"}}
    for seed in range(40):
        node = SimulatedNode(seed)

        async def write(logs: LogManager) -> None:
            log = get_or_create(logs, ORDERS, TopicConfig.parse(overrides["orders"]), None, is_new=True)
            fill(log, 7 + seed)  # noqa: B023
            await log.flush()
            await logs.write_small_files()
            await logs.write_recovery_points()
            fill(log, 12, first=7 + seed)  # noqa: B023

        async def check(logs: LogManager) -> None:
            log = logs.logs[ORDERS]
            found = values_of(log)
            assert len(found) >= 7 + seed, seed  # noqa: B023
            assert found == [f"value {number}" for number in range(len(found))]
            fill(log, 12, first=len(found))
            assert len(values_of(log)) == len(found) + 12

        node.run(write)
        node.disk.lose_power(how)
        node.run(check, overrides)
