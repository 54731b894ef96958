"""A streaming query in the driver, on scripted brokers: where it begins, its limits, and trigger AvailableNow."""

import pytest
from tests.support.scripted_brokers import ScriptedWorld
from tests.unit.spark.scripts import grow_with_each_request, log, logged, numbered, scripted, stream_options
from tests.unit.spark.stream_queries import ORDERS, Query, append, offsets, two_partitions

from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.spark.errors import BadOption, DataLoss
from klamm.spark.stream_driver import StreamDriver


@pytest.fixture
def world() -> ScriptedWorld:
    return two_partitions()


class TestWhereItBegins:
    def test_a_new_streaming_query_begins_at_latest_and_reads_later_records(self, world: ScriptedWorld) -> None:
        query = Query(world)

        assert query.run() == []
        append(world, 3)
        assert query.run() == offsets(0, 20, 23)
        assert query.run() is None

    def test_a_streaming_query_with_starting_offsets_earliest_reads_each_log_from_its_start(
        self, world: ScriptedWorld
    ) -> None:
        assert Query(world, startingOffsets="earliest").run() == [*offsets(0, 0, 20), *offsets(1, 5, 10)]

    def test_a_streaming_query_that_crashes_in_batch_0_skips_no_record_produced_after_its_start(
        self, world: ScriptedWorld
    ) -> None:
        query = Query(world)
        query.driver.initial()
        append(world, 3)
        assert query.plan()
        append(world, 4)

        query.restart()

        assert query.run() == offsets(0, 20, 23)
        assert query.run() == offsets(0, 23, 27)

    def test_a_streaming_query_without_records_stores_its_starting_offsets_at_once(self, world: ScriptedWorld) -> None:
        query = Query(world)
        assert query.run() == []
        query.restart()
        append(world, 2)

        assert query.run() == offsets(0, 20, 22)

    def test_a_streaming_query_that_waits_for_a_minimum_batch_stores_its_starting_offsets(
        self, world: ScriptedWorld
    ) -> None:
        query = Query(world, minOffsetsPerTrigger="100", startingOffsets='{"orders": {"0": 18, "1": -1}}')
        query.driver._last_batch_s = world.now  # not the first batch of this run

        assert query.run() == []
        query.restart()
        assert query.run() == offsets(0, 18, 20)

    def test_a_stream_whose_starting_offset_is_beyond_the_log_end_reports_data_loss(self, world: ScriptedWorld) -> None:
        given = {"assign": '{"orders": [0]}', "startingOffsets": '{"orders": {"0": 30}}'}
        with pytest.raises(DataLoss, match="orders-0: offsets 20 to 29 are lost: option startingOffsets says 30"):
            Query(world, **given).run()
        with logged("offsets 20 to 29 are lost"):
            query = Query(world, **given, onDataLoss="skip")
            assert query.run() == []
        append(world, 1)
        assert query.run() == offsets(0, 20, 21)

    def test_a_stream_starting_after_all_records_follows_the_starting_offsets_by_timestamp_strategy(
        self, world: ScriptedWorld
    ) -> None:
        world.cluster.logs[ORDERS].times = {1_000: 7}
        given = {"assign": '{"orders": [0]}', "startingTimestamp": "999"}
        assert Query(world, **given).run() == offsets(0, 7, 20)
        given["startingTimestamp"] = "1001"
        with pytest.raises(BadOption, match="Strategy to latest to begin at the end"):
            Query(world, **given).run()
        assert Query(world, **given, startingOffsetsByTimestampStrategy="latest").run() == []

    def test_a_streaming_query_refuses_a_checkpoint_of_another_cluster(self, world: ScriptedWorld) -> None:
        query = Query(world)
        query.run()
        world.cluster.cluster_id = "another"
        query.restart()
        append(world, 1)

        with pytest.raises(BadOption, match=r"the checkpoint is of the cluster scripted, but .* cluster another"):
            query.run()


