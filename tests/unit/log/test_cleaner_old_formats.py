"""The log cleaner on messages of the formats 0 and 1, which `tests/differential/compaction_judge.py` compares, too."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.unit.log.compaction import cleaner, compacted_log
from tests.unit.log.simulated_node import SimulatedNode
from tests.unit.log.support import NOW_MS

from klamm.log.cleaner.batches import FilterCounts
from klamm.log.cleaner.legacy import add_legacy_run, filter_legacy
from klamm.log.cleaner.offset_map import OffsetMap
from klamm.log.cleaner.reading import read_runs
from klamm.log.log import Log
from klamm.log.manager import LogManager
from klamm.log.runs import LegacyRun
from klamm.log.settings import CleanerSettings
from klamm.runtime.disk import RealDisk
from klamm.runtime.workers import InlineWorkers
from klamm.wire.compression import Codec, compress
from klamm.wire.records import NewRecord, batches, build_batch, records
from klamm.wire.records.batch import MAGIC
from klamm.wire.records.legacy import Message, encode_message, encode_messages, messages_of
from klamm.wire.vectors.batches import CorruptBatch

CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
Pair = tuple[str | None, str | None]


def node() -> SimulatedNode:
    """A node whose files have the times of its clock."""
    made = SimulatedNode()
    made.disk.now_ms = made.clock.now_ms
    return made


def messages(log_end: int, *pairs: Pair, magic: int = 1) -> list[Message]:
    """Messages with these keys and values, from this offset on; their times fall."""
    return [
        Message(log_end + n, NOW_MS - log_end - n if magic else -1, _encoded(key), _encoded(value), magic=magic)
        for n, (key, value) in enumerate(pairs)
    ]


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def append(log: Log, content: bytes) -> None:
    """Append as a follower does, and close the segment."""
    log.append_as_follower(content)
    log.update_high_watermark(log.end_offset)
    log.roll()
    log.flush_now()


async def clean(node: SimulatedNode, logs: LogManager, settings: CleanerSettings | None = None) -> int:
    one, count = cleaner(node.world, logs, settings), 0
    while await one.clean_next(InlineWorkers()):
        count += 1
    return count


def entries(log: Log) -> list[tuple[int, Codec, list[tuple[int, bytes | None, bytes | None]]]]:
    """The magic, codec and records (offset, key, value) of each batch."""
    found: list[tuple[int, Codec, list[tuple[int, bytes | None, bytes | None]]]] = []
    for segment in log.segments:
        content = segment.pread(segment.size, 0)
        for header in batches(content):
            if header.magic < MAGIC:
                content_found = [(m.offset, m.key, m.value) for m in messages_of(content, header, 1 << 20)]
            else:
                content_found = [(r.offset, r.key, r.value) for r in records(content, header)]
            found.append((header.magic, header.codec, content_found))
    return found


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_compaction_removes_records_from_within_a_message_of_an_old_format(magic: int, codec: Codec) -> None:
    old = node()

    async def main(logs: LogManager) -> None:
        log = compacted_log(logs)
        first = messages(0, ("a", "1"), ("b", "2"), (None, "no key"), ("c", "3"), ("a", "4"), magic=magic)
        append(log, encode_messages(first, magic, codec))
        newer = [NewRecord(b"5", b"c", NOW_MS)]
        append(log, build_batch(newer, base_offset=5, leader_epoch=0))
        assert await clean(old, logs) == 1

        left = [(1, b"b", b"2"), (4, b"a", b"4")]
        per_message = [[record] for record in left] if codec is Codec.NONE else [left]
        assert entries(log) == [*[(magic, codec, each) for each in per_message], (2, Codec.NONE, [(5, b"c", b"5")])]
        times = [h.max_timestamp for s in log.segments for h in batches(s.pread(s.size, 0)) if h.magic == magic]
        assert max(times) == (NOW_MS - 1 if magic else -1)

    old.run(main)


def test_compaction_removes_a_compressed_message_of_which_no_record_is_kept() -> None:
    old = node()

    async def main(logs: LogManager) -> None:
        log = compacted_log(logs)
        append(log, encode_messages(messages(0, ("a", "1"), ("b", "2")), 1, Codec.GZIP))
        append(log, encode_messages(messages(2, ("a", "3"), ("b", "4")), 0, Codec.GZIP))
        await clean(old, logs)
        assert entries(log) == [(0, Codec.GZIP, [(2, b"a", b"3"), (3, b"b", b"4")])]
        assert log.end_offset == 4

    old.run(main)


def test_a_tombstone_of_an_old_format_is_removed_delete_retention_ms_after_its_segment_was_last_modified() -> None:
    old = node()

    async def main(logs: LogManager) -> None:
        log = compacted_log(logs, delete_retention_ms="1000")
        append(log, encode_messages(messages(0, ("a", "1"), ("a", None)), 1, Codec.NONE))
        await clean(old, logs)
        tombstone = (1, Codec.NONE, [(1, b"a", None)])
        old.clock.ms += 999
        append(log, encode_messages(messages(2, ("b", "2")), 1, Codec.NONE))
        await clean(old, logs)
        assert entries(log)[0] == tombstone

        append(log, encode_messages(messages(3, ("c", "3")), 1, Codec.NONE))
        await clean(old, logs)
        assert entries(log)[0] == tombstone
        old.clock.ms += 1
        log.append_as_follower(encode_messages(messages(4, ("d", "4")), 1, Codec.NONE))
        old.clock.ms += 1000
        append(log, encode_messages(messages(5, ("e", "5")), 1, Codec.NONE))
        await clean(old, logs)
        assert entries(log)[0] == tombstone, "it is in the segment that gives the time"

    old.run(main)


def test_a_segment_without_timestamps_is_compacted_min_compaction_lag_ms_after_it_was_last_modified() -> None:
    old = node()

    async def main(logs: LogManager) -> None:
        log = compacted_log(logs, min_compaction_lag_ms="1000")
        append(log, encode_messages(messages(0, ("a", "1"), ("a", "2"), magic=0), 0, Codec.NONE))
        old.clock.ms += 999
        assert await clean(old, logs) == 0
        old.clock.ms += 1
        assert await clean(old, logs) == 1

    old.run(main)


def test_a_tombstone_of_an_old_format_is_removed_from_segments_older_than_the_clean_part() -> None:
    old = node()

    async def main(logs: LogManager) -> None:
        log = compacted_log(logs, delete_retention_ms="1000", segment_bytes="100")
        append(log, encode_messages(messages(0, ("a" * 60, None)), 1, Codec.NONE))
        for number, later_ms in enumerate((999, 1), 1):
            old.clock.ms += later_ms
            append(log, encode_messages(messages(number, ("b" * 60, f"{number}")), 1, Codec.NONE))
            await clean(old, logs)
            assert [entry[2][0][0] for entry in entries(log)] == [0, number]
        old.clock.ms += 5_000
        append(log, encode_messages(messages(3, ("c" * 60, "3")), 1, Codec.NONE))
        await clean(old, logs)
        assert [entry[2][0][0] for entry in entries(log)] == [2, 3]

    old.run(main)


def test_a_compressed_message_with_messages_of_another_format_is_written_anew() -> None:
    """Old brokers wrote such (KAFKA-4298)."""
    old = node()

    async def main(logs: LogManager) -> None:
        log = compacted_log(logs)
        inner = b"".join(encode_message(m, 0) for m in messages(0, ("a", "1"), ("b", "2"), magic=0))
        wrapper = Message(1, NOW_MS, None, compress(Codec.GZIP, inner))
        append(log, encode_message(wrapper, 1, Codec.GZIP))
        await clean(old, logs)
        (segment, *_) = log.segments
        content = segment.pread(segment.size, 0)
        (header,) = batches(content)
        assert [(m.magic, m.offset, m.key) for m in messages_of(content, header, 1 << 20)] == [
            (1, 0, b"a"),
            (1, 1, b"b"),
        ]

    old.run(main)


@pytest.mark.parametrize("codec", CODECS)
def test_compaction_of_old_formats_takes_several_passes_where_the_offset_map_is_too_small(codec: Codec) -> None:
    old, settings = node(), CleanerSettings(dedupe_buffer_size=48 * 10, io_buffer_load_factor=1.0)

    async def main(logs: LogManager) -> None:
        log = compacted_log(logs)
        for start in range(0, 60, 3):
            pairs: Sequence[Pair] = [(f"key-{(start + n) % 25}", f"{start + n}") for n in range(3)]
            log.append_as_follower(encode_messages(messages(start, *pairs), 1, codec))
        append(log, b"")
        assert await clean(old, logs, settings) > 3
        left = [record for entry in entries(log) for record in entry[2]]
        assert left == [(n, b"key-%d" % (n % 25), b"%d" % n) for n in range(35, 60)]
        assert log.cleaning.first_dirty == 60

    old.run(main)


def test_a_damaged_message_of_an_old_format_makes_a_log_uncleanable() -> None:
    old = node()

    async def main(logs: LogManager) -> None:
        log = compacted_log(logs)
        append(log, encode_messages(messages(0, ("a", "1"), ("a", "2")), 1, Codec.NONE))
        path = log.segments.first.log_path
        good = old.disk.read(path)
        old.overwrite(path, good[:-1] + b"x")
        assert await clean(old, logs) == 0
        assert log.cleaning.why_uncleanable is not None
        assert f"{path}, from byte 0 on: batch at offset 1" in log.cleaning.why_uncleanable

        old.overwrite(path, good[:-3])
        log.cleaning.on_config_changed()
        assert await clean(old, logs) == 0
        assert "the file became shorter" in log.cleaning.why_uncleanable

    old.run(main)


def test_real_files_get_the_modification_time_of_the_segments_they_replace(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    RealDisk().set_modified_ms(str(path), NOW_MS)
    assert RealDisk().modified_ms(str(path)) == NOW_MS


def legacy_run(content: bytes) -> LegacyRun:
    return LegacyRun(content, list(batches(content)))


@pytest.mark.parametrize(("codec", "append_time"), [(Codec.NONE, None), (Codec.GZIP, None), (Codec.GZIP, NOW_MS + 5)])
def test_the_time_index_gets_the_largest_timestamp_of_the_records_that_stay(
    codec: Codec, append_time: int | None
) -> None:
    content = encode_messages(messages(0, ("a", "1"), ("b", "2"), ("a", "3")), 1, codec, append_time)
    offset_map = OffsetMap(10)
    assert add_legacy_run(offset_map, legacy_run(content), 0)
    offset_map.seal()

    written = list(filter_legacy(legacy_run(content), offset_map, FilterCounts(), keeps_tombstones=True))

    assert max(batch.max_timestamp for batch in written) == (NOW_MS - 1 if append_time is None else append_time)
    assert [batch.last_offset for batch in written] == ([1, 2] if codec is Codec.NONE else [2])


def test_messages_of_an_old_format_above_the_end_of_the_offset_map_are_kept_unchanged() -> None:
    content = encode_messages(messages(7, (None, "no key"), ("a", None), ("a", "2")), 1, Codec.GZIP)
    offset_map, counts = OffsetMap(10), FilterCounts()
    offset_map.latest_offset = 6

    (left,) = filter_legacy(legacy_run(content), offset_map, counts, keeps_tombstones=False)

    assert left == (content, 7, 9, NOW_MS - 7)
    assert counts == FilterCounts(3, 3, 0)


def test_messages_of_an_old_format_whose_offsets_do_not_rise_are_not_compacted() -> None:
    old = node()
    old.disk.make_directories("/files")
    one = encode_messages(messages(3, ("a", "1")), 1, Codec.NONE)
    old.overwrite("/files/log", one + one)

    with pytest.raises(CorruptBatch, match="the message with offset 3 comes after that with 3"):
        list(read_runs(old.disk, "/files/log", 2 * len(one), 1 << 20))
