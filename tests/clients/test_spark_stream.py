"""`readStream.format("klamm")` in a real Spark session, on real nodes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition
from prometheus_client import CollectorRegistry, generate_latest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery
from tests.clients.test_spark_source import produce
from tests.support.cluster import Cluster
from tests.support.stream_kills import command_line

from klamm.model import ids
from klamm.runtime.processes import ticks
from klamm.spark import watch

MAX_STREAM_MEMORY = 150 << 20
TIMEOUT_S = 60


@pytest.fixture(autouse=True)
def no_query_is_left(spark: SparkSession) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()


def stream(spark: SparkSession, cluster: Cluster, topic: str, **options: Any) -> DataFrame:
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, **options}
    return spark.readStream.format("klamm").options(**given).load()


def start(rows: DataFrame, directory: Path, **trigger: Any) -> StreamingQuery:
    """A query into Parquet files."""
    writer = rows.writeStream.format("parquet").option("path", str(directory / "table"))
    return writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(**trigger).start()


def run(rows: DataFrame, directory: Path) -> list[int]:
    """Read what is there; the sizes of the micro-batches that had rows."""
    query = start(rows, directory, availableNow=True)
    assert query.awaitTermination(TIMEOUT_S)
    return [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]


def offsets(spark: SparkSession, directory: Path) -> list[tuple[int, int]]:
    rows = spark.read.parquet(str(directory / "table")).select("partition", "offset").collect()
    return sorted((r["partition"], r["offset"]) for r in rows)


def ends(cluster: Cluster, topic: str, partitions: int) -> dict[int, int]:
    """The log ends as librdkafka sees them."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "ends"})
    found = {n: consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=20)[1] for n in range(partitions)}
    consumer.close()
    return found


def committed(cluster: Cluster, group: str, topic: str, partitions: int) -> dict[int, int]:
    """The offsets of a consumer group as librdkafka sees them."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    found = consumer.committed([TopicPartition(topic, n) for n in range(partitions)], timeout=20)
    consumer.close()
    return {p.partition: p.offset for p in found}


def test_a_spark_stream_restarted_several_times_reads_each_record_once(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    topic = "stream-runs"
    cluster.create_topic(topic, partitions=3)
    produce(cluster, topic, 500, "zstd")
    rows = stream(spark, cluster, topic, startingOffsets="earliest", maxOffsetsPerTrigger=200)

    assert sum(run(rows, tmp_path)) == 500
    produce(cluster, topic, 100, "none")
    sizes = run(rows, tmp_path)
    assert run(rows, tmp_path) == []

    assert sum(sizes) == 100
    assert offsets(spark, tmp_path) == [(p, o) for p, end in ends(cluster, topic, 3).items() for o in range(end)]


def test_a_local_session_writes_checkpoints_without_a_process_for_each_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Hadoop's FileContext, which Spark prefers, starts `readlink` several times for each rename on a local disk."""
    state: Any = spark._jsparkSession.sessionState()
    java: Any = spark.sparkContext._jvm
    managers = java.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
    manager = managers.create(java.org.apache.hadoop.fs.Path(str(tmp_path)), state.newHadoopConf())

    assert manager.getClass().getSimpleName() == "FileSystemBasedCheckpointFileManager"


def test_a_cached_table_is_computed_by_the_python_workers_that_are_there(spark: SparkSession) -> None:
    """Processes of its own would stay as long as Spark runs."""

    def daemons() -> set[int]:
        """The processes that Java started to fork Python workers."""
        java = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
        return {child.pid for child in psutil.Process(java).children() if "pyspark.daemon" in command_line(child)}

    def compute() -> None:
        table = spark.range(3).select(sql.udf(lambda number: number + 1, "long")("id"))
        assert table.cache().count() == 3
        table.unpersist()

    compute()
    before = daemons()

    compute()

    assert daemons() == before


