"""`write.format("klamm")` in a real Spark session, read back by librdkafka."""

from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.support.cluster import Cluster
from tests.support.sink_runs import committed, committed_for_kafka_python

from klamm.client.partitioners import by_murmur2

PARTITIONS = 3


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"sink-{uuid4().hex[:8]}"
    cluster.create_topic(name, PARTITIONS)
    return name


def write(rows: DataFrame, cluster: Cluster, **options: str) -> None:
    named = {name.replace("__", "."): value for name, value in options.items()}
    given = {"kafka.bootstrap.servers": cluster.bootstrap} | named
    rows.write.format("klamm").mode("append").options(**given).save()


def messages(cluster: Cluster, topic: str, count: int) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "sink", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, n, 0) for n in range(PARTITIONS)])
    found = consumer.consume(count, timeout=30)
    consumer.close()
    assert len(found) == count
    return found


def test_the_spark_sink_writes_key_value_headers_and_partition_of_each_row(
    spark: SparkSession, cluster: Cluster, topic: str
) -> None:
    rows = spark.createDataFrame(
        [
            ("k1", b"v1", [("h", b"x"), ("h", None)], None, "ignored"),
            ("k2", None, None, None, "ignored"),
            (None, b"v3", [], 2, "ignored"),
            ("k4", b"", None, 1, "ignored"),
        ],
        "Key STRING, VALUE BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, partition INT, extra STRING",
    )

    write(rows.coalesce(1), cluster, topic=topic, kafka__compression__type="lz4")

    found = {m.key(): (m.value(), m.headers(), m.partition()) for m in messages(cluster, topic, 4)}
    assert found == {
        b"k1": (b"v1", [("h", b"x"), ("h", None)], by_murmur2(b"k1", PARTITIONS)),
        b"k2": (None, None, by_murmur2(b"k2", PARTITIONS)),
        None: (b"v3", None, 2),
        b"k4": (b"", None, 1),
    }


def test_the_spark_sinks_option_topic_overrides_the_column_topic(
    spark: SparkSession, cluster: Cluster, topic: str
) -> None:
    other = f"{topic}-other"
    cluster.create_topic(other, PARTITIONS)
    rows = spark.range(2).selectExpr(f"'{topic}' AS topic", "CAST(id AS STRING) AS value")

    write(rows, cluster)
    write(rows, cluster, topic=other)

    assert committed(cluster.bootstrap, topic, PARTITIONS) == ["0", "1"]
    assert committed(cluster.bootstrap, other, PARTITIONS) == ["0", "1"]


def test_an_exactly_once_spark_write_repeated_with_the_same_write_id_and_batch_writes_nothing(
    spark: SparkSession, cluster: Cluster, topic: str
) -> None:
    rows = spark.range(0, 6, numPartitions=2).selectExpr("CAST(id AS STRING) AS value")
    name = {"topic": topic, "delivery": "exactly-once", "writeId": topic}

    for batch in ("0", "0", "1"):
        write(rows, cluster, **name, writeBatch=batch)

    expected = sorted([str(n) for n in range(6)] * 2)
    assert committed(cluster.bootstrap, topic, PARTITIONS) == expected
    assert committed_for_kafka_python(cluster.bootstrap, topic, PARTITIONS) == expected


def test_an_exactly_once_stream_whose_checkpoint_lost_its_last_commit_writes_each_row_once(
    spark: SparkSession, cluster: Cluster, topic: str, tmp_path: Path, client_rounds: int
) -> None:
    if client_rounds == 1:
        pytest.skip("it takes half a minute: `make prove` runs it")
    source = f"{topic}-in"
    cluster.create_topic(source, PARTITIONS)
    write(spark.range(8).selectExpr("CAST(id AS STRING) AS value").coalesce(1), cluster, topic=source)

    def copy() -> None:
        """Copy what is there, in two micro-batches."""
        reader = spark.readStream.format("klamm").option("kafka.bootstrap.servers", cluster.bootstrap)
        reader = reader.options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="4")
        writer = reader.load().select("value").writeStream.format("klamm").trigger(availableNow=True)
        writer = writer.option("kafka.bootstrap.servers", cluster.bootstrap).option("topic", topic)
        query = writer.option("delivery", "exactly-once").option("checkpointLocation", str(tmp_path)).start()
        assert query.awaitTermination(60)

    copy()
    commits = tmp_path / "commits"
    last = max(int(p.name) for p in commits.iterdir() if p.name.isdigit())
    for name in (str(last), f".{last}.crc"):  # as if the driver had been killed behind the sink's commit
        (commits / name).unlink()
    copy()

    assert committed(cluster.bootstrap, topic, PARTITIONS) == sorted(str(n) for n in range(8))


ERRORS: Mapping[str, tuple[str, Mapping[str, str], str]] = {
    "no value": ("'x' AS key", {}, "the rows have no column value"),
    "null topic": ("'x' AS value, STRING(NULL) AS topic", {"topic": ""}, "the column topic is null in 1 rows of 1"),
    "a larger batch than allowed": (
        "REPEAT('x', 1500000) AS value",
        {"kafka__max__request__size": "2000000"},
        "MESSAGE_TOO_LARGE.* raise max.message.bytes of the topic",
    ),
    "a transaction for too long": (
        "'x' AS value",
        {"delivery": "exactly-once", "writeId": "long", "kafka__transaction__timeout__ms": "90000000"},
        "kafka.transaction.timeout.ms=90000000 is more than the brokers allow",
    ),
}


@pytest.mark.parametrize(("columns", "options", "message"), ERRORS.values(), ids=ERRORS)
def test_errors_of_the_spark_sink_name_the_column_or_option_and_the_remedy(
    spark: SparkSession, cluster: Cluster, topic: str, columns: str, options: Mapping[str, str], message: str
) -> None:
    given = {name: value for name, value in ({"topic": topic} | dict(options)).items() if value}

    with pytest.raises(PySparkException, match=message):
        write(spark.sql(f"SELECT {columns} FROM (SELECT 1 AS id)"), cluster, **given)


def test_the_spark_sink_refuses_save_mode_overwrite(spark: SparkSession, cluster: Cluster, topic: str) -> None:
    writer = spark.range(1).selectExpr("'x' AS value").write.format("klamm").mode("overwrite")

    with pytest.raises(PySparkException, match=r'only appended to: use mode\("append"\)'):
        writer.option("kafka.bootstrap.servers", cluster.bootstrap).option("topic", topic).save()
