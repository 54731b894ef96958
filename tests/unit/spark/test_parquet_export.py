"""Files of an export: a failed task leaves none, one without rows has none, and a repeated one replaces its file."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from klamm.model.ids import TopicPartition
from klamm.runtime.disk import File, RealDisk
from klamm.spark import parquet_export
from klamm.spark.options import read_options
from klamm.spark.parquet_export import ExportedFile, ExportedRange, _write_task
from klamm.spark.ranges import OffsetRange, TaskRanges
from klamm.spark.schema import Columns
from klamm.spark.tasks import Job

JOB = Job(read_options({"kafka.bootstrap.servers": "a:1", "subscribe": "orders"}), Columns(("offset",), ("offset",)))
TASK = TaskRanges((OffsetRange(TopicPartition("orders", 3), 10, 14),))


def batch(*offsets: int) -> pa.RecordBatch:
    return pa.record_batch({"offset": pa.array(offsets, pa.int64())})


def write(
    monkeypatch: pytest.MonkeyPatch, directory: Path, *batches: pa.RecordBatch, crash: bool = False
) -> ExportedFile:
    """Write a task that reads these batches, and then fails with `crash`."""

    def read(job: Job, task: TaskRanges) -> Iterator[pa.RecordBatch]:
        assert (job, task) == (JOB, TASK)
        yield from batches
        if crash:
            raise ConnectionError("broker 1 is gone")

    monkeypatch.setattr(parquet_export, "run_task", read)
    return _write_task(JOB, str(directory), (7, TASK))


def test_an_exported_file_has_the_rows_of_its_task_and_names_its_offsets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = write(monkeypatch, tmp_path, batch(10, 11), batch(13))

    path = tmp_path / "part-00007.parquet"
    assert file == ExportedFile(path.name, 3, path.stat().st_size, [ExportedRange("orders", 3, 10, 14)])
    assert list(tmp_path.iterdir()) == [path]
    assert pq.read_table(path)["offset"].to_pylist() == [10, 11, 13]


def test_an_exported_file_is_durable_before_the_task_reports_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done: list[str] = []

    class Recording(RealDisk):
        """Notes what makes files durable, in order."""

        def open(self, path: str, *, create: bool = False) -> File:
            file = super().open(path, create=create)
            sync = file.sync

            def noted() -> None:
                done.append("sync")
                sync()

            return cast(File, SimpleNamespace(sync=noted, close=file.close))

        def rename(self, source: str, target: str) -> None:
            done.append("rename")
            super().rename(source, target)

        def sync_directory(self, path: str) -> None:
            done.append(f"sync of {Path(path).name}")
            super().sync_directory(path)

    monkeypatch.setattr(parquet_export, "RealDisk", Recording)
    write(monkeypatch, tmp_path, batch(10))

    assert done == ["sync", "rename", f"sync of {tmp_path.name}"]


def test_an_export_task_that_fails_or_reads_nothing_leaves_no_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(ConnectionError):
        write(monkeypatch, tmp_path, batch(10), crash=True)
    file = write(monkeypatch, tmp_path)

    assert (file.rows, file.bytes) == (0, 0)
    assert list(tmp_path.iterdir()) == []


def test_an_export_task_that_runs_again_replaces_its_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write(monkeypatch, tmp_path, batch(10))
    write(monkeypatch, tmp_path, batch(10, 11))

    assert pq.read_table(tmp_path / "part-00007.parquet")["offset"].to_pylist() == [10, 11]


def test_an_export_keeps_raw_values_only_of_records_that_could_not_be_decoded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = pa.record_batch({"rawValue": [b"{}", b"x"], "decodeError": [None, "the value is not JSON"]})
    write(monkeypatch, tmp_path, rows)

    assert pq.read_table(tmp_path / "part-00007.parquet")["rawValue"].to_pylist() == [None, b"x"]
