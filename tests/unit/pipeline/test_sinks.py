"""Upserts into a Delta table, without Spark: which of two rows of a key stays."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from klamm.model.errors import UsageError
from klamm.pipeline.sinks import SinkFailed, compact_table, merge_newer
from klamm.pipeline.spec import Spec, Upsert, parse_spec
from klamm.runtime.disk import RealDisk

COLUMNS = pa.schema(
    [("the key", pa.string()), ("part", pa.int64()), ("at", pa.string()), ("n", pa.int64()), ("v", pa.int64())]
)


def rows(*given: tuple[Any, ...]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(COLUMNS.names, row, strict=True)) for row in given], COLUMNS)


def spec(sink: str) -> Spec:
    text = f"pipeline: p\nsource: {{bootstrap: 'b:1', topics: t}}\nsink: {{{sink}}}\n"
    return parse_spec(RealDisk(), "/p.yaml", text)


NEWER = {
    "a later time": (("5", 1), ("6", 0), True),
    "an earlier time": (("5", 1), ("4", 9), False),
    "the same time, a greater number": (("5", 1), ("5", 2), True),
    "the same time, a smaller number": (("5", 1), ("5", 0), False),
    "equal, as when a micro-batch runs again": (("5", 1), ("5", 1), True),
    "null before anything": ((None, 9), ("1", 0), True),
    "null after something": (("1", 0), (None, 9), False),
    "both times null, a greater number": ((None, 1), (None, 2), True),
    "both times null, a smaller number": ((None, 1), (None, 0), False),
    "all null": ((None, None), (None, None), True),
}


@pytest.mark.parametrize(("stored", "given", "replaces"), NEWER.values(), ids=NEWER)
def test_an_upsert_replaces_a_row_unless_the_stored_one_is_newer(
    tmp_path: Path, stored: tuple[Any, ...], given: tuple[Any, ...], replaces: bool
) -> None:
    write_deltalake(tmp_path, rows(("a", 1, *stored, 1), (None, 1, *stored, 1), ("b", 1, *stored, 1)))
    name = CommitProperties(app_transactions=[Transaction("p", 7)])

    merge_newer(
        DeltaTable(tmp_path),
        rows(("a", 1, *given, 2), (None, 1, *given, 2), ("a", 2, *given, 2)),
        Upsert(("the key", "part"), ("at", "n")),
        name,
    )

    table = DeltaTable(tmp_path)
    found = {(r["the key"], r["part"]): r["v"] for r in table.to_pyarrow_table().to_pylist()}
    assert found == {("a", 1): 1 + replaces, (None, 1): 1 + replaces, ("b", 1): 1, ("a", 2): 2}
    assert table.transaction_version("p") == 7


def test_compaction_combines_the_files_of_a_delta_table_and_keeps_its_rows_and_transactions(tmp_path: Path) -> None:
    for n in range(3):
        name = CommitProperties(app_transactions=[Transaction("p", n)])
        write_deltalake(tmp_path / "t", rows(("a", n, "1", 1, 1)), mode="append", commit_properties=name)

    done = compact_table(spec(f"delta: {tmp_path}/t"), 0)

    assert (done.combined, done.added, done.removed) == (3, 1, 3)
    table = DeltaTable(tmp_path / "t")
    assert sorted(table.to_pyarrow_table()["part"].to_pylist()) == [0, 1, 2]
    assert table.transaction_version("p") == 2


def test_only_an_existing_delta_table_can_be_compacted(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"p.yaml, line 3: .*only Delta tables can be compacted"):
        compact_table(spec("parquet: out"), 0)
    with pytest.raises(SinkFailed, match="Run the pipeline first"):
        compact_table(spec(f"delta: {tmp_path}/none"), 0)
