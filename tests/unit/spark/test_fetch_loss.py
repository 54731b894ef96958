"""Records that are gone fail the read, or are skipped with a warning if loss is allowed."""

from typing import Any

import pytest
from tests.unit.spark.fetching import ORDERS, SMALL_FETCHES, after_fetches, orders, world_of_orders
from tests.unit.spark.scripts import job, log, logged, offsets_read, plan, scripted

from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.spark.errors import DataLoss
from klamm.spark.ranges import OffsetRange, TaskRanges
from klamm.spark.tasks import read_task
from klamm.wire.api import ApiKey
from klamm.wire.messages import MetadataRequest


class TestLoss:
    """failOnDataLoss: what is gone is named with topic, partition and offsets."""

    def test_a_range_that_begins_before_the_log_start_is_reported_as_data_loss(self) -> None:
        world = scripted(orders_0=log(60, 100))

        with pytest.raises(DataLoss) as caught:
            offsets_read(world, orders(10, 90))

        assert str(caught.value).startswith(
            "orders-0: offsets 10 to 59 are lost: retention or a DeleteRecords request deleted them; the log now "
            "begins at offset 60"
        )
        assert "onDataLoss" in str(caught.value)

    def test_lost_offsets_are_skipped_with_a_warning_if_data_loss_is_allowed(self) -> None:
        with logged("orders-0: offsets 10 to 59 are lost"):
            read = offsets_read(scripted(orders_0=log(60, 100)), orders(10, 90), failOnDataLoss="false")

        assert read == list(range(60, 90))

    def test_records_below_the_log_start_in_a_partly_deleted_batch_are_not_read(self) -> None:
        world = scripted(orders_0=log(0, 100, per_batch=50))
        world.cluster.logs[ORDERS].start = 20

        with logged("orders-0: offsets 0 to 19 are lost"):
            read = offsets_read(world, orders(0, 100), failOnDataLoss="false")

        assert read == list(range(20, 100))

    def test_an_entirely_lost_range_gives_no_rows_if_data_loss_is_allowed(self) -> None:
        with logged("offsets 10 to 49 are lost"):
            read = offsets_read(scripted(orders_0=log(60, 100)), orders(10, 50), failOnDataLoss="false")

        assert read == []

    def test_a_spark_read_beyond_the_end_of_a_truncated_log_is_reported_as_data_loss(self) -> None:
        world = world_of_orders(end=30)

        with pytest.raises(DataLoss, match="offsets 50 to 89 are lost: the log now ends at offset 30"):
            offsets_read(world, orders(50, 90))

    def test_reading_a_deleted_topic_is_reported_as_data_loss_within_five_seconds(self) -> None:
        world = world_of_orders()
        after_fetches(world, 2, lambda: world.cluster.delete_topic("orders"))

        with pytest.raises(DataLoss, match=r"orders-0: offsets \d+ to 99 are lost: topic orders does not exist"):
            offsets_read(world, *plan(world), **SMALL_FETCHES)
        assert world.now < 5

    def test_a_topic_deleted_before_its_planned_range_is_read_is_reported_as_data_loss(self) -> None:
        world = world_of_orders()
        ranges = plan(world)
        world.cluster.delete_topic("orders")

        with pytest.raises(DataLoss, match="orders-0: offsets 0 to 99 are lost: topic orders does not exist"):
            offsets_read(world, *ranges)
        assert world.now < 5

    def test_a_deleted_topic_is_skipped_with_a_warning_if_data_loss_is_allowed(self) -> None:
        world = world_of_orders()
        ranges = plan(world)
        world.cluster.delete_topic("orders")

        with logged("offsets 0 to 99 are lost: topic orders does not exist"):
            assert offsets_read(world, *ranges, failOnDataLoss="false") == []
        assert world.now < 5

    def test_on_data_loss_report_returns_one_row_for_a_range_of_a_deleted_topic(self) -> None:
        world = world_of_orders()
        ranges = plan(world)
        world.cluster.delete_topic("orders")

        wanted = job(("offset", "dataLoss"), {"onDataLoss": "report"})
        [rows] = read_task(world, wanted, TaskRanges(tuple(ranges)))

        [row] = rows.to_pylist()
        assert (row["offset"], row["dataLoss"]["endOffset"]) == (0, 100)

    def test_a_spark_read_reports_a_recreated_topic_as_data_loss_and_reads_no_new_records(self) -> None:
        world = world_of_orders()
        ranges = plan(world)
        world.cluster.recreate_topic("orders", log(0, 100))

        with pytest.raises(DataLoss, match=r"orders-0: offsets 0 to 99 are lost: .* deleted and created again"):
            offsets_read(world, *ranges)
        with logged("deleted and created again"):
            assert offsets_read(world, *ranges, failOnDataLoss="false") == []
        assert world.now < 10

    def test_a_spark_read_returns_no_record_of_a_topic_recreated_meanwhile(self) -> None:
        world = world_of_orders()
        after_fetches(world, 2, lambda: world.cluster.recreate_topic("orders", log(0, 100)))

        with logged(r"offsets \d+ to 99 are lost: .* deleted and created again"):
            read = offsets_read(world, *plan(world), failOnDataLoss="false", **SMALL_FETCHES)

        assert 0 < len(read) < 100
        assert read == list(range(len(read)))

    def test_a_spark_read_waits_for_a_topic_that_a_broker_does_not_know_yet(self) -> None:
        world = world_of_orders()
        ranges = plan(world)
        world.cluster.metadata_errors["orders"] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3

        assert offsets_read(world, *ranges) == list(range(100))

    def test_a_topic_missing_in_one_brokers_stale_metadata_does_not_count_as_deleted(self) -> None:
        world = world_of_orders()
        ranges = plan(world)
        world.cluster.logs[ORDERS].leader = 2

        def be_stale(broker: int, request: Any) -> None:
            if isinstance(request, MetadataRequest):
                world.cluster.metadata_errors["orders"] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] if broker == 1 else []

        world.cluster.on_request = be_stale

        assert offsets_read(world, *ranges) == list(range(100))

    def test_a_broker_with_empty_metadata_does_not_make_a_topic_count_as_deleted(self) -> None:
        world = world_of_orders()
        ranges = plan(world)
        world.cluster.logs[ORDERS].leader = 2
        metadata = world.cluster._metadata

        def answer(broker: int, request: MetadataRequest) -> Any:
            found = metadata(broker, request)
            if broker == 1:
                found.brokers, found.topics[0].partitions = [], []
                found.topics[0].error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return found

        world.cluster._metadata = answer  # type: ignore[method-assign]

        assert offsets_read(world, *ranges) == list(range(100))
        assert world.now == 0


