"""`klamm pipeline` on real nodes: rows in the sink and dead letters are exactly the records of the topic."""

import io
import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import fastavro
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from tests.support.cluster import Cluster
from tests.support.pipeline_kills import committed_records, dead_letters
from tests.support.schema_registry import schema_registry

from klamm.model.errors import UsageError
from klamm.pipeline.check import check_rows, check_topics, source_rows
from klamm.pipeline.errors import PipelineFailed
from klamm.pipeline.export import MANIFEST, Manifest, export_pipeline
from klamm.pipeline.fields import Expectation
from klamm.pipeline.letters import letter_records, original_rows
from klamm.pipeline.position import positions, read_checkpoint
from klamm.pipeline.replay import delete_replayed
from klamm.pipeline.rows import dead_rows, prepare
from klamm.pipeline.run import PipelineRun
from klamm.pipeline.sinks import BatchName, compact_table, sink_of
from klamm.pipeline.spec import Spec, parse_spec
from klamm.pipeline.state import REPLAY, Start, StateDirectory, Status
from klamm.pipeline.yaml_tree import BadFile
from klamm.runtime.clock import RealClock
from klamm.runtime.disk import RealDisk

PARTITIONS = 2
FILE = """pipeline: orders
source:
  bootstrap: {bootstrap}
  topics: {topic}
  value: {{format: json, schema: "id BIGINT, user STRING, timestamp STRING"}}
steps:
  - positive: SELECT * FROM source WHERE id >= 0
  - >
    SELECT id, upper(user) AS user, timestamp, unix_millis(record.timestamp) > 0 AS recorded,
           partition, offset, to_json(struct(*)) AS value
    FROM positive
expect: {{user_present: user IS NOT NULL}}
sink: {{{sink}}}
dead_letter: {{topic: {topic}.dlq}}
trigger: available-now
"""
DISK = RealDisk()
OWN_HEADERS = ("klamm.topic", "klamm.partition", "klamm.offset", "klamm.timestamp", "klamm.error")
SECRET = "reader:canary-5f2d"
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": ["null", "string"]},
        {"name": "timestamp", "type": "string"},
    ],
}


@pytest.fixture
def long_test(client_rounds: int) -> None:
    """A test whose runs of Spark would make `make test` too long."""
    if client_rounds == 1:
        pytest.skip("it takes some seconds: `make prove` runs it")


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"pipe-{uuid4().hex[:8]}"
    for created in (name, f"{name}.dlq", f"{name}.out"):
        cluster.create_topic(created, PARTITIONS)
    return name


@pytest.fixture
def make(cluster: Cluster, topic: str, tmp_path: Path) -> Callable[..., Spec]:
    """A pipeline with some texts of its file replaced."""

    def spec(sink: str = "delta", **replaced: str) -> Spec:
        options = "options: {kafka.compression.type: zstd, kafka.transaction.timeout.ms: 60000}"
        target = f"topic: {topic}.out, {options}" if sink == "topic" else f"{sink}: {tmp_path}/table"
        text = FILE.format(bootstrap=cluster.bootstrap, topic=topic, sink=target)
        for old, new in replaced.items():
            assert old in text
            text = text.replace(old, new)
        return parse_spec(RealDisk(), str(tmp_path / "orders.yaml"), text)

    return spec


