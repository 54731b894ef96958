"""The tables of log directories: every replica, segment and batch is a row."""

import shutil
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType
from tests.unit.spark.stored_logs import NoBrokers, make_log

from klamm.runtime.disk import RealDisk
from klamm.spark.errors import BadOption
from klamm.spark.options import read_options
from klamm.spark.source import KlammSource
from klamm.spark.stored_tables import SCHEMAS, plan_table, read_table, table_columns, table_schema
from klamm.wire.records import batches as batches_of


def rows(table: str, *directories: Path, **given: str) -> list[dict[str, Any]]:
    options = read_options({"logDirs": ",".join(map(str, directories)), "table": table, **given})
    columns = table_columns(table, table_schema(table))
    tasks = plan_table(NoBrokers(), RealDisk(), options)
    found = [part for task in tasks for part in read_table(RealDisk(), table, columns, task)]
    made: list[dict[str, Any]] = pa.Table.from_batches(found, SCHEMAS[table]).to_pylist()
    return made


async def test_each_replica_is_a_row_of_the_table_partitions(tmp_path: Path) -> None:
    log = await make_log(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")

    found = rows("partitions", tmp_path / "one", tmp_path / "two")

    assert [(r["logDir"], r["isRead"]) for r in found] == [
        (str(tmp_path / "one"), True),
        (str(tmp_path / "two"), False),
    ]
    assert {(r["topic"], r["partition"], r["brokerId"], r["highWatermark"]) for r in found} == {
        ("orders", 0, 1, log.end_offset)
    }
    assert found[0]["bytes"] == log.size


async def test_each_segment_is_a_row_of_the_table_segments(tmp_path: Path) -> None:
    await make_log(tmp_path)
    paths = sorted((tmp_path / "orders-0").glob("*.log"))

    found = rows("segments", tmp_path, subscribe="orders")

    assert [(r["baseOffset"], r["bytes"]) for r in found] == [(int(p.stem), p.stat().st_size) for p in paths]
    assert found[0]["timeIndexBytes"] == paths[0].with_suffix(".timeindex").stat().st_size
    assert found[-1]["transactionIndexBytes"] is None


async def test_each_batch_is_a_row_of_the_table_batches_and_damage_is_marked(tmp_path: Path) -> None:
    await make_log(tmp_path)
    path = sorted((tmp_path / "orders-0").glob("*.log"))[1]
    content = bytearray(path.read_bytes())
    damaged = list(batches_of(bytes(content)))[1]
    content[damaged.position + 65] ^= 1
    path.write_bytes(content)
    headers = [
        (int(p.stem), h.position, h.size, h.base_offset, h.last_offset, h.record_count, h.producer_id, h.is_control)
        for p in sorted((tmp_path / "orders-0").glob("*.log"))
        for h in batches_of(p.read_bytes())
    ]

    found = rows("batches", tmp_path)

    names = ("segment", "position", "bytes", "baseOffset", "lastOffset", "records", "producerId", "isControl")
    assert [tuple(r[n] for n in names) for r in found] == headers
    assert [r["baseOffset"] for r in found if not r["isValid"]] == [damaged.base_offset]


def test_tables_are_refused_without_log_directories_and_with_other_columns() -> None:
    with pytest.raises(BadOption, match="option table=batches is only for files: set logDirs"):
        read_options({"kafka.bootstrap.servers": "one:1", "subscribe": "orders", "table": "batches"})
    with pytest.raises(BadOption, match="the column value string, which the table segments does not have"):
        table_columns("segments", StructType([StructField("value", StringType())]))


@pytest.mark.parametrize("table", SCHEMAS)
def test_the_arrow_schema_of_a_table_is_that_of_spark(table: str) -> None:
    schema = KlammSource({"logDirs": "/data", "table": table}).schema()

    assert isinstance(schema, StructType)
    assert to_arrow_schema(schema, timezone="UTC").equals(SCHEMAS[table])


async def test_a_batch_with_a_timestamp_that_spark_cannot_hold_has_none_in_the_table_batches(tmp_path: Path) -> None:
    await make_log(tmp_path)
    path = sorted((tmp_path / "orders-0").glob("*.log"))[0]
    content = bytearray(path.read_bytes())
    struct.pack_into(">q", content, 35, 1_700_000_000_000_000_000)  # the max timestamp of the first batch
    path.write_bytes(content)

    found = rows("batches", tmp_path)

    assert [r["maxTimestamp"] is None for r in found[:2]] == [True, False]