class TestWithoutTopicIds:
    """Brokers older than 2.8, or whose inter.broker.protocol.version is."""

    def test_a_topic_without_a_topic_id_is_read_by_name_with_a_warning(self) -> None:
        world = world_of_orders()
        world.cluster.has_topic_ids = False

        with logged(r"topic orders has no topic id.*cannot notice.*created again"):
            ranges = plan(world)

        assert offsets_read(world, *ranges) == list(range(100))

    def test_a_deleted_topic_without_a_topic_id_is_reported_as_data_loss(self) -> None:
        world = world_of_orders()
        world.cluster.has_topic_ids = False
        after_fetches(world, 2, lambda: world.cluster.delete_topic("orders"))

        with pytest.raises(DataLoss, match="topic orders does not exist"):
            offsets_read(world, orders(0, 100), **SMALL_FETCHES)
        assert world.now < 5

    def test_a_topic_recreated_with_fewer_partitions_is_reported_as_data_loss(self) -> None:
        world = scripted(orders_0=log(0, 30), orders_1=log(0, 30))
        world.cluster.has_topic_ids = False
        world.cluster.recreate_topic("orders", log(0, 30))

        with pytest.raises(DataLoss, match=r"orders-1: offsets 0 to 29 are lost: topic orders has no partition 1"):
            offsets_read(world, OffsetRange(TopicPartition("orders", 1), 0, 30))

    def test_a_read_from_a_leader_without_fetch_by_topic_id_checks_the_id_once(self) -> None:
        world = world_of_orders()
        world.cluster.offered[ApiKey.FETCH] = (0, 12)
        ranges = plan(world)

        with logged(r"broker one:9092 offers Fetch only up to version 12.*cannot notice"):
            assert offsets_read(world, *ranges) == list(range(100))
        world.cluster.recreate_topic("orders", log(0, 100))
        with pytest.raises(DataLoss, match="deleted and created again"):
            offsets_read(world, *ranges)


class TestOutOfRange:
    def test_offset_out_of_range_for_an_offset_inside_the_log_is_retried(self) -> None:
        world = world_of_orders()
        world.cluster.errors[ORDERS] = [ErrorCode.OFFSET_OUT_OF_RANGE]

        assert offsets_read(world, orders(0, 100)) == list(range(100))
