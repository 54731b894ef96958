"""What a pipeline makes of unusual records and checkpoints: tombstones, odd names, a checkpoint that was set back."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, LongType, StructField, StructType, _parse_datatype_string
from tests.support.cluster import Cluster
from tests.support.pipeline_kills import committed_records, dead_letters

from klamm.pipeline.check import check_rows
from klamm.pipeline.errors import PipelineFailed
from klamm.pipeline.fields import Expectation
from klamm.pipeline.rows import LETTER, REASON, dead_rows, good_rows, is_dead, prepare
from klamm.pipeline.run import PipelineRun
from klamm.pipeline.sinks import newest_rows, sink_of
from klamm.pipeline.spec import Spec, Upsert, parse_spec
from klamm.pipeline.state import StateDirectory, Status
from klamm.pipeline.yaml_tree import BadFile
from klamm.runtime.disk import RealDisk

DISK = RealDisk()
FILE = """pipeline: customers
source:
  bootstrap: {bootstrap}
  topics: {topic}
  value: {{format: json, schema: "id BIGINT, user STRING"}}
steps:
  - {step}
{more}
sink: {{{sink}}}
trigger: available-now
"""
UPSERTED = """>
    SELECT coalesce(id, CAST(string(key) AS BIGINT)) AS id, user, offset, record.tombstone AS gone FROM source"""


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"rows-{uuid4().hex[:8]}"
    for created in (name, f"{name}.dlq", f"{name}.out"):
        cluster.create_topic(created, 1)
    return name


@pytest.fixture
def make(cluster: Cluster, topic: str, tmp_path: Path) -> Callable[..., Spec]:
    def spec(step: str, sink: str, more: str = "") -> Spec:
        sink = sink.format(table=tmp_path / "table", topic=topic)
        text = FILE.format(bootstrap=cluster.bootstrap, topic=topic, step=step, sink=sink, more=more)
        return parse_spec(DISK, str(tmp_path / "customers.yaml"), text.replace("TOPIC", topic))

    return spec


def produce(cluster: Cluster, topic: str, *records: tuple[bytes, bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for key, value in records:
        producer.produce(topic, value, key)
    assert producer.flush(30) == 0


def run(spark: SparkSession, spec: Spec) -> Status:
    return PipelineRun(spark, spec, DISK).run(lambda batch: None)


def table(tmp_path: Path) -> list[dict[str, Any]]:
    return DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist()  # type: ignore[no-any-return]


def user(n: int, name: str) -> tuple[bytes, bytes]:
    return b"%d" % n, b'{"id": %d, "user": "%s"}' % (n, name.encode())


def test_a_tombstone_is_a_row_of_nulls_that_says_so_and_deletes_the_row_of_an_upsert(
    spark: SparkSession, cluster: Cluster, topic: str, make: Callable[..., Spec], tmp_path: Path
) -> None:
    spec = make(UPSERTED, "delta: {table}, mode: upsert, keys: [id], order: [offset], delete: gone")
    produce(cluster, topic, user(1, "a"), user(2, "b"), user(3, "c"), (b"3", None), (b"9", None))
    assert run(spark, spec).rows == 5
    assert sorted((r["id"], r["user"]) for r in table(tmp_path)) == [(1, "a"), (2, "b")]

    produce(cluster, topic, (b"2", None), user(3, "again"), (b"1", b"{}"))
    run(spark, spec)

    assert sorted((r["id"], r["user"]) for r in table(tmp_path)) == [(1, None), (3, "again")]
    assert set(table(tmp_path)[0]) == {"id", "user", "offset"}


def test_a_tombstone_is_appended_and_may_be_left_out_or_made_a_dead_letter(
    spark: SparkSession,
    cluster: Cluster,
    topic: str,
    make: Callable[..., Spec],
    tmp_path: Path,
    client_rounds: int,
) -> None:
    if client_rounds == 1:
        pytest.skip("it takes some seconds: `make prove` runs it")
    produce(cluster, topic, user(1, "a"), (b"1", None))
    spec = make("SELECT id, user, string(key) AS key, record.tombstone FROM source", "delta: {table}")
    assert run(spark, spec).rows == 2
    assert sorted(map(str, table(tmp_path))) == sorted(map(str, (
        {"id": 1, "user": "a", "key": "1", "tombstone": False},
        {"id": None, "user": None, "key": "1", "tombstone": True},
    )))  # fmt: skip

    refused = "expect: {has_a_value: NOT record.tombstone}\ndead_letter: {topic: TOPIC.dlq}"
    spec = make("SELECT id FROM source", "delta: {table}2", refused)._replace(state=str(tmp_path / "state2"))
    assert run(spark, spec).dead_letters == 1
    [letter] = committed_records(cluster.bootstrap, f"{topic}.dlq")
    assert (letter.key(), letter.value()) == (b"1", None)


class CheckpointOf:
    """The checkpoint of a pipeline as it was before its last micro-batch."""

    def __init__(self, spec: Spec) -> None:
        self._path = Path(StateDirectory(DISK, spec.state).checkpoint)
        self._backup = self._path.with_name("backup")
        shutil.copytree(self._path, self._backup)

    def restore(self) -> None:
        shutil.rmtree(self._path)
        shutil.copytree(self._backup, self._path)


@pytest.mark.parametrize("sink", ["delta: {table}", "parquet: {table}", "topic: {topic}.out", "dead letters"])
def test_a_checkpoint_that_was_set_back_by_one_micro_batch_is_refused(
    spark: SparkSession,
    cluster: Cluster,
    topic: str,
    make: Callable[..., Spec],
    tmp_path: Path,
    sink: str,
    client_rounds: int,
) -> None:
    if sink.startswith("parquet") and client_rounds == 1:
        pytest.skip("it takes some seconds: `make prove` runs it")
    letters = sink == "dead letters"
    spec = make(
        "SELECT string(key) AS key, to_json(struct(*)) AS value FROM source",
        "delta: {table}" if letters else sink,
        "expect: {never: id < 0}\ndead_letter: {topic: TOPIC.dlq}" if letters else "",
    )
    produce(cluster, topic, user(1, "a"))
    run(spark, spec)
    backup = CheckpointOf(spec)
    produce(cluster, topic, user(2, "b"))
    run(spark, spec)
    backup.restore()
    produce(cluster, topic, user(3, "c"))

    with pytest.raises(
        PipelineFailed, match=r"has micro-batch 1 .*continues with micro-batch 1, newly planned: the che"
    ):
        run(spark, spec)
    if letters:
        assert dead_letters(cluster.bootstrap, f"{topic}.dlq") == Counter([(0, 0), (0, 1)])
    elif sink.startswith("topic"):
        assert len(committed_records(cluster.bootstrap, f"{topic}.out")) == 2


def test_fields_of_values_may_have_the_names_of_klamms_own_columns(spark: SparkSession) -> None:
    names = ["klamm_letter", "klamm_reason", "klamm_rank", "record", "Offset", "rawValue", "a.b", "", "`"]
    value = StructType([StructField(name, LongType()) for name in names])
    of_record = (
        "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
        "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    )
    own = [StructField("key", BinaryType()), StructField("value", value)]
    kind = StructType([*own, *_parse_datatype_string(of_record)])  # type: ignore[misc]
    values = tuple(range(len(names)))
    rows = spark.createDataFrame([(None, values, "t", 0, 7, None, None)], kind)

    good = good_rows(prepare(rows, (Expectation("good", "klamm_letter = 0 AND klamm_reason = 1", 1),)))
    dead = dead_rows(prepare(rows, (Expectation("bad", "klamm_reason = 0", 1),)))

    assert [tuple(row)[: len(names)] for row in good.collect()] == [values]
    assert good.columns == [*names, "key", "topic", "partition", "timestamp", "headers"]
    [letter] = dead.collect()
    assert (letter[LETTER].offset, letter[REASON]) == (7, "the expectation bad is not met: klamm_reason = 0")
    assert prepare(rows, ()).where(is_dead(prepare(rows, ()))).count() == 0
    [newest] = newest_rows(good, Upsert(("klamm_letter",), ("klamm_rank",))).collect()
    assert newest.klamm_rank == 2


def test_fields_of_values_that_sql_takes_for_one_are_refused_by_the_check(
    spark: SparkSession, make: Callable[..., Spec]
) -> None:
    spec = make("SELECT * FROM source", "delta: {table}")
    options = spec.source_options | {"valueSchema": "id BIGINT, ID STRING"}

    with pytest.raises(BadFile, match=r"customers.yaml, line 5: .* has the fields id and ID, which SQL takes for one"):
        check_rows(spark, spec._replace(source_options=options), sink_of(spec, DISK))
