"""Sinks without Spark: which of two rows of a key an upsert keeps, and under which name dead letters are written."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    CalendarIntervalType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from klamm.pipeline.sinks import (
    BatchName,
    DeltaSink,
    ParquetSink,
    SinkFailed,
    letters_of,
    merge_newer,
    sink_of,
    without_deletes,
)
from klamm.pipeline.spec import Spec, Upsert, parse_spec
from klamm.pipeline.yaml_tree import BadFile
from klamm.runtime.disk import RealDisk
from klamm.spark.option_set import Reads
from klamm.spark.sink_options import Delivery, WriteOptions, write_options
from klamm.wire.compression import Codec

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


DELETING = Upsert(("the key",), ("n",), "gone")


def deleting_rows(*given: tuple[str | None, int, bool | None]) -> pa.Table:
    kind = pa.schema([("the key", pa.string()), ("n", pa.int64()), ("gone", pa.bool_())])
    return pa.Table.from_pylist([dict(zip(kind.names, row, strict=True)) for row in given], kind)


def test_an_upsert_with_a_delete_column_deletes_the_rows_of_its_keys_unless_they_are_newer(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"the key": ["a", "b", "c", None, "d"], "n": [1, 5, 1, 1, 1]}))
    given = deleting_rows(("a", 2, True), ("b", 4, True), ("c", 2, False), (None, 1, True), ("d", 2, None),
                          ("e", 1, True), ("f", 1, None))  # fmt: skip

    merge_newer(DeltaTable(tmp_path), given, DELETING, CommitProperties())

    table = DeltaTable(tmp_path).to_pyarrow_table()
    assert sorted(zip(*(table.column(n).to_pylist() for n in ("the key", "n")), strict=True)) == [
        ("b", 5), ("c", 2), ("d", 2), ("f", 1),
    ]  # fmt: skip
    assert table.column_names == ["the key", "n"]


def test_a_new_table_begins_without_rows_that_delete_and_without_their_column() -> None:
    found = without_deletes(deleting_rows(("a", 1, True), ("b", 2, False), ("c", 3, None)), "gone")

    assert found.to_pylist() == [{"the key": "b", "n": 2}, {"the key": "c", "n": 3}]


UPSERT = "mode: upsert, keys: [the key], order: [n]"
WRONG_UPSERTS = {
    "no such key": (UPSERT.replace("the key", "id"), "sink.keys names id, which the result lacks"),
    "no such order": (UPSERT.replace("[n]", "[at]"), "sink.order names at, which the result lacks"),
    "no such column": (f"{UPSERT}, delete: dead", "sink.delete names dead, which the result lacks"),
    "another type": (f"{UPSERT}, delete: n", "the column n of the result is bigint. In the steps, make it BOOLEAN"),
    "a key": (f"{UPSERT}, delete: gone".replace("[n]", "[gone]"), "the column gone is in sink.keys or sink.order, too"),
    "a backtick": (UPSERT.replace("the key", "'`'"), "sink.keys names `. In the steps, give it a name without"),
}


@pytest.mark.parametrize(("sink", "problem"), WRONG_UPSERTS.values(), ids=WRONG_UPSERTS)
def test_a_check_refuses_an_upsert_whose_columns_do_not_fit(tmp_path: Path, sink: str, problem: str) -> None:
    given = columns(**{"the key": StringType(), "n": LongType(), "gone": BooleanType(), "`": LongType()})

    with pytest.raises(BadFile, match=re.escape(problem)):
        DeltaSink(spec(f"delta: {tmp_path}/t, {sink}"), RealDisk()).check(given)


def test_a_table_does_not_have_the_column_that_says_what_an_upsert_deletes(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"the key": ["a"], "n": [1]}))
    sink = DeltaSink(spec(f"delta: {tmp_path}/t, {UPSERT}, delete: gone"), RealDisk())

    sink.check(columns(**{"the key": StringType(), "n": LongType(), "gone": BooleanType()}))


def columns(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (columns(id=LongType()), r"has other columns than the pipeline: it has also \['user'\], it lacks \[\]"),
        (
            columns(id=IntegerType(), user=StringType()),
            "the column id of the table .* is bigint, that of the result is int.",
        ),
    ],
    ids=["a column less", "another type"],
)
def test_a_parquet_sink_refuses_other_columns_than_those_of_its_files(
    tmp_path: Path, given: StructType, problem: str
) -> None:
    stored = columns(id=LongType(), user=StringType())
    (tmp_path / "batch=1-00000000").mkdir()
    of_spark = {b"org.apache.spark.sql.parquet.row.metadata": stored.json().encode()}
    found = pa.table({"id": pa.array([1]), "user": ["a"]}).replace_schema_metadata(of_spark)
    pq.write_table(found, tmp_path / "batch=1-00000000" / "part-0.parquet")
    sink = ParquetSink(spec(f"parquet: {tmp_path}"), RealDisk())

    sink.check(stored)
    with pytest.raises(BadFile, match=problem):
        sink.check(given)


def test_a_parquet_sink_names_a_file_that_it_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "batch=1-00000000").mkdir()
    (tmp_path / "batch=1-00000000" / "part-0.parquet").write_bytes(b"PAR")

    with pytest.raises(BadFile, match=r"p.yaml, line 3: cannot read .*part-0.parquet: .* Remove this file"):
        ParquetSink(spec(f"parquet: {tmp_path}"), RealDisk()).check(columns(id=LongType()))


class FilesOfSpark:
    """Rows that Spark writes as two Parquet files; between the two something else happens."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self._meanwhile = meanwhile
        self.write = self

    def mode(self, name: str) -> "FilesOfSpark":
        assert name == "overwrite"
        return self

    def parquet(self, path: str) -> None:
        for n in range(2):
            Path(path).mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({"id": [n]}), f"{path}/part-{n}.parquet")
            self._meanwhile()


