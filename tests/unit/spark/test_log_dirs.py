"""`logDirs`: the rows of log directories, their bounds and choice; directories that are damaged or no such."""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from tests.unit.log.compaction import COMPACTED, committed
from tests.unit.log.support import batch
from tests.unit.spark.scripts import logged
from tests.unit.spark.stored_logs import (
    NOW_MS,
    ORDERS,
    as_content,
    clean,
    copy_of_a_compacted_log,
    fill,
    log_manager,
    make_log,
    new_log,
    offsets_stored,
    plan_stored,
    read_stored,
    segment_paths,
    stored_options,
)

from klamm.log.checkpoints import CLEANED_OFFSETS, HIGH_WATERMARKS, LOG_STARTS, offsets_text
from klamm.log.log import Log
from klamm.model.errors import KlammError
from klamm.model.ids import TopicPartition
from klamm.spark.errors import BadOption, DataLoss
from klamm.spark.filters import Condition, RowFilter
from klamm.wire.records import batches as batches_of
from klamm.wire.vectors.batches import CorruptBatch

NO_ROW: list[int] = []
FIELDS = {"base offset": 7, "base offset far away": 2, "length": 10, "magic": 16}
"""Where fields of a batch's header are that its checksum does not cover."""


def set_high_watermark(directory: Path, offset: int) -> None:
    (directory / HIGH_WATERMARKS).write_bytes(offsets_text({ORDERS: offset}))


@pytest.mark.parametrize("seed", range(5))
async def test_committed_rows_of_a_log_directory_are_those_of_the_broker(tmp_path: Path, seed: int) -> None:
    log = await make_log(tmp_path, seed)

    rows = read_stored(tmp_path, kafka__isolation__level="read_committed")

    assert as_content(rows) == committed(log)
    assert len(segment_paths(tmp_path)) > 5


@pytest.mark.parametrize("seed", range(3))
async def test_committed_rows_read_from_a_compacted_log_directory_equal_those_read_from_the_broker(
    tmp_path: Path, seed: int
) -> None:
    async with log_manager(tmp_path) as logs:
        log = new_log(logs, configs=COMPACTED)
        fill(log, seed)
        size = log.size
        assert await clean(logs)
        assert log.size < size

    assert as_content(read_stored(tmp_path, kafka__isolation__level="read_committed")) == committed(log)


@pytest.mark.parametrize("seed", range(3))
async def test_a_follower_that_copied_the_gaps_of_its_leaders_compaction_lacks_no_row(
    tmp_path: Path, seed: int
) -> None:
    """Its own cleaner has not run, so nothing else in its directory tells of compaction."""
    end = await copy_of_a_compacted_log(tmp_path / "leader", tmp_path / "follower", seed)
    every = read_stored(tmp_path / "leader")

    assert len(every) < end / 2
    assert read_stored(tmp_path / "follower") == every
    for offset in range(1, end + 1, 7):
        found = offsets_stored(tmp_path / "follower", endingOffsets=f'{{"orders": {{"0": {offset}}}}}')
        assert found == [row["offset"] for row in every if row["offset"] < offset]


async def test_every_range_of_a_compacted_log_ends(tmp_path: Path) -> None:
    async with log_manager(tmp_path) as logs:
        log = new_log(logs, configs=COMPACTED)
        fill(log)
        assert await clean(logs)
    every = offsets_stored(tmp_path)
    assert len(every) < log.end_offset / 2

    for end in range(1, log.end_offset + 1):
        found = offsets_stored(tmp_path, endingOffsets=f'{{"orders": {{"0": {end}}}}}')
        assert found == [offset for offset in every if offset < end]


async def test_aborted_records_are_read_by_default_as_from_brokers(tmp_path: Path) -> None:
    log = await make_log(tmp_path)

    offsets = set(offsets_stored(tmp_path))

    assert set(committed(log)) < offsets
    assert all(log.aborted_transactions(0, log.end_offset)[0].first_offset in offsets for _ in range(1))


