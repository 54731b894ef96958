"""Compaction of a pipeline's Delta table, also while a run upserts: nothing is lost, and both succeed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from klamm.model.errors import UsageError
from klamm.pipeline import sinks
from klamm.pipeline.sinks import BatchName, DeltaSink, SinkFailed, compact_table, merge_newer
from klamm.pipeline.spec import Spec, parse_spec
from klamm.runtime.disk import RealDisk

UPSERT = "mode: upsert, keys: [id], order: [n]"
FIRST = BatchName("5f0c3e1a-0000-4000-8000-000000000001", 0)


class RowsOfSpark(NamedTuple):
    rows: pa.Table

    def toArrow(self) -> pa.Table:  # noqa: N802  # Spark's name
        return self.rows


def spec(sink: str) -> Spec:
    text = f"pipeline: p\nsource: {{bootstrap: 'b:1', topics: t}}\nsink: {{{sink}}}\n"
    return parse_spec(RealDisk(), "/p.yaml", text)


def rows(*given: tuple[str, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(("id", "n"), row, strict=True)) for row in given])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table of three files."""
    for number in range(3):
        name = CommitProperties(app_transactions=[Transaction("p", number)])
        write_deltalake(tmp_path / "t", rows((f"k{number}", 0)), mode="append", commit_properties=name)
    return tmp_path / "t"


@pytest.fixture
def sink(path: Path, monkeypatch: pytest.MonkeyPatch) -> DeltaSink:
    """The sink of an upsert whose rows are those of one micro-batch already."""
    monkeypatch.setattr(sinks, "newest_rows", lambda rows, _upsert: rows)
    return DeltaSink(spec(f"delta: {path}, {UPSERT}"), RealDisk())


def write(sink: DeltaSink, number: int, *given: tuple[str, int]) -> None:
    sink.write(RowsOfSpark(rows(*given)), FIRST._replace(number=number, is_new=True))  # type: ignore[arg-type]


def stored(path: Path) -> list[tuple[str, int]]:
    table = DeltaTable(path).to_pyarrow_table()
    return sorted(zip(*(table.column(name).to_pylist() for name in ("id", "n")), strict=True))


def test_compaction_combines_the_files_of_a_delta_table_and_keeps_its_rows_and_transactions(path: Path) -> None:
    kept = compact_table(spec(f"delta: {path}"), 10**18)
    done = compact_table(spec(f"delta: {path}"), 0)

    assert (kept.combined, kept.added, kept.removed) == (3, 1, 0)
    assert (done.combined, done.added, done.removed) == (0, 0, 3)
    assert stored(path) == [("k0", 0), ("k1", 0), ("k2", 0)]
    assert DeltaTable(path).transaction_version("p") == 2


def test_only_an_existing_delta_table_can_be_compacted(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"p.yaml, line 3: .*only Delta tables can be compacted"):
        compact_table(spec("parquet: out"), 0)
    with pytest.raises(SinkFailed, match="Run the pipeline first"):
        compact_table(spec(f"delta: {tmp_path}/none"), 0)


@pytest.mark.parametrize("keep_ms", [0, 10**9])
def test_an_upsert_is_repeated_where_a_compaction_replaced_the_files_of_its_rows(
    path: Path, sink: DeltaSink, monkeypatch: pytest.MonkeyPatch, keep_ms: int
) -> None:
    merges = []

    def merge_after_compaction(*given: Any) -> None:
        merges.append(1)
        if len(merges) == 1:
            compact_table(spec(f"delta: {path}"), keep_ms)
            if keep_ms == 0:
                compact_table(spec(f"delta: {path}"), 0)  # the first one removes what older versions need
        merge_newer(*given)

    monkeypatch.setattr(sinks, "merge_newer", merge_after_compaction)
    write(sink, 0, ("k1", 7), ("k9", 7))

    assert stored(path) == [("k0", 0), ("k1", 7), ("k2", 0), ("k9", 7)]
    assert len(merges) == 2


def test_a_compaction_is_repeated_where_an_upsert_replaced_the_files_that_it_combined(
    path: Path, sink: DeltaSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    def upsert_meanwhile(table: Path) -> DeltaTable:
        monkeypatch.setattr(sinks, "DeltaTable", DeltaTable)
        seen = DeltaTable(table)
        write(sink, 0, ("k0", 8), ("k2", 8))
        write_deltalake(path, rows(("k5", 0)), mode="append")
        return seen

    monkeypatch.setattr(sinks, "DeltaTable", upsert_meanwhile)

    assert compact_table(spec(f"delta: {path}"), 10**9).added == 1
    assert stored(path) == [("k0", 8), ("k1", 0), ("k2", 8), ("k5", 0)]


def test_an_upsert_that_was_committed_although_it_failed_is_not_repeated(
    path: Path, sink: DeltaSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit_and_fail(*given: Any) -> None:
        merge_newer(*given)
        raise OSError("connection lost")

    monkeypatch.setattr(sinks, "merge_newer", commit_and_fail)
    write(sink, 0, ("k1", 7))

    assert stored(path) == [("k0", 0), ("k1", 7), ("k2", 0)]


def test_a_commit_that_fails_although_the_table_did_not_change_is_not_repeated(
    path: Path, sink: DeltaSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def fail(*_given: Any) -> None:
        tries.append(1)
        raise OSError("disk full")

    monkeypatch.setattr(sinks, "merge_newer", fail)
    with pytest.raises(SinkFailed, match=r"Cannot write micro-batch 0 to the table .*disk full"):
        write(sink, 0, ("a", 1))
    assert len(tries) == 1


def test_a_commit_to_a_table_that_changes_each_time_is_given_up_after_the_last_attempt() -> None:
    tries: list[int] = []

    def fail(table: DeltaTable) -> None:
        tries.append(table.version())
        raise DeltaError("conflict")

    def open_table() -> DeltaTable:
        return cast(DeltaTable, SimpleNamespace(version=lambda: len(tries)))

    with pytest.raises(DeltaError, match="conflict"):
        sinks.commit_again(open_table(), fail, open_table)

    assert tries == list(range(sinks.MAX_COMMIT_ATTEMPTS))