FIRST = BatchName("5f0c3e1a-0000-4000-8000-000000000001", 0)


@pytest.mark.parametrize("name", ["p", "p-2"])
def test_a_check_or_another_pipeline_does_not_remove_what_a_running_pipeline_is_writing(
    tmp_path: Path, name: str
) -> None:
    running, other = spec(f"parquet: {tmp_path}/t"), spec(f"parquet: {tmp_path}/t")._replace(name=name)

    def meanwhile() -> None:
        sink = ParquetSink(other, RealDisk())
        sink.check(columns(id=LongType()))
        if name != running.name:
            sink.write(FilesOfSpark(), FIRST._replace(number=7))  # type: ignore[arg-type]

    ParquetSink(running, RealDisk()).write(FilesOfSpark(meanwhile), FIRST)  # type: ignore[arg-type]

    assert sorted(p.name for p in tmp_path.glob("t/batch=5f0c3e1a-00000000/*")) == ["part-0.parquet", "part-1.parquet"]


def test_a_run_removes_what_a_killed_run_of_the_pipeline_left(tmp_path: Path) -> None:
    def crash() -> None:
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        ParquetSink(spec(f"parquet: {tmp_path}/t"), RealDisk()).write(FilesOfSpark(crash), FIRST)  # type: ignore[arg-type]
    assert len(list(tmp_path.glob("t/_pending-*"))) == 1

    ParquetSink(spec(f"parquet: {tmp_path}/t"), RealDisk()).write(FilesOfSpark(), FIRST)  # type: ignore[arg-type]

    assert [p.name for p in tmp_path.glob("t/*")] == ["batch=5f0c3e1a-00000000"]


def test_a_run_removes_what_others_left_long_ago(tmp_path: Path) -> None:
    for name in ("_pending-0123abcd", "_pending-earlier-name-0123abcd", "_pending-other-0123abcd", "_notes"):
        (tmp_path / "t" / name).mkdir(parents=True)
        if "other" not in name:  # that one is being written now
            RealDisk().set_modified_ms(str(tmp_path / "t" / name), 1_000)

    ParquetSink(spec(f"parquet: {tmp_path}/t"), RealDisk()).write(FilesOfSpark(), FIRST)  # type: ignore[arg-type]

    left = ["_notes", "_pending-other-0123abcd", "batch=5f0c3e1a-00000000"]
    assert sorted(p.name for p in tmp_path.glob("t/*")) == left


