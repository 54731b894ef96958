"""A streaming query in the driver, on scripted brokers: where batches begin and end, whatever happens meanwhile."""

import json
from typing import Any

import pytest
from tests.support.scripted_brokers import ScriptedWorld
from tests.unit.spark.batch_bytes import Record, batch
from tests.unit.spark.scripts import grow_with_each_request, log, logged, numbered, scripted, stream_options

from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.spark.columns import arrow_schema
from klamm.spark.errors import BadOption, DataLoss
from klamm.spark.schema import Columns
from klamm.spark.stream_driver import MAX_BEHIND_S, StreamDriver
from klamm.spark.stream_offsets import from_json, to_json
from klamm.spark.tasks import Job, read_task

ORDERS = TopicPartition("orders", 0)
COLUMNS = ("partition", "offset", "dataLoss")


class Query:
    """A query as Spark runs it: offsets as text, the end stored before the batch is read."""

    def __init__(self, world: ScriptedWorld, **given: str) -> None:
        self.world = world
        self.given = given
        self.stored: list[str] = []
        self.committed = 0
        self.restart()

    def restart(self) -> None:
        """Lose everything but the checkpoint."""
        self.driver = StreamDriver(self.world, stream_options(**self.given))

    def start(self) -> Any:
        if not self.committed:
            return json.loads(json.dumps(to_json(self.driver.initial())))
        return json.loads(self.stored[self.committed - 1])

    def plan(self, *, unlimited: bool = False) -> bool:
        """Store the end of the next batch; whether there is one. A stored end is kept."""
        if len(self.stored) == self.committed:
            start = self.start()
            end = json.dumps(to_json(self.driver.next_end(from_json(start), unlimited=unlimited)))
            if end == json.dumps(start):
                return False
            self.stored.append(end)
        return True

    def rows(self) -> list[dict[str, Any]]:
        """Read the batch whose end is stored, without committing it."""
        tasks = self.driver.tasks(from_json(self.start()), from_json(json.loads(self.stored[self.committed])))
        job = Job(stream_options(**self.given), Columns(COLUMNS, COLUMNS))
        rows = [row for task in tasks for rows in read_task(self.world, job, task) for row in rows.to_pylist()]
        assert set(arrow_schema(COLUMNS).names) == set(COLUMNS)
        return rows

    def run(self, **how: bool) -> list[tuple[int, int]] | None:
        """One micro-batch: its rows in order, None where there is nothing to do."""
        if not self.plan(**how):
            return None
        found = sorted((r["partition"], r["offset"]) for r in self.rows() if r["dataLoss"] is None)
        self.committed += 1
        return found


def append(world: ScriptedWorld, count: int, partition: int = 0, topic: str = "orders") -> None:
    target = world.cluster.logs[TopicPartition(topic, partition)]
    base = target.end
    records = [Record(b"k", b"%d" % o) for o in range(base, base + count)]
    target.batches.append((base, base + count - 1, batch(records, base)))


@pytest.fixture
def world() -> ScriptedWorld:
    return scripted(orders_0=log(0, 20), orders_1=log(5, 10, leader=2))


def offsets(partition: int, start: int, end: int) -> list[tuple[int, int]]:
    return [(partition, o) for o in range(start, end)]


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

    def test_trigger_available_now_does_not_wait_for_min_offsets_per_trigger(self, world: ScriptedWorld) -> None:
        query = Query(world, minOffsetsPerTrigger="1000", startingOffsets="earliest", maxOffsetsPerTrigger="2000")
        query.driver.fix_end()
        query.driver._last_batch_s = world.now

        assert len(query.run() or ()) == 25


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

        with pytest.raises(DataLoss, match=r"payments-0: offsets from 5 on are lost: .*the options exclude it now"):
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


def test_a_log_that_grows_while_a_query_looks_for_its_beginning_is_no_data_loss() -> None:
    world = scripted(orders_0=log(0, 100))
    grow_with_each_request(world, ORDERS)

    initial = StreamDriver(world, stream_options(startingOffsets="latest")).initial()

    assert initial.next[ORDERS] > 100
