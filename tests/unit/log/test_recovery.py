"""Whatever a crash leaves of the files: what is served afterwards is what was appended, up to a point."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from tests.unit.log.support import (
    NOW_MS,
    SEGMENT_BYTES,
    Partition,
    batch,
    headers_of,
    many_segments,
    reopened,
    values_of,
)

from klamm.log.loader import CheckpointedState
from klamm.log.log import Log
from klamm.log.names import INDEX, LOG, SNAPSHOT, TIME_INDEX, segment_file
from klamm.runtime.world import World
from klamm.wire.records.batch import IDENTIFYING_BYTES


def fill(log: Log, count: int = 24) -> list[str]:
    """Batches of one and two records, some of a producer, over several segments."""
    for number in range(count):
        producer = (9, 0, number // 2) if number % 2 else None
        log.append_as_leader(batch(f"value {number}", timestamp=NOW_MS + number, producer=producer), number // 7)
    return values_of(log)


def files_of(log: Log) -> list[Path]:
    return sorted(Path(log.directory).iterdir())


def test_a_log_cut_off_at_any_byte_returns_only_complete_batches_after_recovery(world: World, tmp_path: Path) -> None:
    whole = Partition(world, f"{tmp_path}/whole")
    log = whole.open(segment_bytes=SEGMENT_BYTES, index_interval_bytes=1)
    written = fill(log)
    log.flush_now()
    active = log.segments.active
    assert active.base_offset > 0
    assert active.size > 150
    for size in range(active.size):
        torn = Partition(world, f"{tmp_path}/torn")
        shutil.rmtree(torn.directory, ignore_errors=True)
        shutil.copytree(whole.directory, torn.directory)
        os.truncate(f"{torn.directory}/{segment_file(active.base_offset, LOG)}", size)

        back = torn.open(CheckpointedState(recovery_point=active.base_offset), segment_bytes=SEGMENT_BYTES)

        served = values_of(back)
        assert served == written[: len(served)]
        assert len(served) == back.end_offset
        assert back.append_as_leader(batch("after"), 9).first_offset == len(served)
        assert values_of(back) == [*served, "after"]


@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"A"])
def test_a_batch_with_any_changed_byte_is_never_returned_after_recovery(
    world: World, tmp_path: Path, filler: bytes
) -> None:
    whole = Partition(world, f"{tmp_path}/whole")
    log = whole.open()
    written = fill(log, 3)
    log.close()
    name = segment_file(0, LOG)
    content = Path(whole.directory, name).read_bytes()
    for position in range(len(content)):
        hurt = bytearray(content)
        hurt[position : position + 1] = filler
        if hurt == content or 12 <= position % (len(content) // 3) < 16:
            continue  # the leader epoch lies outside the CRC
        Path(whole.directory, name).write_bytes(hurt)

        back = whole.open()

        served = values_of(back)
        assert served == written[: len(served)] or _only_offsets_moved(back, written)


def _only_offsets_moved(log: Log, written: list[str]) -> bool:
    """Whether all records are intact, with other base offsets than written."""
    # the base offset lies outside the CRC too: a larger one cannot be told from a gap that compaction left
    return values_of(log) == written and [h.base_offset for h in headers_of(log)] != [0, 1, 2]


def test_log_recovery_removes_segments_after_a_corrupt_unflushed_batch(orders: Partition) -> None:
    log = orders.open(segment_bytes=SEGMENT_BYTES)
    written = fill(log)
    log.flush_now()
    second = list(log.segments)[1]
    with open(second.log_path, "r+b") as file:
        file.seek(70)
        file.write(b"????")

    back = orders.open(segment_bytes=SEGMENT_BYTES)

    assert values_of(back) == written[: second.base_offset]
    assert back.end_offset == second.base_offset
    assert len(back.segments) == 2
    assert any("CRC" in note for note in back.notes)
    left = {path.name for path in files_of(back)}
    assert segment_file(list(log.segments)[2].base_offset, LOG) not in left
    assert back.epochs.entries == tuple(e for e in log.epochs.entries if e.start_offset < back.end_offset)


def test_log_recovery_truncates_zero_bytes_after_the_last_batch(orders: Partition) -> None:
    log = orders.open()
    written = fill(log, 5)
    log.close()
    with open(log.segments.active.log_path, "ab") as file:
        file.write(bytes(5000))

    assert values_of(orders.open()) == written


@pytest.mark.parametrize("suffix", [INDEX, TIME_INDEX])
@pytest.mark.parametrize("damage", ["missing", "short", "zeros", "rubbish"])
def test_a_corrupt_offset_or_time_index_is_rebuilt_at_startup(orders: Partition, suffix: str, damage: str) -> None:
    log = orders.open(segment_bytes=SEGMENT_BYTES, index_interval_bytes=1)
    written = fill(log)
    log.close()
    path = Path(log.directory, segment_file(log.segments.first.base_offset, suffix))
    good = path.read_bytes()
    assert good
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes({"short": good[:-1], "zeros": bytes(len(good) * 2), "rubbish": b"\xf7" * len(good)}[damage])

    back = orders.open(CheckpointedState(True, log.end_offset), segment_bytes=SEGMENT_BYTES, index_interval_bytes=1)

    assert values_of(back) == written
    assert back.notes
    assert path.read_bytes() == good


def test_a_start_after_a_clean_shutdown_reads_no_batches(orders: Partition) -> None:
    log = orders.open()
    fill(log, 4)
    log.close()
    with open(log.segments.active.log_path, "r+b") as file:  # what only a full scan would find
        file.seek(70)
        file.write(b"?")

    assert orders.open(CheckpointedState(True, log.end_offset)).end_offset == 4
    assert orders.open().end_offset == 0


def test_an_incomplete_batch_at_the_log_end_is_truncated_after_a_clean_shutdown(orders: Partition) -> None:
    log = orders.open()
    written = fill(log, 4)
    log.close()
    with open(log.segments.active.log_path, "ab") as file:
        file.write(b"torn")

    back = orders.open(CheckpointedState(True, log.end_offset))

    back.append_as_leader(batch("after"), 1)
    assert values_of(back) == [*written, "after"]


def test_log_recovery_skips_segments_below_the_recovery_point(orders: Partition) -> None:
    log = orders.open(segment_bytes=SEGMENT_BYTES)
    fill(log)
    log.close()
    first = log.segments.first
    with open(first.log_path, "r+b") as file:
        file.seek(70)
        file.write(b"?")

    trusted = orders.open(CheckpointedState(recovery_point=first.base_offset + 50), segment_bytes=SEGMENT_BYTES)

    assert trusted.end_offset == log.end_offset


def test_files_left_by_interrupted_deletion_compaction_and_checkpoints_are_removed_at_startup(
    orders: Partition,
) -> None:
    log = orders.open(segment_bytes=SEGMENT_BYTES)
    written = fill(log)
    log.close()
    directory = Path(log.directory)
    for name in (
        segment_file(0, LOG) + ".deleted",
        segment_file(0, LOG) + ".cleaned",
        segment_file(999, INDEX),
        segment_file(500, SNAPSHOT),
        "leader-epoch-checkpoint.tmp",
        segment_file(700, LOG) + ".swap",
    ):
        (directory / name).write_bytes(b"")
    (directory / (segment_file(650, LOG) + ".cleaned")).write_bytes(b"")

    back = orders.open(CheckpointedState(True, log.end_offset), segment_bytes=SEGMENT_BYTES)

    assert values_of(back) == written
    assert {p.name for p in directory.iterdir()} == {p.name for p in files_of(log)}
    assert not any(p.suffix in {".deleted", ".cleaned", ".swap", ".tmp"} for p in directory.iterdir())


def test_the_swap_file_of_a_finished_compaction_replaces_its_segments_at_startup(orders: Partition) -> None:
    log = orders.open(segment_bytes=SEGMENT_BYTES)
    written = fill(log)
    log.close()
    first, second, *_ = log.segments
    directory = Path(log.directory)
    merged = Path(first.log_path).read_bytes() + Path(second.log_path).read_bytes()
    (directory / (segment_file(0, LOG) + ".swap")).write_bytes(merged)

    back = orders.open(CheckpointedState(True, log.end_offset), segment_bytes=SEGMENT_BYTES)

    assert values_of(back) == written
    assert len(back.segments) == len(log.segments) - 1


def test_a_log_that_ends_below_its_checkpointed_start_is_emptied_at_that_offset(orders: Partition) -> None:
    log = orders.open()
    fill(log, 4)
    log.close()

    back = orders.open(CheckpointedState(True, 44, log_start=40))

    assert (back.start_offset, back.end_offset, back.epochs.entries) == (40, 40, ())
    assert back.append_as_leader(batch("a"), 3).first_offset == 40


def test_deleted_records_stay_deleted_where_the_checkpoint_of_recovery_points_is_lost(orders: Partition) -> None:
    log = orders.open()
    for name in "abcd":
        log.append_as_leader(batch(name), 0)
    log.close()
    back = orders.open(CheckpointedState(True, 0, log_start=3))
    assert (back.start_offset, back.end_offset, back.notes) == (3, 4, [])


def test_a_checkpointed_log_start_above_the_end_of_a_cleanly_closed_log_is_ignored(orders: Partition) -> None:
    log = orders.open()
    written = fill(log, 4)
    log.close()

    back = orders.open(CheckpointedState(True, 4, log_start=40))

    assert (back.start_offset, back.end_offset, values_of(back)) == (0, 4, written)
    assert "ignored the checkpointed log start offset 40" in back.notes[0]


def test_log_recovery_rebuilds_missing_leader_epochs_from_the_batches(orders: Partition) -> None:
    log = orders.open(segment_bytes=SEGMENT_BYTES)
    fill(log)
    assert not Path(log.directory, "leader-epoch-checkpoint").exists()

    back = orders.open(segment_bytes=SEGMENT_BYTES)

    assert back.epochs.entries == log.epochs.entries == ((0, 0), (1, 7), (2, 14), (3, 21))
    assert back.has_changed_small_files


def test_log_recovery_restores_producer_state_after_a_crash(orders: Partition) -> None:
    log = orders.open(segment_bytes=SEGMENT_BYTES)
    fill(log)
    log.flush_now()

    crashed = orders.open(segment_bytes=SEGMENT_BYTES)
    crashed.close()
    clean = orders.open(CheckpointedState(True, log.end_offset), segment_bytes=SEGMENT_BYTES)

    for back in (crashed, clean):
        assert back.append_as_leader(batch("value 23", producer=(9, 0, 11)), 3).is_duplicate
    assert clean.append_as_leader(batch("next", producer=(9, 0, 12)), 3).first_offset == 24


def test_log_recovery_removes_producer_snapshots_above_the_log_end(orders: Partition) -> None:
    log = orders.open(segment_bytes=SEGMENT_BYTES)
    fill(log)
    log.close()
    newest = Path(log.directory, segment_file(24, SNAPSHOT))
    assert newest.exists()
    os.truncate(log.segments.active.log_path, 0)

    back = orders.open(segment_bytes=SEGMENT_BYTES)

    assert not newest.exists()
    base = log.segments.active.base_offset
    assert back.end_offset == base
    assert back.producers.by_id[9].last_offset < base


def test_log_recovery_replaces_an_incomplete_producer_snapshot_by_replaying_batches(orders: Partition) -> None:
    log = orders.open(segment_bytes=SEGMENT_BYTES)
    fill(log)
    log.close()
    os.truncate(Path(log.directory, segment_file(24, SNAPSHOT)), 20)

    back = orders.open(CheckpointedState(True, 24), segment_bytes=SEGMENT_BYTES)

    assert back.append_as_leader(batch("value 23", producer=(9, 0, 11)), 3).is_duplicate


@pytest.mark.parametrize("content", [b"0\n7\n", b"rubbish"])
def test_log_recovery_rebuilds_a_malformed_leader_epoch_checkpoint_from_the_batches(
    orders: Partition, content: bytes
) -> None:
    log = orders.open(segment_bytes=SEGMENT_BYTES)
    written = fill(log)
    log.close()
    Path(log.directory, "leader-epoch-checkpoint").write_bytes(content)

    back = orders.open(CheckpointedState(True, 24), segment_bytes=SEGMENT_BYTES)

    assert back.epochs.entries == log.epochs.entries
    assert values_of(back) == written
    assert "leader epochs" in back.notes[0]


def test_an_empty_leader_epoch_checkpoint_is_read_as_a_missing_one(orders: Partition) -> None:
    """Apache Kafka creates it empty: a log of the formats 0 and 1 alone keeps it so."""
    log = orders.open(segment_bytes=SEGMENT_BYTES)
    fill(log)
    log.close()
    Path(log.directory, "leader-epoch-checkpoint").write_bytes(b"")

    back = orders.open(CheckpointedState(True, 24), segment_bytes=SEGMENT_BYTES)

    assert (back.epochs.entries, back.notes) == (log.epochs.entries, [])


def test_an_empty_partition_metadata_file_gives_no_topic_id(orders: Partition) -> None:
    orders.open().close()
    Path(orders.directory, "partition.metadata").write_bytes(b"")

    assert orders.open().topic_id is None


# -- what was flushed is not removed -----------------------------------------------------------------------------------


def flip(path: str | Path, position: int) -> None:
    """Flip one bit of the file."""
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0x10]))


def undamaged_values(log: Log, damaged: int) -> list[str]:
    """All but those of the segment in this slot, as they were written."""
    segment, following = log.segments.from_slot(damaged)[:2]
    return [f"value {n}" for n in range(1000) if not segment.base_offset <= n < following.base_offset]


@pytest.mark.parametrize("damaged_file", [INDEX, TIME_INDEX, "leader-epoch-checkpoint"])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_flipped_bit_below_the_recovery_point_loses_no_other_batch(
    orders: Partition, damaged_file: str, is_clean: bool
) -> None:
    """One file that has to be rebuilt and one flipped bit, in the same segment or in another."""
    log = many_segments(orders)
    fifth, seventh = log.segments.from_slot(5)[0], log.segments.from_slot(7)[0]
    name = damaged_file if damaged_file.startswith("leader") else segment_file(fifth.base_offset, damaged_file)
    Path(log.directory, name).unlink()
    for segment in (fifth, seventh):
        flip(segment.log_path, 70)

    back = reopened(orders, CheckpointedState(is_clean, 1000))

    assert back.end_offset == 1000
    assert len(back.segments) == len(log.segments)
    assert back.epochs.entries == log.epochs.entries
    headers = headers_of(back)
    assert [h.base_offset for h in headers] == list(range(1000)), "a batch with a wrong checksum stays where it is"


@pytest.mark.parametrize("is_clean", [True, False])
def test_unparsable_bytes_in_a_flushed_segment_truncate_only_that_segment(orders: Partition, is_clean: bool) -> None:
    log = many_segments(orders)
    fifth = log.segments.from_slot(5)[0]
    Path(fifth.path(INDEX)).unlink()
    with open(fifth.log_path, "r+b") as file:
        file.write(bytes(fifth.size))

    back = reopened(orders, CheckpointedState(is_clean, 1000))

    assert (back.end_offset, len(back.segments)) == (1000, len(log.segments))
    assert [v for v in values_of(back) if v] == undamaged_values(log, 5)
    assert any(f"truncated {fifth.log_path}" in note for note in back.notes)


def test_log_recovery_truncates_the_log_at_the_first_corrupt_batch_after_the_recovery_point(orders: Partition) -> None:
    log = many_segments(orders)
    fifth, seventh = log.segments.from_slot(5)[0], log.segments.from_slot(7)[0]
    flip(fifth.log_path, 70)
    flip(seventh.log_path, 70)

    back = reopened(orders, CheckpointedState(recovery_point=log.segments.from_slot(6)[0].base_offset))

    assert back.end_offset == seventh.base_offset, "the damage below the recovery point ends nothing"


def test_log_recovery_truncates_a_corrupt_last_batch_even_if_flushed(orders: Partition) -> None:
    """Where the log ends is not known from it; the replica copies it from the leader."""
    log = many_segments(orders)
    active = log.segments.active
    flip(active.log_path, active.size - 3)

    back = reopened(orders, CheckpointedState(recovery_point=1000))

    assert back.end_offset == 999
    assert any("offsets 999 to 999 are missing, although they were flushed" in note for note in back.notes)
    assert back.append_as_leader(batch("after"), 9).first_offset == 999


@pytest.mark.parametrize("entry", range(6))
@pytest.mark.parametrize("byte", range(8))
def test_a_flipped_bit_in_an_offset_index_makes_readers_skip_no_record(
    orders: Partition, entry: int, byte: int
) -> None:
    log = orders.open(index_interval_bytes=1)
    written = fill(log)
    log.close()
    flip(log.segments.first.path(INDEX), entry * 8 + byte)

    back = orders.open(CheckpointedState(True, 24), index_interval_bytes=1)

    for offset in range(24):
        assert values_of(back, offset)[-(24 - offset) :] == written[offset:], offset
    back.append_as_leader(batch("after"), 9)
    assert values_of(back)[-1] == "after"


@pytest.mark.parametrize(("suffix", "size"), [(INDEX, 8), (TIME_INDEX, 12)])
def test_a_flipped_bit_in_the_last_entry_of_an_offset_index_does_not_stop_appends(
    orders: Partition, suffix: str, size: int
) -> None:
    log = orders.open(index_interval_bytes=1)
    fill(log)
    log.close()
    end = log.end_offset
    path = Path(log.segments.first.path(suffix))
    entries = path.stat().st_size
    for position in range(entries - size, entries):
        flip(path, position)

        back = orders.open(CheckpointedState(True, end), index_interval_bytes=1)

        assert back.append_as_leader(batch("after", timestamp=NOW_MS + end), 9).first_offset == end
        assert asyncio.run(back.max_timestamp()) == (NOW_MS + end, end, 9)
        back.truncate_to(end)
        back.close()


def test_a_damaged_first_batch_of_the_active_segment_does_not_stop_appends(orders: Partition) -> None:
    log = orders.open(index_interval_bytes=1)
    fill(log)
    log.close()
    flip(log.segments.active.log_path, IDENTIFYING_BYTES - 1)

    back = orders.open(CheckpointedState(True, log.end_offset), index_interval_bytes=1)

    assert back.append_as_leader(batch("after"), 9).first_offset == log.end_offset