def test_a_micro_batch_of_a_checkpoint_that_was_set_back_is_refused(tmp_path: Path) -> None:
    application = Transaction(f"klamm-p-{FIRST.query}", 7)
    name = CommitProperties(app_transactions=[application])
    write_deltalake(tmp_path / "delta", pa.table({"id": [1]}), mode="append", commit_properties=name)
    (tmp_path / "parquet" / "batch=5f0c3e1a-00000007").mkdir(parents=True)

    for kind in ("delta", "parquet"):
        sink = sink_of(spec(f"{kind}: {tmp_path}/{kind}"), RealDisk())
        sink.write(FilesOfSpark(), FIRST._replace(number=7))  # type: ignore[arg-type]  # it is there already
        with pytest.raises(SinkFailed, match=rf"The {kind} .* has micro-batch 7 of .*continues with micro-batch 6: "):
            sink.write(FilesOfSpark(), FIRST._replace(number=6))  # type: ignore[arg-type]
        new = sink_of(spec(f"{kind}: {tmp_path}/{kind}"), RealDisk())
        with pytest.raises(SinkFailed, match=r"has micro-batch 7 .*continues with micro-batch 7, newly planned: "):
            new.write(FilesOfSpark(), FIRST._replace(number=7, is_new=True))  # type: ignore[arg-type]
    assert [p.name for p in (tmp_path / "parquet").iterdir()] == ["batch=5f0c3e1a-00000007"]


class SyncedTable(RealDisk):
    """Has the rows of the table at the time when its file system was synced last."""

    synced = 0

    def sync_filesystem(self, path: str) -> None:
        self.synced = DeltaTable(path).to_pyarrow_table().num_rows


class RowsOfSpark(NamedTuple):
    rows: pa.Table

    def toArrow(self) -> pa.Table:  # noqa: N802  # Spark's name
        return self.rows


def test_a_micro_batch_in_a_delta_table_is_durable_before_the_checkpoint_moves_on(tmp_path: Path) -> None:
    disk = SyncedTable()
    sink = DeltaSink(spec(f"delta: {tmp_path}/t"), disk)

    for number in range(2):
        sink.write(RowsOfSpark(pa.table({"id": [number]})), FIRST._replace(number=number))  # type: ignore[arg-type]
        assert disk.synced == number + 1


