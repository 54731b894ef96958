"""`logDirs`: log directories whose broker rolls, deletes, compacts and moves logs between planning and reading."""

import shutil
from pathlib import Path
from uuid import UUID

import pytest
from tests.unit.log.compaction import COMPACTED
from tests.unit.log.support import batch
from tests.unit.spark.stored_logs import (
    SMALL_SEGMENTS,
    as_content,
    clean,
    fill,
    log_manager,
    make_log,
    new_log,
    offsets_stored,
    plan_stored,
    read_planned,
    segment_paths,
    stored_options,
)

from klamm.log.checkpoints import CLEANED_OFFSETS
from klamm.log.names import TRANSACTION_INDEX
from klamm.runtime.disk import RealDisk
from klamm.spark.errors import DataLoss


class TestWhileTheBrokerRuns:
    async def test_a_directory_locked_by_its_broker_is_read_up_to_its_checkpoint(self, tmp_path: Path) -> None:
        async with log_manager(tmp_path) as logs:
            log = new_log(logs)
            fill(log)
            await logs.write_high_watermarks()
            committed_end = log.end_offset
            log.append_as_leader(batch("later"), 1)

            assert offsets_stored(tmp_path)[-1] < committed_end

    async def test_segments_deleted_by_retention_after_planning_are_reported_as_data_loss(self, tmp_path: Path) -> None:
        async with log_manager(tmp_path) as logs:
            log = new_log(logs, configs=SMALL_SEGMENTS | {"retention.bytes": "4000"})
            fill(log)
            await logs.write_high_watermarks()
            options = stored_options(tmp_path)
            tasks = plan_stored(options)
            assert log.delete_old_segments()

            with pytest.raises(DataLoss, match=r"offsets 0 to .* retention or a DeleteRecords request deleted them"):
                read_planned(options, tasks)

    async def test_a_read_during_compaction_returns_the_last_value_of_each_key(self, tmp_path: Path) -> None:
        async with log_manager(tmp_path) as logs:
            log = new_log(logs, configs=COMPACTED)
            workload = fill(log)
            await logs.write_high_watermarks()
            options = stored_options(tmp_path, kafka__isolation__level="read_committed")
            tasks = plan_stored(options)
            assert await clean(logs)

            rows = as_content(read_planned(options, tasks))

        last = {key: value for key, value, _ in rows.values()}
        assert {key: value for key, value in last.items() if value is not None} == workload.values

    async def test_reading_a_log_directory_during_the_renames_of_a_first_compaction_loses_no_row(
        self, tmp_path: Path
    ) -> None:
        async with log_manager(tmp_path) as logs:
            log = new_log(logs, configs=COMPACTED)
            fill(log)
            before = tmp_path / "before"
            shutil.copytree(tmp_path / "orders-0", before)
            await clean(logs)
        cleaned = max(segment_paths(tmp_path), key=lambda path: path.stat().st_size)
        swap = cleaned.with_name(cleaned.name + ".swap")
        expected = offsets_stored(tmp_path)
        cleaned.rename(swap)
        (tmp_path / CLEANED_OFFSETS).unlink()

        assert offsets_stored(tmp_path) == expected

    async def test_aborted_transactions_are_left_out_while_compaction_renames_the_files_of_a_segment(
        self, tmp_path: Path
    ) -> None:
        await make_log(tmp_path)
        expected = offsets_stored(tmp_path, kafka__isolation__level="read_committed")
        assert expected != offsets_stored(tmp_path)
        for path in segment_paths(tmp_path, TRANSACTION_INDEX):
            path.rename(f"{path}.swap")  # the log has its name already

        assert offsets_stored(tmp_path, kafka__isolation__level="read_committed") == expected

    async def test_aborted_transactions_are_found_where_compaction_renames_their_index_before_it_is_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await make_log(tmp_path)
        expected = offsets_stored(tmp_path, kafka__isolation__level="read_committed")
        read = RealDisk.read

        def rename_and_read(disk: RealDisk, path: str) -> bytes:
            if path.endswith(TRANSACTION_INDEX) and disk.exists(path):
                disk.rename(path, f"{path}.swap")
            return read(disk, path)

        monkeypatch.setattr(RealDisk, "read", rename_and_read)

        assert offsets_stored(tmp_path, kafka__isolation__level="read_committed") == expected

    async def test_a_topic_recreated_in_the_same_log_directory_is_reported_as_data_loss(self, tmp_path: Path) -> None:
        await make_log(tmp_path)
        options = stored_options(tmp_path)
        tasks = plan_stored(options)
        shutil.rmtree(tmp_path / "orders-0")
        async with log_manager(tmp_path) as logs:
            fill(new_log(logs, topic_id=UUID(int=77)), seed=2)

        with pytest.raises(DataLoss, match="topic orders was deleted and created again"):
            read_planned(options, tasks)

    async def test_reading_log_directories_follows_a_replica_moved_to_another_directory(self, tmp_path: Path) -> None:
        first, second = tmp_path / "one", tmp_path / "two"
        await make_log(first)
        async with log_manager(second):
            pass
        options = stored_options(first, second)
        expected, tasks = offsets_stored(first), plan_stored(options)
        (first / "orders-0").rename(second / "orders-0")

        assert [row["offset"] for row in read_planned(options, tasks)] == expected

    async def test_a_topic_deleted_after_planning_is_reported_as_data_loss(self, tmp_path: Path) -> None:
        await make_log(tmp_path)
        options = stored_options(tmp_path)
        tasks = plan_stored(options)
        shutil.rmtree(tmp_path / "orders-0")

        with pytest.raises(DataLoss, match="orders-0 is gone: the topic was deleted, or the replica was moved"):
            read_planned(options, tasks)
