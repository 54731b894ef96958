"""`format("klamm")` in a real Spark session: on scripted brokers behind real sockets, and on real nodes."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark import RDD
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sql
from tests.support.cluster import Cluster
from tests.support.kafka_server import serve_brokers
from tests.support.scripted_brokers import ScriptedCluster
from tests.support.spark import worker_logs
from tests.unit.spark.batch_bytes import Record, batch
from tests.unit.spark.scripts import log
from tests.unit.spark.test_java_regex import NAMES, PATTERNS

from klamm.model.ids import TopicPartition
from klamm.spark.schema import HEADERS
from klamm.wire.messages import FetchRequest

SPARKS_SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
)
ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def brokers() -> ScriptedCluster:
    orders = {TopicPartition("orders", n): log(0, 1_000 * (n + 1), leader=1 + n % 2, per_batch=50) for n in range(3)}
    return ScriptedCluster(orders)


def read(spark: SparkSession, bootstrap: str, options: Mapping[str, Any] | None = None) -> DataFrame:
    given = {"subscribe": "orders"} if not {"assign", "subscribePattern"} & set(options or {}) else {}
    return (
        spark.read.format("klamm")
        .option("kafka.bootstrap.servers", bootstrap)
        .options(**given, **(options or {}))
        .load()
    )


def offsets(rows: DataFrame) -> list[tuple[int, int]]:
    return sorted((r["partition"], r["offset"]) for r in rows.select("partition", "offset").collect())


def failure(rows: DataFrame) -> str:
    with pytest.raises(PySparkException) as caught:
        rows.collect()
    return str(caught.value)


class TestOnScriptedBrokers:
    def test_rows_of_klamms_spark_source_equal_those_of_sparks_kafka_source(self, spark: SparkSession) -> None:
        record = Record(b"k", None, 1_700_000_000_123, [("h", b"1"), ("h", None)])
        made = log(0, 0)
        made.batches = [(0, 1, batch([record, Record(None, b"")]))]
        with serve_brokers(ScriptedCluster({ORDERS: made})) as bootstrap:
            rows = read(spark, bootstrap, {"includeHeaders": True})
            first, second = rows.orderBy("offset").collect()

        assert rows.drop("headers").schema.simpleString() == SPARKS_SCHEMA
        assert rows.schema["headers"] == HEADERS
        assert (bytes(first["key"]), first["value"], second["key"], bytes(second["value"])) == (b"k", None, None, b"")
        assert (first["topic"], first["partition"], first["offset"], first["timestampType"]) == ("orders", 0, 0, 0)
        assert first["timestamp"].astimezone(UTC) == datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
        assert [(h["key"], h["value"]) for h in first["headers"]] == [("h", b"1"), ("h", None)]
        assert second["headers"] is None

    def test_a_spark_read_returns_every_record_once_for_any_number_of_tasks(
        self, spark: SparkSession, brokers: ScriptedCluster
    ) -> None:
        everything = [(n, o) for n in range(3) for o in range(1_000 * (n + 1))]
        with serve_brokers(brokers) as bootstrap:
            for options in ({}, {"minPartitions": 7}, {"maxRecordsPerPartition": 999}):
                rows = read(spark, bootstrap, options)
                assert offsets(rows) == everything
                tasks = rows.rdd.getNumPartitions()
                assert tasks == {"minPartitions": 7, "maxRecordsPerPartition": 7}.get(next(iter(options), ""), 1)

    def test_a_schema_given_by_the_user_selects_columns_of_the_spark_source(
        self, spark: SparkSession, brokers: ScriptedCluster
    ) -> None:
        with serve_brokers(brokers) as bootstrap:
            source = (
                spark.read.format("klamm").option("kafka.bootstrap.servers", bootstrap).option("subscribe", "orders")
            )

            assert source.schema("offset BIGINT").load().count() == 6_000
            assert source.schema("value BINARY, partition INT").load().columns == ["value", "partition"]
            assert source.schema("OFFSET BIGINT, Value BINARY").load().columns == ["OFFSET", "Value"]
            assert source.schema("OFFSET BIGINT").load().where("offset < 5").count() == 15
            assert "the schema has the column offset string" in failure(source.schema("offset STRING").load())

    def test_starting_and_ending_offsets_limit_the_rows_of_a_spark_read(
        self, spark: SparkSession, brokers: ScriptedCluster
    ) -> None:
        given = {
            "assign": '{"orders": [0, 2]}',
            "startingOffsets": '{"orders": {"0": 990, "2": -2}}',
            "endingOffsets": '{"orders": {"0": -1, "2": 3}}',
        }
        with serve_brokers(brokers) as bootstrap:
            assert offsets(read(spark, bootstrap, given)) == [
                *((0, o) for o in range(990, 1_000)),
                (2, 0),
                (2, 1),
                (2, 2),
            ]

    def test_a_spark_read_of_an_empty_topic_returns_no_rows(self, spark: SparkSession) -> None:
        with serve_brokers(ScriptedCluster({ORDERS: log(5, 5)})) as bootstrap:
            assert read(spark, bootstrap).count() == 0

    def test_a_spark_read_returns_each_record_once_across_leader_changes_and_broken_connections(
        self, spark: SparkSession, brokers: ScriptedCluster
    ) -> None:
        seen: list[int] = []

        def move(broker: int, request: object) -> None:
            if isinstance(request, FetchRequest):
                seen.append(broker)
                if len(seen) == 4:
                    brokers.logs[ORDERS].leader = 2
                if len(seen) in (3, 8):
                    raise ConnectionResetError

        brokers.on_request = move
        with serve_brokers(brokers) as bootstrap:
            rows = read(spark, bootstrap, {"assign": '{"orders": [0]}', "kafka.max.partition.fetch.bytes": 2_000})

            assert offsets(rows) == [(0, o) for o in range(1_000)]
        assert set(seen) == {1, 2}

    def test_a_spark_read_of_deleted_records_fails_and_names_their_offsets(self, spark: SparkSession) -> None:
        options = {"assign": '{"orders": [0]}', "startingOffsets": '{"orders": {"0": 100}}'}
        with serve_brokers(ScriptedCluster({ORDERS: log(400, 500)})) as bootstrap:
            reason = failure(read(spark, bootstrap, options))
            assert "orders-0: offsets 100 to 399 are lost" in reason
            assert "the log now begins at offset 400" in reason
            assert read(spark, bootstrap, options | {"failOnDataLoss": False}).count() == 100

    def test_on_data_loss_report_returns_a_row_for_each_range_of_lost_records(self, spark: SparkSession) -> None:
        options = {"assign": '{"orders": [0]}', "startingOffsets": '{"orders": {"0": 100}}', "onDataLoss": "report"}
        with serve_brokers(ScriptedCluster({ORDERS: log(400, 500)})) as bootstrap:
            rows = read(spark, bootstrap, options)
            (lost,) = rows.where("dataLoss IS NOT NULL").collect()
            assert rows.where("dataLoss IS NULL").count() == 100

        assert (lost["topic"], lost["partition"], lost["offset"], lost["dataLoss"]["endOffset"]) == (
            "orders",
            0,
            100,
            400,
        )
        assert "the log now begins at offset 400" in lost["dataLoss"]["reason"]

    def test_lost_records_skipped_by_a_spark_worker_are_logged_where_the_driver_can_read_them(
        self, spark: SparkSession
    ) -> None:
        options = {"assign": '{"orders": [0]}', "onDataLoss": "skip"}
        cluster = ScriptedCluster({ORDERS: log(0, 500)})
        with serve_brokers(cluster) as bootstrap, worker_logs(spark):
            rdd = planned(read(spark, bootstrap, options))
            cluster.logs[ORDERS] = log(450, 500)
            assert rdd.count() == 50
            messages = [r["msg"] for r in spark.tvf.python_worker_logs().collect()]

        assert any("orders-0: offsets 0 to 449 are lost" in m for m in messages), messages

    def test_spark_filters_are_pushed_down_to_the_source_and_shown_by_explain(
        self, spark: SparkSession, brokers: ScriptedCluster, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with serve_brokers(brokers) as bootstrap:
            rows = read(spark, bootstrap).where("partition = 2 AND offset BETWEEN 100 AND 109 AND value IS NOT NULL")
            rows.explain("formatted")
            assert offsets(rows) == [(2, o) for o in range(100, 110)]

        [pushed] = [line for line in capsys.readouterr().out.splitlines() if "PushedFilters" in line]
        assert "EqualTo(partition,2)" in pushed
        assert "GreaterThanOrEqual(offset,100)" in pushed
        assert "value" not in pushed
        assert sum(size for _, size in brokers.fetched_from) > 0
        assert min(offset for _, offset in brokers.fetched_from) == 100

    def test_a_spark_sql_table_takes_source_options_from_the_with_clause_of_a_query(
        self, spark: SparkSession, brokers: ScriptedCluster
    ) -> None:
        spark.sql("CREATE TABLE orders_table USING klamm OPTIONS (kafka.bootstrap.servers 'h:1', subscribe 'orders')")
        try:
            assert "WITH (`kafka.bootstrap.servers`" in failure(spark.table("orders_table"))
            with serve_brokers(brokers) as bootstrap:
                [row] = spark.sql(
                    "SELECT count(*) AS n FROM orders_table "
                    f"WITH (`kafka.bootstrap.servers` = '{bootstrap}', subscribe = 'orders')"
                ).collect()
            assert row["n"] == 6_000
        finally:
            spark.sql("DROP TABLE orders_table")

    @pytest.mark.parametrize(("pattern", "expected"), PATTERNS.values(), ids=PATTERNS)
    def test_javas_regular_expressions_match_the_topic_names_expected_by_the_subscribe_pattern_tests(
        self, spark: SparkSession, pattern: str, expected: tuple[str, ...]
    ) -> None:
        java = spark.sparkContext._jvm
        assert java is not None
        compiled = java.java.util.regex.Pattern.compile(pattern)

        assert tuple(n for n in NAMES if compiled.matcher(n).find()) == expected

    def test_an_unknown_spark_option_is_refused_with_the_nearest_known_option(self, spark: SparkSession) -> None:
        with pytest.raises(
            PySparkException, match=r"option startingoffset does not exist\. Did you mean startingOffsets"
        ):
            read(spark, "127.0.0.1:9", {"startingOffset": "earliest"})

    def test_a_spark_read_with_an_unreachable_broker_fails_and_names_the_broker(self, spark: SparkSession) -> None:
        message = failure(read(spark, "127.0.0.1:9", {"kafka.default.api.timeout.ms": 300}))

        assert "no attempt succeeded within 0.3 s" in message
        assert "no connection to 127.0.0.1:9: [Errno 111] Connection refused" in message

    def test_a_temporary_view_in_spark_sql_reads_the_topic(self, spark: SparkSession, brokers: ScriptedCluster) -> None:
        with serve_brokers(brokers) as bootstrap:
            spark.sql(
                "CREATE OR REPLACE TEMPORARY VIEW orders USING klamm "
                f"OPTIONS (kafka.bootstrap.servers '{bootstrap}', subscribe 'orders')"
            )
            [row] = spark.sql("SELECT count(DISTINCT partition, offset) AS n FROM orders").collect()
            assert row["n"] == 6_000
        spark.catalog.dropTempView("orders")


class TestOnRealNodes:
    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
    def test_the_spark_source_reads_records_produced_by_librdkafka(
        self, spark: SparkSession, cluster: Cluster, codec: str
    ) -> None:
        topic, count = f"spark-{codec}", 3_000
        cluster.create_topic(topic, partitions=3)
        produce(cluster, topic, count, codec)

        rows = read(spark, cluster.bootstrap, {"assign": f'{{"{topic}": [0, 1, 2]}}', "includeHeaders": True}).collect()

        assert sorted(int(r["key"]) for r in rows) == list(range(count))
        assert all(bytes(r["value"]) == b"value of " + bytes(r["key"]) for r in rows)
        assert all(r["headers"][0]["value"] == r["key"] for r in rows)
        for partition in range(3):
            found = sorted(r["offset"] for r in rows if r["partition"] == partition)
            assert found == list(range(len(found)))

    def test_a_starting_timestamp_selects_the_first_offset_of_a_spark_read(
        self, spark: SparkSession, cluster: Cluster
    ) -> None:
        first_ms = int(time.time() * 1_000) - 60_000  # retention would delete old records while the test runs
        cluster.create_topic("spark-times", partitions=1)
        produce(cluster, "spark-times", 1_000, "none", first_ms=first_ms)

        options = {"assign": '{"spark-times": [0]}', "startingTimestamp": first_ms + 250}
        found = read(spark, cluster.bootstrap, options).select(sql.min("offset"), sql.count("*")).first()

        assert found == (250, 750)

    def test_a_topic_recreated_after_spark_planned_the_read_is_reported_as_data_loss(
        self, spark: SparkSession, cluster: Cluster
    ) -> None:
        cluster.create_topic("spark-recreated", partitions=1)
        produce(cluster, "spark-recreated", 100, "none")
        options = {"assign": '{"spark-recreated": [0]}'}
        strict = planned(read(spark, cluster.bootstrap, options))
        lenient = planned(read(spark, cluster.bootstrap, options | {"failOnDataLoss": False}))
        delete_topic(cluster, "spark-recreated")
        recreate_topic(cluster, "spark-recreated")
        produce(cluster, "spark-recreated", 100, "none")

        with pytest.raises(PySparkException, match=r"spark-recreated-0: offsets 0 to 99 are lost: .*created again"):
            strict.count()
        assert lenient.count() == 0

    def test_a_topic_deleted_after_spark_planned_the_read_is_reported_as_data_loss(
        self, spark: SparkSession, cluster: Cluster
    ) -> None:
        cluster.create_topic("spark-deleted", partitions=1)
        produce(cluster, "spark-deleted", 100, "none")
        options = {"assign": '{"spark-deleted": [0]}'}
        strict = planned(read(spark, cluster.bootstrap, options))
        lenient = planned(read(spark, cluster.bootstrap, options | {"failOnDataLoss": False}))
        delete_topic(cluster, "spark-deleted")

        with pytest.raises(PySparkException, match=r"offsets 0 to 99 are lost: topic spark-deleted does not exist"):
            strict.count()
        assert lenient.count() == 0

    def test_a_spark_read_of_a_missing_topic_fails_and_names_the_topic(
        self, spark: SparkSession, cluster: Cluster
    ) -> None:
        assert "topic no-such-topic does not exist" in failure(
            spark.read.format("klamm")
            .option("kafka.bootstrap.servers", cluster.bootstrap)
            .option("subscribe", "no-such-topic")
            .load()
        )


def planned(rows: DataFrame) -> "RDD[Row]":
    """The rows with their offset ranges fixed now; an action on them reads these, whatever happened meanwhile."""
    rdd = rows.rdd
    assert rdd.getNumPartitions() == 1
    return rdd


def recreate_topic(cluster: Cluster, name: str) -> None:
    """The name is free again once the controller has removed the last znode of the deleted topic."""

    def created() -> bool:
        cluster.create_topic(name, partitions=1)
        return True

    cluster.wait_until(f"{name} is created again", created)


def delete_topic(cluster: Cluster, name: str) -> None:
    """And wait until no node knows it."""
    admin = cluster.admin()  # it must outlive the answer
    admin.delete_topics([name])[name].result()
    cluster.wait_until(f"{name} is gone", lambda: all(name not in cluster.metadata(n).topics for n in cluster.nodes))


def produce(cluster: Cluster, topic: str, count: int, codec: str, first_ms: int | None = None) -> None:
    """Records whose value and header repeat the key, one per millisecond where times matter; all acknowledged."""
    failed: list[object] = []
    settings = {"bootstrap.servers": cluster.bootstrap, "compression.type": codec, "enable.idempotence": True}
    producer = Producer(settings | {"log_level": 0})
    for i in range(count):
        key = b"%d" % i
        times: dict[str, Any] = {} if first_ms is None else {"timestamp": first_ms + i}
        producer.produce(
            topic, b"value of " + key, key, headers=[("h", key)],
            on_delivery=lambda error, _: failed.append(error) if error else None, **times,
        )  # fmt: skip
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failed
