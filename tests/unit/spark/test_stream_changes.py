"""A streaming query in the driver while topics and logs change: new partitions, data loss, open transactions."""

import pytest
from tests.support.scripted_brokers import ScriptedWorld
from tests.unit.spark.scripts import log
from tests.unit.spark.stream_queries import ORDERS, Query, append, offsets, two_partitions

from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.spark.errors import BadOption, DataLoss
from klamm.spark.stream_driver import MAX_BEHIND_S


@pytest.fixture
def world() -> ScriptedWorld:
    return two_partitions()


class TestChanges:
    def test_a_streaming_query_reads_a_new_partition_from_its_beginning(self, world: ScriptedWorld) -> None:
        query = Query(world)
        query.run()
        world.cluster.logs[TopicPartition("orders", 2)] = log(0, 4)

        assert query.run() == offsets(2, 0, 4)

    def test_a_replayed_micro_batch_reads_a_new_partition_from_the_same_offset(self, world: ScriptedWorld) -> None:
        query = Query(world)
        query.run()
        world.cluster.logs[TopicPartition("orders", 2)] = log(0, 4)
        assert query.plan()
        query.restart()

        assert query.run() == offsets(2, 0, 4)

    def test_batch_0_is_repeated_after_a_crash_although_its_starting_offsets_lack_a_partition_added_meanwhile(
        self, world: ScriptedWorld
    ) -> None:
        query = Query(world, startingOffsets='{"orders": {"0": 15, "1": 7}}')
        assert query.plan()
        world.cluster.logs[TopicPartition("orders", 2)] = log(0, 4)
        query.restart()

        assert query.run() == [*offsets(0, 15, 20), *offsets(1, 7, 10)]
        assert query.run() == offsets(2, 0, 4)

    def test_a_new_streaming_query_whose_starting_offsets_lack_a_partition_is_refused(
        self, world: ScriptedWorld
    ) -> None:
        query = Query(world, startingOffsets='{"orders": {"0": 15}}')

        for _ in range(2):
            with pytest.raises(
                BadOption, match=r"startingOffsets must have every partition of the read\. Add orders-1"
            ):
                query.plan()

    def test_a_new_partition_whose_first_records_were_deleted_is_reported_as_data_loss(
        self, world: ScriptedWorld
    ) -> None:
        query = Query(world)
        query.run()
        world.cluster.logs[TopicPartition("orders", 2)] = log(3, 6)

        with pytest.raises(DataLoss, match="orders-2: offsets 0 to 2 are lost: retention"):
            query.run()

    @pytest.mark.parametrize("has_run", [True, False], ids=["between two batches", "before the first batch"])
    def test_on_data_loss_report_has_a_row_for_the_deleted_records_of_a_new_partition(
        self, world: ScriptedWorld, has_run: bool
    ) -> None:
        query = Query(world, onDataLoss="report")
        if has_run:
            query.run()
        query.driver.initial()
        world.cluster.logs[TopicPartition("orders", 2)] = log(3, 6)
        assert query.plan()
        rows = query.rows()

        lost = [(r["partition"], r["offset"], r["dataLoss"]["endOffset"]) for r in rows if r["dataLoss"]]
        assert lost == [(2, 0, 3)]
        assert sorted((r["partition"], r["offset"]) for r in rows if not r["dataLoss"]) == offsets(2, 3, 6)

    def test_a_new_topic_matching_the_subscribe_pattern_is_read_from_its_log_start(self, world: ScriptedWorld) -> None:
        query = Query(world, subscribePattern="^orders")
        query.run()
        world.cluster.logs[TopicPartition("orders.eu", 0)] = log(3, 6)

        assert query.run() == offsets(0, 3, 6)

    def test_records_deleted_by_retention_before_the_query_read_them_are_data_loss(self, world: ScriptedWorld) -> None:
        query = Query(world)
        query.run()
        world.cluster.logs[ORDERS] = log(30, 40)

        with pytest.raises(DataLoss, match="orders-0: offsets 20 to 29 are lost: retention"):
            query.run()

    def test_on_data_loss_report_adds_a_row_per_lost_range_and_the_query_continues(self, world: ScriptedWorld) -> None:
        query = Query(world, onDataLoss="report")
        query.run()
        world.cluster.logs[ORDERS] = log(30, 40)
        assert query.plan()
        rows = query.rows()

        assert [(r["offset"], r["dataLoss"]["endOffset"]) for r in rows if r["dataLoss"]] == [(20, 30)]
        assert "the log now begins at offset 30" in rows[0]["dataLoss"]["reason"]
        assert sorted(r["offset"] for r in rows if not r["dataLoss"]) == list(range(30, 40))
        assert query.rows() == rows

    def test_a_streaming_query_reports_a_recreated_topic_as_data_loss_and_reads_from_its_start(
        self, world: ScriptedWorld
    ) -> None:
        strict, lenient = Query(world), Query(world, onDataLoss="report")
        strict.run()
        lenient.run()
        world.cluster.recreate_topic("orders", log(0, 3))

        begin = world.now
        with pytest.raises(DataLoss, match=r"orders-0: offsets from 20 on are lost: .* deleted and created again"):
            strict.run()
        assert world.now - begin < 5
        assert lenient.plan()
        rows = lenient.rows()
        lost = [(r["partition"], r["offset"], r["dataLoss"]["endOffset"]) for r in rows if r["dataLoss"]]
        assert lost == [(0, 20, None), (1, 10, None)]
        assert [r["offset"] for r in rows if not r["dataLoss"]] == [0, 1, 2]

    def test_a_streaming_query_reports_a_deleted_topic_as_data_loss_within_five_seconds(
        self, world: ScriptedWorld
    ) -> None:
        query = Query(world)
        query.run()
        world.cluster.delete_topic("orders")
        begin = world.now

        with pytest.raises(DataLoss, match=r"orders-0: offsets from 20 on are lost: orders-0 does not exist any more"):
            query.run()
        assert world.now - begin < 5

    def test_a_started_broker_that_does_not_know_the_topic_yet_is_not_data_loss(self, world: ScriptedWorld) -> None:
        query = Query(world)
        query.run()
        append(world, 2)
        world.cluster.metadata_errors["orders"] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 6

        assert query.run() == offsets(0, 20, 22)

    def test_a_high_watermark_that_lags_for_a_short_time_is_not_reported_as_truncation(
        self, world: ScriptedWorld
    ) -> None:
        query = Query(world)
        query.run()
        ahead = world.cluster.logs[ORDERS]
        world.cluster.logs[ORDERS] = log(0, 15)
        assert query.run() is None
        world.now += MAX_BEHIND_S - 1
        world.cluster.logs[ORDERS] = ahead
        assert query.run() is None
        append(world, 1)
        assert query.run() == offsets(0, 20, 21)

    def test_a_high_watermark_that_lags_again_much_later_is_not_reported_as_truncation(
        self, world: ScriptedWorld
    ) -> None:
        query = Query(world)
        query.run()
        ahead = world.cluster.logs[ORDERS]
        for _ in range(2):
            world.cluster.logs[ORDERS] = log(0, 15)
            assert query.run() is None
            world.cluster.logs[ORDERS] = ahead
            assert query.run() is None
            world.now += MAX_BEHIND_S

    def test_a_log_that_stays_shorter_than_the_query_position_is_reported_as_data_loss(
        self, world: ScriptedWorld
    ) -> None:
        query = Query(world)
        query.run()
        world.cluster.logs[ORDERS] = log(0, 15)
        assert query.run() is None
        world.now += MAX_BEHIND_S

        with pytest.raises(DataLoss, match="orders-0: offsets 15 to 19 are lost: the log now ends at offset 15"):
            query.run()

    def test_data_loss_is_reported_for_a_checkpointed_topic_that_subscribe_no_longer_includes(
        self, world: ScriptedWorld
    ) -> None:
        world.cluster.logs[TopicPartition("payments", 0)] = log(0, 5)
        query = Query(world, subscribe="orders,payments")
        query.run()
        query.given = {"subscribe": "orders"}
        query.restart()

        with pytest.raises(
            DataLoss, match=r"payments-0: offsets from 5 on are lost: .* exclude it now: .* checkpointLocation"
        ):
            query.run()

    def test_a_read_committed_streaming_query_ends_at_the_last_stable_offset(self, world: ScriptedWorld) -> None:
        query = Query(world, startingOffsets="earliest", kafka__isolation__level="read_committed")
        world.cluster.logs[ORDERS].last_stable = 12

        assert query.run() == [*offsets(0, 0, 12), *offsets(1, 5, 10)]

    def test_a_read_committed_stream_that_begins_in_an_open_transaction_waits_until_it_ends(
        self, world: ScriptedWorld
    ) -> None:
        world.cluster.logs[ORDERS].last_stable = 12
        given = {"assign": '{"orders": [0]}', "startingOffsets": '{"orders": {"0": 15}}'}
        query = Query(world, **given, kafka__isolation__level="read_committed")
        assert query.run() == []
        for _ in range(2):
            world.now += MAX_BEHIND_S
            assert query.run() is None
        world.cluster.logs[ORDERS].last_stable = 18

        assert query.run() == offsets(0, 15, 18)

    def test_a_query_that_changes_to_read_committed_in_an_open_transaction_reads_no_record_twice(
        self, world: ScriptedWorld
    ) -> None:
        world.cluster.logs[ORDERS].last_stable = 12
        query = Query(world, startingOffsets="earliest")
        assert len(query.run() or ()) == 25
        query.given |= {"kafka__isolation__level": "read_committed"}
        query.restart()
        for _ in range(2):
            assert query.run() is None
            world.now += MAX_BEHIND_S
        world.cluster.logs[ORDERS].last_stable = None
        append(world, 1)

        assert query.run() == offsets(0, 20, 21)

    def test_a_log_truncated_in_an_open_transaction_is_lost_from_its_high_watermark_on(
        self, world: ScriptedWorld
    ) -> None:
        given = {"startingOffsets": "earliest", "kafka__isolation__level": "read_committed"}
        query = Query(world, **given, onDataLoss="report")
        query.run()
        world.cluster.logs[ORDERS] = log(0, 15)
        world.cluster.logs[ORDERS].last_stable = 12
        assert query.run() is None
        world.now += MAX_BEHIND_S
        assert query.plan()

        lost = [(r["offset"], r["dataLoss"]["endOffset"]) for r in query.rows() if r["dataLoss"]]
        assert lost == [(15, 20)]

    def test_a_streaming_query_reports_the_latest_offsets_of_the_logs_without_trigger_limits(
        self, world: ScriptedWorld
    ) -> None:
        query = Query(world, startingOffsets="earliest", maxOffsetsPerTrigger="2")
        query.run()

        assert query.driver.latest is not None
        assert query.driver.latest.next == {ORDERS: 20, TopicPartition("orders", 1): 10}