class TestBounds:
    async def test_rows_end_at_the_checkpointed_high_watermark(self, tmp_path: Path) -> None:
        await make_log(tmp_path)
        every = offsets_stored(tmp_path)
        set_high_watermark(tmp_path, every[len(every) // 2])

        assert offsets_stored(tmp_path) == every[: len(every) // 2]

    async def test_rows_begin_at_the_checkpointed_log_start(self, tmp_path: Path) -> None:
        async with log_manager(tmp_path) as logs:
            log = new_log(logs)
            fill(log)
            log.advance_start_offset(30)

        assert offsets_stored(tmp_path)[0] == 30

    @pytest.mark.parametrize("content", [offsets_text({}), b""], ids=["no entry", "as Apache Kafka starts"])
    async def test_a_partition_without_a_checkpointed_high_watermark_has_no_rows(
        self, tmp_path: Path, content: bytes
    ) -> None:
        await make_log(tmp_path)
        for name in (HIGH_WATERMARKS, LOG_STARTS, CLEANED_OFFSETS):
            (tmp_path / name).write_bytes(content)

        with logged("nothing is read of orders-0: no file .* has its high watermark yet"):
            assert offsets_stored(tmp_path) == NO_ROW

    async def test_read_committed_ends_at_the_last_stable_offset(self, tmp_path: Path) -> None:
        async with log_manager(tmp_path) as logs:
            log = new_log(logs)
            for number in range(30):
                log.append_as_leader(batch("plain", key=b"%d" % number), 0)
            opened = log.append_as_leader(batch("open", producer=(9, 0, 0), transactional=True), 0).first_offset
            for number in range(100):
                log.append_as_leader(batch("behind", key=b"%d" % number), 0)
            log.update_high_watermark(log.end_offset)

        assert offsets_stored(tmp_path)[-1] == 130
        assert offsets_stored(tmp_path, kafka__isolation__level="read_committed")[-1] == opened - 1
        for snapshot in segment_paths(tmp_path, ".snapshot"):
            snapshot.unlink()
        assert offsets_stored(tmp_path, kafka__isolation__level="read_committed")[-1] == opened - 1

    async def test_starting_and_ending_offsets_select_exactly_their_rows(self, tmp_path: Path) -> None:
        await make_log(tmp_path)
        every = offsets_stored(tmp_path)

        some = offsets_stored(tmp_path, startingOffsets='{"orders": {"0": 33}}', endingOffsets='{"orders": {"0": 77}}')

        assert some == [o for o in every if 33 <= o < 77]

    async def test_a_start_behind_the_high_watermark_is_data_loss(self, tmp_path: Path) -> None:
        await make_log(tmp_path)

        with pytest.raises(DataLoss, match="startingOffsets says 9000, but the log ends at"):
            offsets_stored(tmp_path, startingOffsets='{"orders": {"0": 9000}}')


def log_with_rising_times(log: Log) -> list[int]:
    """Append a batch of two records each 20 ms, every fifth with a later time; the timestamp of each offset."""
    times = []
    for number in range(200):
        time = NOW_MS + number * 20 + (500 if number % 5 == 0 else 0)
        log.append_as_leader(batch("a", "b", timestamp=time), 0)
        times += [time, time]
    log.update_high_watermark(log.end_offset)
    return times


def first_at(times: list[int], time: int) -> int:
    return next(offset for offset, each in enumerate(times) if each >= time)


class TestTimes:
    @pytest.mark.parametrize("damage", ["none", "missing", "stale", "flipped", "early", "zeros"])
    async def test_a_starting_time_selects_the_brokers_offset_whatever_the_indexes_say(
        self, tmp_path: Path, damage: str
    ) -> None:
        async with log_manager(tmp_path) as logs:
            times = log_with_rising_times(new_log(logs))
        for path in [*segment_paths(tmp_path, ".timeindex"), *segment_paths(tmp_path, ".index")]:
            INDEX_DAMAGE[damage](path)

        for time in range(NOW_MS - 10, NOW_MS + 4_000, 170):
            assert offsets_stored(tmp_path, startingTimestamp=str(time))[0] == first_at(times, time)

    async def test_a_time_after_all_records_is_refused_as_by_brokers(self, tmp_path: Path) -> None:
        await make_log(tmp_path)

        with pytest.raises(BadOption, match="has no record at or after time"):
            offsets_stored(tmp_path, startingTimestamp=str(NOW_MS + 10**6))

    async def test_an_ending_time_ends_before_the_first_record_with_it(self, tmp_path: Path) -> None:
        async with log_manager(tmp_path) as logs:
            times = log_with_rising_times(new_log(logs))

        last = offsets_stored(tmp_path, endingTimestamp=str(NOW_MS + 2_000))[-1]
        assert last == first_at(times, NOW_MS + 2_000) - 1

    async def test_a_filter_on_timestamps_selects_the_first_offset(self, tmp_path: Path) -> None:
        async with log_manager(tmp_path) as logs:
            log_with_rising_times(new_log(logs))
        options = stored_options(tmp_path)

        wanted = RowFilter((Condition("timestamp", "greater_equal", (NOW_MS + 3_000) * 1000),))
        first = plan_stored(options, wanted)[0].ranges[0].start

        assert first > 200


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for at in range(5, len(content), 7):
        content[at] ^= 0x04
    path.write_bytes(content)


def _make_early(path: Path) -> None:
    """Entries that claim that all records up to their offset are older than they are."""
    if path.suffix == ".timeindex":
        entries = struct.iter_unpack(">qi", path.read_bytes())
        path.write_bytes(b"".join(struct.pack(">qi", time - 10_000, relative) for time, relative in entries))


INDEX_DAMAGE: dict[str, Callable[[Path], object]] = {
    "none": lambda path: None,
    "missing": Path.unlink,
    "stale": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 24 * 12]),
    "flipped": _flip,
    "early": _make_early,
    "zeros": lambda path: path.write_bytes(path.read_bytes() + bytes(12 * 1_000 + 5)),
}


class TestChoice:
    async def test_of_several_replicas_the_one_with_the_greatest_high_watermark_is_read_once(
        self, tmp_path: Path
    ) -> None:
        first, second = tmp_path / "one", tmp_path / "two"
        await make_log(first)
        shutil.copytree(first, second)
        whole = offsets_stored(first)
        set_high_watermark(first, whole[3])

        assert offsets_stored(first, second) == whole
        ranges = [r for task in plan_stored(stored_options(first, second)) for r in task.ranges]
        assert {r.replica.log_dir for r in ranges if r.replica} == {str(second)}

    async def test_future_deleted_and_stray_directories_are_left_out(self, tmp_path: Path) -> None:
        await make_log(tmp_path)
        for kind in ("future", "delete", "stray"):
            shutil.copytree(tmp_path / "orders-0", tmp_path / f"other-0.{'a' * 32}-{kind}")
        (tmp_path / "lost+found").mkdir()

        rows = read_stored(tmp_path, subscribePattern=".*", columns=("topic",))

        assert {row["topic"] for row in rows} == {"orders"}

    async def test_internal_topics_are_left_out_of_patterns_and_partitions_may_be_assigned(
        self, tmp_path: Path
    ) -> None:
        async with log_manager(tmp_path) as logs:
            for topic, number in (("orders", 0), ("orders", 1), ("__consumer_offsets", 0)):
                fill(new_log(logs, TopicPartition(topic, number)), batches=5)

        def read(**given: str) -> set[tuple[str, int]]:
            return {
                (r["topic"], r["partition"]) for r in read_stored(tmp_path, columns=("topic", "partition"), **given)
            }

        assert read(subscribePattern=".*") == {("orders", 0), ("orders", 1)}
        assert read(subscribe="__consumer_offsets") == {("__consumer_offsets", 0)}
        assert read(assign='{"orders": [1]}') == {("orders", 1)}

    async def test_two_topic_ids_of_one_partition_are_refused_naming_both_directories(self, tmp_path: Path) -> None:
        first, second = tmp_path / "one", tmp_path / "two"
        await make_log(first)
        async with log_manager(second, broker=2) as logs:
            fill(new_log(logs, topic_id=UUID(int=77)))

        with pytest.raises(BadOption, match=r"option logDirs: .*one/orders-0 has topic id .* but .*two/orders-0 has"):
            offsets_stored(first, second)

    async def test_directories_of_two_clusters_are_refused(self, tmp_path: Path) -> None:
        for name in ("one", "two"):
            async with log_manager(tmp_path / name, cluster=name) as logs:
                fill(new_log(logs))

        with pytest.raises(BadOption, match=r"one belongs to the cluster one, but .*two to two"):
            offsets_stored(tmp_path / "one", tmp_path / "two")


class TestBadInput:
    async def test_what_is_not_a_log_directory_is_refused_with_its_remedy(self, tmp_path: Path) -> None:
        await make_log(tmp_path / "data")
        (tmp_path / "empty").mkdir()
        cases = {
            tmp_path / "nowhere": "there is no directory .*nowhere on this machine",
            tmp_path / "empty": "empty is not a log directory: it has no meta.properties. Give the directories that",
            tmp_path / "data" / "orders-0": r"It is the directory of a partition: give .*data\.",
        }

        for directory, expected in cases.items():
            with pytest.raises(BadOption, match=f"option logDirs: .*{expected}"):
                offsets_stored(directory)

    def test_a_relative_path_of_a_log_directory_is_refused(self) -> None:
        with pytest.raises(
            BadOption, match="option logDirs is not valid: 'data' has a relative path; give absolute paths"
        ):
            stored_options(Path("data"))

    async def test_a_topic_that_no_directory_has_is_refused_with_the_nearest_name(self, tmp_path: Path) -> None:
        await make_log(tmp_path)

        with pytest.raises(BadOption, match=r"topic order does not exist\. Did you mean orders\?"):
            offsets_stored(tmp_path, subscribe="order")

    async def test_a_directory_without_high_watermarks_is_refused(self, tmp_path: Path) -> None:
        await make_log(tmp_path)
        (tmp_path / HIGH_WATERMARKS).unlink()

        with pytest.raises(BadOption, match="so nobody knows which records are committed"):
            offsets_stored(tmp_path)

    async def test_a_damaged_checkpoint_is_named_with_its_line(self, tmp_path: Path) -> None:
        await make_log(tmp_path)
        (tmp_path / HIGH_WATERMARKS).write_text("0\n1\norders 0 much\n")

        with pytest.raises(KlammError, match=f"{HIGH_WATERMARKS}, line 3: 'orders 0 much' is not"):
            offsets_stored(tmp_path)

    def test_dead_letters_of_a_log_directory_read_need_bootstrap_servers(self, tmp_path: Path) -> None:
        with pytest.raises(BadOption, match="onDecodeError=deadletter:dead needs brokers to write to"):
            stored_options(tmp_path, valueFormat="string", onDecodeError="deadletter:dead")


class TestDamage:
    async def test_a_flipped_bit_is_named_with_file_and_byte(self, tmp_path: Path) -> None:
        await make_log(tmp_path)
        path = segment_paths(tmp_path)[2]
        content = bytearray(path.read_bytes())
        second = list(batches_of(bytes(content)))[1]
        content[second.position + 70] ^= 1
        path.write_bytes(content)

        with pytest.raises(
            CorruptBatch, match=rf"checksum .*{path.name}, byte {second.position}\. This replica is dam"
        ):
            offsets_stored(tmp_path)

    @pytest.mark.parametrize("number", [0, 1])
    @pytest.mark.parametrize("field", ["base offset", "base offset far away", "length", "magic"])
    async def test_a_header_field_that_no_checksum_covers_never_gives_wrong_rows(
        self, tmp_path: Path, field: str, number: int
    ) -> None:
        await make_log(tmp_path)
        path = segment_paths(tmp_path)[2]
        content = bytearray(path.read_bytes())
        at = list(batches_of(bytes(content)))[number].position
        content[at + FIELDS[field]] ^= 1
        path.write_bytes(content)

        with pytest.raises(CorruptBatch, match=rf"orders-0.*{path.name}, byte {at}\b"):
            offsets_stored(tmp_path)

    async def test_a_segment_cut_inside_a_batch_is_damage(self, tmp_path: Path) -> None:
        await make_log(tmp_path)
        path = segment_paths(tmp_path)[2]
        path.write_bytes(path.read_bytes()[:-7])

        with pytest.raises(CorruptBatch, match=rf"{path.name}, byte \d+: the last batch, at byte \d+, is cut off"):
            offsets_stored(tmp_path)

    async def test_a_segment_cut_between_batches_is_data_loss(self, tmp_path: Path) -> None:
        await make_log(tmp_path)
        path = segment_paths(tmp_path)[2]
        content = path.read_bytes()
        last = list(batches_of(content))[-1]
        path.write_bytes(content[: last.position])
        following = int(segment_paths(tmp_path)[3].name[:20])

        with pytest.raises(
            DataLoss, match=f"offsets {last.base_offset} to {following - 1} are lost: no segment in .* never compacted"
        ):
            offsets_stored(tmp_path)

    async def test_a_log_that_ends_before_its_high_watermark_is_data_loss_that_can_be_passed_over(
        self, tmp_path: Path
    ) -> None:
        await make_log(tmp_path)
        every = offsets_stored(tmp_path)
        with_records = [path for path in segment_paths(tmp_path) if path.stat().st_size]
        for path in segment_paths(tmp_path):
            if path.name >= with_records[-1].name:
                path.unlink()

        with pytest.raises(DataLoss, match=r"orders-0: offsets .* are lost: the log in .* ends at offset"):
            offsets_stored(tmp_path)
        kept = offsets_stored(tmp_path, onDataLoss="skip")
        assert kept == [o for o in every if o < int(with_records[-1].name[:20])]

    async def test_a_damaged_transaction_index_fails_only_committed_reads(self, tmp_path: Path) -> None:
        await make_log(tmp_path)
        path = segment_paths(tmp_path, ".txnindex")[0]
        path.write_bytes(path.read_bytes() + b"x")

        assert offsets_stored(tmp_path)
        with pytest.raises(KlammError, match=r"txnindex has .* not a multiple .*Start the broker"):
            offsets_stored(tmp_path, kafka__isolation__level="read_committed")

    async def test_a_damaged_message_of_an_old_format_is_refused(self, tmp_path: Path) -> None:
        await make_log(tmp_path)
        old = struct.pack(">qiIbbqii", 0, 22, 0, 1, 0, NOW_MS, -1, -1) + bytes(60)
        segment_paths(tmp_path)[0].write_bytes(old)

        with pytest.raises(CorruptBatch, match="log, byte 0: batch at offset 0: its CRC does not match its bytes"):
            offsets_stored(tmp_path)