class TestLimits:
    def test_max_offsets_per_trigger_limits_the_rows_of_each_micro_batch(self, world: ScriptedWorld) -> None:
        query = Query(world, startingOffsets="earliest", maxOffsetsPerTrigger="10")
        found = [query.run() for _ in range(4)]

        assert found[:2] == [[*offsets(0, 0, 8), *offsets(1, 5, 7)], [*offsets(0, 8, 16), *offsets(1, 7, 9)]]
        assert found[2:] == [[*offsets(0, 16, 20), *offsets(1, 9, 10)], None]

    def test_a_micro_batch_that_must_read_everything_ignores_the_limits_per_trigger(self, world: ScriptedWorld) -> None:
        query = Query(world, startingOffsets="earliest", maxOffsetsPerTrigger="10")

        assert len(query.run(unlimited=True) or ()) == 25

    def test_max_bytes_per_trigger_limits_micro_batches_by_log_sizes_from_the_brokers(self) -> None:
        world = scripted(orders_0=log(0, 40_000, per_batch=4_000))
        size = world.cluster.logs[ORDERS].size
        query = Query(world, startingOffsets="earliest", maxBytesPerTrigger=str(size // 4))

        assert [len(query.run() or ()) for _ in range(2)] == [10_000, 10_000]

    @pytest.mark.parametrize("content", [b"%d", b"%d" + bytes(10_000)], ids=["small records", "large records"])
    def test_max_bytes_per_trigger_asks_for_log_sizes_before_a_few_records_too(self, content: bytes) -> None:
        stored = log(0, 400)
        stored.batches = numbered(0, 400, text=content)
        limit = str(stored.size // 4 + 1)
        query = Query(scripted(orders_0=stored), startingOffsets="earliest", maxBytesPerTrigger=limit)

        assert [len(query.run() or ()) for _ in range(2)] == [100, 100]

    def test_min_offsets_per_trigger_delays_a_micro_batch_at_most_for_the_maximum_delay(
        self, world: ScriptedWorld
    ) -> None:
        query = Query(world, minOffsetsPerTrigger="5", maxTriggerDelay="60s")
        assert query.run() == []
        append(world, 3)
        assert query.run() is None
        append(world, 2)
        assert query.run() == offsets(0, 20, 25)
        append(world, 1)
        assert query.run() is None
        world.now += 60
        assert query.run() == offsets(0, 25, 26)


class TestAvailableNow:
    def test_a_query_with_trigger_available_now_ends_while_a_producer_keeps_writing(self, world: ScriptedWorld) -> None:
        query = Query(world, startingOffsets="earliest", maxOffsetsPerTrigger="9")
        query.driver.fix_end()
        found = []
        while (rows := query.run()) is not None:
            found += rows
            append(world, 50)

        assert sorted(found) == [*offsets(0, 0, 20), *offsets(1, 5, 10)]
        query.restart()
        query.driver.fix_end()
        assert len(query.run(unlimited=True) or ()) > 50

    def test_a_partition_added_during_trigger_available_now_is_read_by_the_next_run(self, world: ScriptedWorld) -> None:
        query = Query(world)
        query.driver.initial()
        query.driver.fix_end()
        world.cluster.logs[TopicPartition("orders", 2)] = log(0, 4)
        assert query.run() == []
        assert query.run() is None
        query.restart()
        query.driver.fix_end()
        assert query.run() == offsets(2, 0, 4)

    def test_a_topic_missing_in_metadata_when_trigger_available_now_begins_is_not_data_loss(
        self, world: ScriptedWorld
    ) -> None:
        query = Query(world)
        query.run()
        append(world, 3)
        query.restart()
        world.cluster.metadata_errors["orders"] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3
        query.driver.fix_end()

        assert query.run() is None

    @pytest.mark.parametrize("known", [True, False], ids=["in the metadata at first", "missing in it at first"])
    def test_a_topic_recreated_during_trigger_available_now_is_data_loss_and_read_by_the_next_run(
        self, world: ScriptedWorld, known: bool
    ) -> None:
        strict, lenient = Query(world), Query(world, onDataLoss="report")
        for query in (strict, lenient):
            query.run()
            world.cluster.metadata_errors["orders"] = [] if known else [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3
            query.driver.fix_end()
        world.cluster.recreate_topic("orders", log(0, 30))

        with pytest.raises(DataLoss, match=r"orders-0: offsets from 20 on are lost: .* deleted and created again"):
            strict.run()
        assert lenient.plan()
        rows = lenient.rows()
        lost = [(r["partition"], r["offset"], r["dataLoss"]["endOffset"]) for r in rows if r["dataLoss"]]
        assert lost == [(0, 20, None), (1, 10, None)]
        assert [r["offset"] for r in rows if not r["dataLoss"]] == []
        lenient.committed += 1
        assert lenient.run() is None
        lenient.restart()
        assert lenient.run() == offsets(0, 0, 30)

    def test_trigger_available_now_does_not_wait_for_min_offsets_per_trigger(self, world: ScriptedWorld) -> None:
        query = Query(world, minOffsetsPerTrigger="1000", startingOffsets="earliest", maxOffsetsPerTrigger="2000")
        query.driver.fix_end()
        query.driver._last_batch_s = world.now

        assert len(query.run() or ()) == 25


def test_a_log_that_grows_while_a_query_looks_for_its_beginning_is_no_data_loss() -> None:
    world = scripted(orders_0=log(0, 100))
    grow_with_each_request(world, ORDERS)

    initial = StreamDriver(world, stream_options(startingOffsets="latest")).initial()

    assert initial.next[ORDERS] > 100