def test_a_spark_stream_checkpoint_holds_sorted_offsets_with_cluster_and_topic_ids(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    topic = "stream-checkpoint"
    cluster.create_topic(topic, partitions=11)
    run(stream(spark, cluster, topic), tmp_path)

    stored = json.loads((tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[-1])

    assert list(stored["topics"][topic]["next"]) == [str(n) for n in range(11)]
    assert re.fullmatch(r"[\w-]{22}", stored["topics"][topic]["id"])
    assert re.fullmatch(r"[\w-]{22}", stored["cluster"])


def test_a_spark_stream_from_latest_that_crashes_in_its_first_batch_skips_no_record(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    topic = "stream-crash"
    cluster.create_topic(topic, partitions=2)
    produce(cluster, topic, 50, "none")
    rows = stream(spark, cluster, topic, startingOffsets="latest")

    def crash(batch: DataFrame, number: int) -> None:
        raise RuntimeError(f"crash in batch {number}")

    query = rows.writeStream.foreachBatch(crash).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(PySparkException, match="crash in batch 0"):
        query.awaitTermination(TIMEOUT_S)
    before = ends(cluster, topic, 2)
    produce(cluster, topic, 40, "none")
    found: list[tuple[int, int]] = []

    def collect(batch: DataFrame, number: int) -> None:
        found.extend((r["partition"], r["offset"]) for r in batch.collect())

    again = rows.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert again.trigger(availableNow=True).start().awaitTermination(TIMEOUT_S)
    after = ends(cluster, topic, 2)
    assert sorted(found) == [(p, o) for p in before for o in range(before[p], after[p])]


def test_the_lag_metric_of_a_spark_stream_equals_log_end_minus_committed_offset(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    topic, group, registry = "stream-lag", "spark-lag", CollectorRegistry()
    cluster.create_topic(topic, partitions=2)
    produce(cluster, topic, 100, "none")
    rows = stream(spark, cluster, topic, startingOffsets="earliest", maxOffsetsPerTrigger=30)

    query = start(rows, tmp_path, processingTime="1 hour")
    with watch(query, group=group, bootstrap=cluster.bootstrap, registry=registry) as watched:
        for _ in ticks(TIMEOUT_S):
            if watched.lag and max(committed(cluster, group, topic, 2).values()) > 0:
                break
        at = committed(cluster, group, topic, 2)
        end = ends(cluster, topic, 2)
        memory = stream_memory()
        page = generate_latest(registry).decode()
        query.stop()
        expected = {ids.TopicPartition(topic, n): end[n] - at[n] for n in end}

        assert watched.lag == expected
        assert watched.total_lag == 100 - 30 or 100 - 31 <= watched.total_lag <= 100 - 28
        assert f'klamm_spark_lag{{partition="0",query="{query.id}",topic="{topic}"}} {end[0] - at[0]}.0' in page
        assert query.lastProgress is not None
        assert sum(at.values()) == query.lastProgress["numInputRows"]
    assert "klamm_spark_lag{" not in generate_latest(registry).decode()
    assert max(memory) < MAX_STREAM_MEMORY


def stream_memory() -> list[int]:
    """The resident bytes of each process that plans a stream in the driver."""
    runner = "python_streaming_source_runner"
    children = psutil.Process().children(recursive=True)
    found = [p.memory_info().rss for p in children if any(runner in word for word in command_line(p))]
    assert found
    return found


def test_a_spark_query_that_cannot_start_fails_with_a_one_sentence_reason(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    cases = {
        "endingOffsets": ("latest", "option endingOffsets is only for batch reads"),
        "startingOffsets": ('{"stream-none": {"0": 5}}', "topic no-such-topic does not exist"),
    }
    for name, (value, expected) in cases.items():
        with pytest.raises(PySparkException) as caught:
            run(stream(spark, cluster, "no-such-topic", **{name: value}), tmp_path / name)
        assert expected in str(caught.value)