class Written:
    """Rows whose write is only recorded."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}
        self.write = self

    def format(self, name: str) -> "Written":
        assert name == "klamm"
        return self

    def mode(self, name: str) -> "Written":
        assert name == "append"
        return self

    def options(self, **given: str) -> "Written":
        self.given = given
        return self

    def save(self) -> None:
        """Write nothing."""


LETTERS = """pipeline: p
source: {bootstrap: 'b:1', topics: t, value: {format: json, schema: id BIGINT}}
steps: [SELECT id FROM source]
expect: {positive: id > 0}
sink: {delta: table}
dead_letter: {topic: dlq}
"""


def write_of_letters(text: str) -> WriteOptions:
    sink, rows = letters_of(parse_spec(RealDisk(), "/p.yaml", text)), Written()
    assert sink is not None
    sink.write(rows, BatchName("5f0c3e1a-0000-4000-8000-000000000001", 7))  # type: ignore[arg-type]
    return write_options(rows.given, Reads.BATCH)


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        ("SELECT id", "SELECT 2 * id AS id", True),
        ("expect:", "# more than zero\nexpect:", True),
        ("id > 0", "id > 1", False),
        ("positive: id > 0", "positive: id > 0, small: id < 9", False),
        ("id BIGINT", "id INT", False),
        ("topic: dlq", "topic: dlq2", False),
    ],
)
def test_dead_letters_are_taken_for_written_only_while_decoding_and_expectations_are_the_same(
    old: str, new: str, is_same: bool
) -> None:
    assert old in LETTERS
    before, after = write_of_letters(LETTERS), write_of_letters(LETTERS.replace(old, new))

    assert (before.write_id == after.write_id) == is_same
    assert (before.write_batch, after.write_batch) == (7, 7)


def test_a_long_pipeline_name_leaves_room_for_the_name_of_its_writes() -> None:
    assert write_of_letters(LETTERS.replace("pipeline: p", f"pipeline: {'p' * 100}")).write_id


def test_the_topic_decides_how_large_a_dead_letter_may_be() -> None:
    assert write_of_letters(LETTERS).send.max_request_bytes > 32 << 20


def test_sink_options_reach_the_writes_of_the_sink_topic_and_of_dead_letters() -> None:
    sink = "sink: {topic: out, options: {Kafka.Transaction.Timeout.MS: 60000, kafka.compression.type: zstd}}"
    text = LETTERS.replace("sink: {delta: table}", sink)
    rows = Written()
    sink_of(parse_spec(RealDisk(), "/p.yaml", text), RealDisk()).write(rows, FIRST)  # type: ignore[arg-type]

    for options in (write_of_letters(text), write_options(rows.given, Reads.BATCH)):
        assert (options.transaction_timeout_ms, options.send.codec, options.delivery) == (
            60_000, Codec.ZSTD, Delivery.EXACTLY_ONCE,
        )  # fmt: skip
    assert write_of_letters(LETTERS).transaction_timeout_ms == 900_000


@pytest.mark.parametrize(
    ("stored", "given", "is_taken"),
    [
        (pa.int64(), LongType(), True),
        (pa.int64(), DoubleType(), False),
        (pa.int64(), StringType(), False),
        (pa.float32(), DoubleType(), False),
        (pa.date32(), TimestampType(), False),
        (pa.timestamp("us", "UTC"), TimestampType(), True),
        (pa.timestamp("us"), TimestampNTZType(), True),
        (pa.decimal128(5, 2), DecimalType(5, 2), True),
        (pa.struct([("x", pa.int32())]), StructType([StructField("x", IntegerType())]), True),
        (pa.struct([("x", pa.int32())]), StructType([StructField("x", LongType())]), False),
        (pa.list_(pa.string()), ArrayType(StringType()), True),
        (pa.map_(pa.string(), pa.int32()), MapType(StringType(), IntegerType()), True),
    ],
    ids=str,
)
def test_a_delta_table_takes_columns_of_its_own_types_only(
    tmp_path: Path, stored: pa.DataType, given: DataType, is_taken: bool
) -> None:
    write_deltalake(tmp_path / "t", pa.table({"a": pa.array([], stored)}))
    sink = DeltaSink(spec(f"delta: {tmp_path}/t"), RealDisk())
    schema = StructType([StructField("a", given)])

    if is_taken:
        sink.check(schema)
        return
    with pytest.raises(BadFile, match=r"p.yaml, line 3: .*the column a of the table .* cast it"):
        sink.check(schema)


ITEM = StructField("x", CalendarIntervalType())


@pytest.mark.parametrize(
    ("kind", "in_delta", "in_parquet"),
    [
        (DayTimeIntervalType(), False, True),
        (CalendarIntervalType(), False, False),
        (TimeType(), False, False),
        (StructType([]), False, False),
        (ArrayType(StructType([ITEM])), False, False),
        (MapType(StringType(), CalendarIntervalType()), False, False),
        (MapType(StringType(), ArrayType(LongType())), True, True),
        (NullType(), True, True),
    ],
    ids=str,
)
def test_a_check_refuses_columns_of_types_that_the_files_of_the_sink_cannot_have(
    tmp_path: Path, kind: DataType, in_delta: bool, in_parquet: bool
) -> None:
    sinks = (
        (DeltaSink(spec(f"delta: {tmp_path}/t"), RealDisk()), in_delta, "Delta table"),
        (ParquetSink(spec(f"parquet: {tmp_path}/t"), RealDisk()), in_parquet, "Parquet file"),
    )
    for sink, is_taken, what in sinks:
        if is_taken:
            sink.check(columns(a=kind))
            continue
        with pytest.raises(BadFile, match=rf"p.yaml, line 1: the column a of the result is .*, which a {what} cannot"):
            sink.check(columns(a=kind))


@pytest.mark.parametrize("sink", ["delta", "parquet"])
def test_a_check_refuses_columns_with_one_name(tmp_path: Path, sink: str) -> None:
    declared = spec(f"{sink}: {tmp_path}/t")

    with pytest.raises(BadFile, match="the result has several columns a"):
        sink_of(declared, RealDisk()).check(columns(a=LongType(), A=LongType()))