def produce(cluster: Cluster, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for n, value in enumerate(values):
        producer.produce(topic, value, b"k%d" % n, partition=n % PARTITIONS, headers=[("h", b"1")])
    assert producer.flush(30) == 0


def value(n: int) -> bytes:
    return b'{"id": %d, "user": "u%d", "timestamp": "t"}' % (n, n)


def run(spark: SparkSession, spec: Spec) -> Status:
    return PipelineRun(spark, spec, DISK).run(lambda batch: None)


def rows_of(spark: SparkSession, cluster: Cluster, topic: str, sink: str, tmp_path: Path) -> list[dict[str, Any]]:
    if sink == "delta":
        return DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist()  # type: ignore[no-any-return]
    if sink == "parquet":
        return [row.asDict() for row in spark.read.parquet(str(tmp_path / "table")).collect()]
    return [json.loads(m.value() or b"") for m in committed_records(cluster.bootstrap, f"{topic}.out")]


@pytest.mark.parametrize("sink", ["delta", "parquet", "topic"])
def test_a_pipeline_that_crashes_behind_its_sink_has_each_record_once_in_sink_or_dead_letters(
    spark: SparkSession,
    cluster: Cluster,
    topic: str,
    make: Callable[..., Spec],
    tmp_path: Path,
    sink: str,
    client_rounds: int,
) -> None:
    if sink != "delta" and client_rounds == 1:
        pytest.skip("it takes some seconds: `make prove` runs it")
    spec = make(sink)
    produce(cluster, topic, [value(0), b"broken", value(2), b'{"id": 3}', value(4), value(-5)])
    crashing = PipelineRun(spark, spec, DISK)
    write = crashing._write

    def write_and_crash(*given: Any) -> Any:
        write(*given)
        raise RuntimeError("crash")

    crashing._write = write_and_crash  # type: ignore[assignment, method-assign]
    with pytest.raises(PipelineFailed, match="The pipeline orders failed: crash"):
        crashing.run(lambda batch: None)
    interrupted = read_checkpoint(DISK, StateDirectory(DISK, spec.state))
    first = run(spark, spec)

    rows = rows_of(spark, cluster, topic, sink, tmp_path)
    assert sorted((r["partition"], r["offset"], r["id"], r["user"], r["timestamp"]) for r in rows) == [
        (0, n // 2, n, f"U{n}" if sink != "topic" else f"u{n}", "t") for n in (0, 2, 4)
    ]
    assert dead_letters(cluster.bootstrap, f"{topic}.dlq") == Counter([(1, 0), (1, 1)])
    assert (first.rows, first.dead_letters) == (6, 2)
    assert (interrupted.is_interrupted, interrupted.complete) == (True, None)
    state = StateDirectory(DISK, spec.state)
    found = positions(spec, read_checkpoint(DISK, state))
    assert [(p.next_offset, p.end, p.lag) for p in found.values()] == [(3, 3, 0)] * PARTITIONS


@pytest.mark.usefixtures("long_test")
def test_a_replay_with_a_corrected_file_empties_the_dead_letters_into_the_table(
    spark: SparkSession, cluster: Cluster, topic: str, make: Callable[..., Spec], tmp_path: Path
) -> None:
    produce(cluster, topic, [value(0), b'{"id": 1}', value(2), b"broken", b'{"id": 4}', value(5)])
    before_ms = RealClock().now_ms()
    run(spark, make())
    letters = {m.value(): m for m in committed_records(cluster.bootstrap, f"{topic}.dlq")}
    corrected = make(**{"user IS NOT NULL": "id IS NOT NULL"})

    replayed = PipelineRun(spark, corrected, DISK, replays=True).run(lambda batch: None)
    state = StateDirectory(DISK, corrected.state, REPLAY)
    delete_replayed(corrected, read_checkpoint(DISK, state).next)

    assert (replayed.rows, replayed.dead_letters) == (3, 1)
    rows = rows_of(spark, cluster, topic, "delta", tmp_path)
    assert Counter((r["partition"], r["offset"]) for r in rows) == Counter([(0, 0), (1, 0), (0, 1), (0, 2), (1, 2)])
    assert dead_letters(cluster.bootstrap, f"{topic}.dlq") == Counter([(1, 1)])
    [again] = committed_records(cluster.bootstrap, f"{topic}.dlq")
    for letter in (letters[b"broken"], again):
        headers = letter.headers() or []
        assert Counter(header[0] for header in headers) == Counter(["h", *OWN_HEADERS])
        named = dict(headers)
        assert (letter.key(), letter.value(), named["h"]) == (b"k3", b"broken", b"1")
        assert (named["klamm.topic"], named["klamm.partition"], named["klamm.offset"]) == (topic.encode(), b"1", b"1")
        assert "the value is not JSON of the schema: " in str(named["klamm.error"])
        assert before_ms - 60_000 <= int(named["klamm.timestamp"] or b"") <= RealClock().now_ms()
    unmet = dict(letters[b'{"id": 1}'].headers() or [])
    assert unmet["klamm.error"] == b"the expectation user_present is not met: user IS NOT NULL"


@pytest.mark.usefixtures("long_test")
def test_an_upsert_keeps_the_newest_row_of_each_key(
    spark: SparkSession, cluster: Cluster, topic: str, make: Callable[..., Spec], tmp_path: Path
) -> None:
    def order(n: int, user: str, at: str) -> bytes:
        return json.dumps({"id": n, "user": user, "timestamp": at}).encode()

    spec = make(**{f"{tmp_path}/table": f"{tmp_path}/table, mode: upsert, keys: [id], order: [timestamp, offset]"})
    produce(cluster, topic, [order(1, "a", "5"), order(2, "x", "5"), order(1, "b", "6"), order(2, "y", "4")])
    run(spark, spec)
    produce(cluster, topic, [order(1, "late", "1"), order(2, "z", "5"), order(3, "new", "1")])
    run(spark, spec)

    rows = rows_of(spark, cluster, topic, "delta", tmp_path)
    assert sorted((r["id"], r["user"]) for r in rows) == [(1, "B"), (2, "Z"), (3, "NEW")]
    compacted = compact_table(spec, 0)
    assert compacted.added <= 1
    assert len(rows_of(spark, cluster, topic, "delta", tmp_path)) == 3


OWN = [("klamm.topic", b"first"), ("klamm.mine", None), ("h", b"1"), ("klamm.error", b"old"), ("h", b"2")]
"""Headers of a record that is a dead letter of another pipeline."""


@pytest.mark.parametrize("headers", [OWN, [], None], ids=["of another pipeline", "none", "null"])
def test_a_dead_letter_that_is_read_again_has_the_headers_of_the_original_record(
    spark: SparkSession, headers: list[tuple[str, bytes | None]] | None
) -> None:
    columns = (
        "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
        "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    )
    time = datetime(2026, 1, 31, 8, 0, 0, 5_000, UTC)
    original = spark.createDataFrame([(b"k", b"v", "orders", 3, 17, time, headers)], columns)
    letter = letter_records(dead_rows(prepare(original, (Expectation("never", "false", 1),)))).first()
    assert letter is not None
    stored = spark.createDataFrame([(letter.key, letter.value, "dlq", 0, 1, time, letter.headers)], columns)

    found = original_rows(stored).first()

    assert found is not None
    assert [tuple(h) for h in found.headers or []] == (headers or [])
    assert (found.topic, found.partition, found.offset) == ("orders", 3, 17)
    assert [h.key for h in letter.headers][len(headers or []) :] == list(OWN_HEADERS)


NANOSECONDS = 1_700_000_000_000_000_000


@pytest.mark.parametrize("kind", ["json", "raw"])
def test_a_record_with_a_timestamp_beyond_spark_is_a_dead_letter_with_its_number_also_after_a_replay(
    spark: SparkSession,
    cluster: Cluster,
    topic: str,
    make: Callable[..., Spec],
    tmp_path: Path,
    kind: str,
    client_rounds: int,
) -> None:
    if kind == "raw" and client_rounds == 1:
        pytest.skip("it takes some seconds: `make prove` runs it")
    raw = {
        ', schema: "id BIGINT, user STRING, timestamp STRING"': "", "format: json": "format: raw",
        "user IS": "value IS",
        "id >= 0": "offset >= 0", "id, upper(user) AS user, ": "", "to_json(struct(*)) AS value": "value",
    }  # fmt: skip
    spec = make(**(raw if kind == "raw" else {}))
    produce(cluster, topic, [value(0), value(1)])
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce(topic, value(2), b"far", partition=0, timestamp=NANOSECONDS)
    assert producer.flush(30) == 0
    ended = run(spark, spec)
    replayed = PipelineRun(spark, spec, DISK, replays=True).run(lambda batch: None)
    state = StateDirectory(DISK, spec.state, REPLAY)
    delete_replayed(spec, read_checkpoint(DISK, state).next)

    assert [(s.rows, s.dead_letters) for s in (ended, replayed)] == [(3, 1), (1, 1)]
    rows = rows_of(spark, cluster, topic, "delta", tmp_path)
    assert Counter((r["partition"], r["offset"]) for r in rows) == Counter([(0, 0), (1, 0)])
    [letter] = committed_records(cluster.bootstrap, f"{topic}.dlq")
    headers = dict(letter.headers() or [])
    assert (letter.key(), letter.value()) == (b"far", value(2))
    assert headers["klamm.timestamp"] == b"%d" % NANOSECONDS
    assert str(headers["klamm.error"]).count(f"timestamp {NANOSECONDS} ms is outside of what Spark's") == 1
    exported = export_pipeline(spark, spec, DISK, str(tmp_path / "export"))
    assert exported.rows == 3


def test_a_pipeline_does_not_read_a_topic_that_it_writes_to_the_same_cluster_by_another_address(
    cluster: Cluster, topic: str, make: Callable[..., Spec]
) -> None:
    elsewhere = cluster.bootstrap.split(",")[0].replace("127.0.0.1", "localhost")
    spec = make("topic", **{f"topic: {topic}.out": f"topic: {topic}, bootstrap: '{elsewhere}'"})

    with pytest.raises(BadFile, match=f"the pipeline would read {topic}, which it writes"):
        check_topics(spec)


@pytest.mark.usefixtures("long_test")
def test_a_pipeline_that_was_reset_reads_again_from_the_given_time(
    spark: SparkSession, cluster: Cluster, topic: str, make: Callable[..., Spec], tmp_path: Path
) -> None:
    spec = make("parquet")
    produce(cluster, topic, [value(0), value(1)])
    run(spark, spec)
    between_ms = max(m.timestamp()[1] for m in committed_records(cluster.bootstrap, topic)) + 1
    while RealClock().now_ms() <= between_ms:
        pass
    produce(cluster, topic, [value(2)])
    StateDirectory(DISK, spec.state).reset(Start(between_ms))

    assert run(spark, spec).rows == 1

    assert Counter(r["id"] for r in rows_of(spark, cluster, topic, "parquet", tmp_path)) == {0: 1, 1: 1, 2: 1}


@pytest.mark.usefixtures("long_test")
def test_a_pipeline_reads_avro_of_a_registry_and_its_secret_is_in_no_plan_error_log_or_checkpoint(
    spark: SparkSession,
    cluster: Cluster,
    topic: str,
    make: Callable[..., Spec],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "auth").write_text(SECRET)
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(ORDER), {"id": 7, "user": "u7", "timestamp": "t"})
    produce(cluster, topic, [b"\0\0\0\0\1" + body.getvalue(), body.getvalue(), b"\0\0\0\0\2x"])

    with schema_registry({1: ORDER}, SECRET) as registry:
        value = (
            f"format: avro, schema_file: order.avsc, registry: '{registry.url}', registry_auth: 'file:{tmp_path}/auth'"
        )
        spec = make("parquet", **{'format: json, schema: "id BIGINT, user STRING, timestamp STRING"': value})
        ended = run(spark, spec)
        plan = source_rows(spark, spec, spec.source_options)._jdf.queryExecution().toString()
        (tmp_path / "auth").write_text("wrong:canary-of-a-wrong-user")
        produce(cluster, topic, [b"\0\0\0\0\3" + body.getvalue()])
        with pytest.raises(
            PipelineFailed, match=r"schemas/ids/3: it answers with status 401; set schemaRegistryAuth"
        ) as e:
            run(spark, spec)

    assert (ended.rows, ended.dead_letters) == (3, 2)
    assert [r["user"] for r in rows_of(spark, cluster, topic, "parquet", tmp_path)] == ["U7"]
    assert "format" in plan or "klamm" in plan
    files = [p for p in tmp_path.rglob("*") if p.is_file() and p.name != "auth"]
    assert any("checkpoint" in p.parts for p in files)
    printed = capfd.readouterr()
    texts = [
        plan.encode(),
        str(e.value).encode(),
        (printed.out + printed.err).encode(),
        *(p.read_bytes() for p in files),
    ]
    assert not [text for text in texts if b"canary" in text]


def test_an_export_has_every_record_of_the_topics_decoded_in_files_whose_manifest_names_their_offsets(
    spark: SparkSession, cluster: Cluster, topic: str, make: Callable[..., Spec], tmp_path: Path
) -> None:
    spec = make(**{f"topics: {topic}": f"topics: {topic}\n  options: {{minPartitions: 3, maxOffsetsPerTrigger: 2}}"})
    produce(cluster, topic, [value(0), b"broken", value(2), b'{"id": 3}', value(4), value(5)])
    directory = tmp_path / "export"

    manifest = export_pipeline(spark, spec, DISK, str(directory))

    tables = {file.name: pq.read_table(directory / file.name) for file in manifest.files}
    assert sorted(path.name for path in directory.iterdir()) == sorted([*tables, MANIFEST])
    assert len(tables) >= 3
    for file in manifest.files:
        places = Counter((r.topic, r.partition, n) for r in file.ranges for n in range(r.start, r.end))
        columns = (tables[file.name][name].to_pylist() for name in ("topic", "partition", "offset"))
        assert Counter(zip(*columns, strict=True)) == places
        assert (file.rows, file.bytes) == (places.total(), (directory / file.name).stat().st_size)
    rows = sorted(pa.concat_tables(tables.values()).to_pylist(), key=lambda r: r["key"])
    assert [(r["partition"], r["offset"]) for r in rows] == [(n % 2, n // 2) for n in range(6)]
    assert [(r["value"] or {}).get("id") for r in rows] == [0, None, 2, 3, 4, 5]
    assert [r["rawValue"] for r in rows] == [None, b"broken", None, None, None, None]
    assert [r["decodeError"] is None for r in rows] == [True, False, True, True, True, True]
    assert [r["headers"] for r in rows] == [[{"key": "h", "value": b"1"}]] * 6
    stored = msgspec.json.decode((directory / MANIFEST).read_bytes(), type=Manifest)
    assert (stored, stored.rows) == (manifest, 6)
    with pytest.raises(UsageError, match=r"--to .*export: it exists, and is not an empty directory"):
        export_pipeline(spark, spec, DISK, str(directory))


def test_without_a_dead_letter_topic_a_pipeline_fails_and_names_the_record(
    spark: SparkSession, cluster: Cluster, topic: str, make: Callable[..., Spec]
) -> None:
    no_letters = {f"dead_letter: {{topic: {topic}.dlq}}\n": ""}
    spec = make(**no_letters)
    produce(cluster, topic, [value(0), b'{"id": 1}'])
    with pytest.raises(PipelineFailed) as unmet:
        run(spark, spec)

    assert f"{topic}-1, offset 0: the expectation user_present is not met" in str(unmet.value)

    after_the_year_9999 = spark.sql(
        "SELECT 'orders' AS topic, 3 AS partition, 17L AS offset, timestamp_millis(1700000000000000) AS timestamp, "
        "CAST(NULL AS BINARY) AS key, CAST(NULL AS BINARY) AS value, "
        "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers"
    )
    prepared = prepare(after_the_year_9999, (Expectation("never", "false", 1),))
    with pytest.raises(PipelineFailed, match=r"orders-3, offset 17: the expectation never is not met: false\. Add"):
        PipelineRun(spark, spec, DISK)._write_letters(prepared, BatchName("query", 0))


MISTAKES = {
    "SQL": ({"FROM positive": "FROM negative"}, 8, "negative"),
    "column": ({"id >= 0": "ident >= 0"}, 7, "ident"),
    "condition": ({"user IS NOT NULL": "usr IS NOT NULL"}, 12, "expect.user_present='usr IS NOT NULL'"),
    "type of a condition": ({"user IS NOT NULL": "user"}, 12, "the condition has the type string"),
    "schema": ({"id BIGINT": "id INTERVAL BIGGER"}, 5, "source.value.schema"),
    "record": ({" AS value": " AS other", "delta": "topic"}, 13, "value"),
}


def test_check_names_the_line_of_each_mistake_in_sql_conditions_and_schema(
    spark: SparkSession, topic: str, make: Callable[..., Spec]
) -> None:
    for name, (replaced, line, expected) in MISTAKES.items():
        given = dict(replaced)
        spec = make("topic" if given.pop("delta", None) else "delta", **given)
        with pytest.raises(BadFile) as caught:
            check_rows(spark, spec, sink_of(spec, DISK))

        text = str(caught.value)
        assert text.startswith(f"orders.yaml, line {line}: "), name
        assert expected in text, name
        assert "\n" not in text, name
        assert text.endswith("."), name


def test_check_names_the_line_of_a_topic_that_does_not_exist(topic: str, make: Callable[..., Spec]) -> None:
    with pytest.raises(BadFile, match=r"orders.yaml, line 4: .*absent"):
        check_topics(make(**{f"topics: {topic}": "topics: absent"}))
    with pytest.raises(
        BadFile, match=r"orders.yaml, line 14: the topic gone does not exist. Create it with klamm topics"
    ):
        check_topics(make(**{f"{topic}.dlq": "gone"}))
