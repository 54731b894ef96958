"""From options to offset ranges: which partitions, from where to where."""

import pytest
from tests.support.scripted_brokers import ScriptedWorld
from tests.unit.spark.scripts import grow_with_each_request, log, logged, options, plan, scripted

from klamm.client.errors import Unreachable
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.spark.errors import BadOption, DataLoss
from klamm.spark.filters import EVERY_ROW
from klamm.spark.plan import plan_batch, plan_ranges
from klamm.spark.read_client import read_client
from klamm.wire.messages import ListOffsetsRequest


@pytest.fixture
def world() -> ScriptedWorld:
    world = scripted(
        orders_0=log(0, 100),
        orders_1=log(20, 50, leader=2),
        orders_2=log(0, 0),
        payments_0=log(0, 10),
        __consumer_offsets_0=log(0, 10),
    )
    world.cluster.internal = {"__consumer_offsets"}
    world.cluster.logs[TopicPartition("orders", 0)].times = {1_000: 10, 2_000: 60}
    world.cluster.logs[TopicPartition("orders", 1)].times = {1_500: 30}
    return world


def planned(world: ScriptedWorld, **given: str) -> dict[str, tuple[int, int]]:
    """The planned range of each partition."""
    return {str(r.topic_partition): (r.start, r.end) for r in plan(world, **given)}


def test_a_batch_read_by_default_is_planned_from_log_start_to_log_end(world: ScriptedWorld) -> None:
    assert planned(world) == {"orders-0": (0, 100), "orders-1": (20, 50)}


def test_a_log_that_grows_while_a_read_is_planned_is_no_data_loss(world: ScriptedWorld) -> None:
    grow_with_each_request(world, TopicPartition("orders", 0))

    start, end = planned(world)["orders-0"]

    assert start == 0
    assert end > 100


class TestPartitions:
    def test_a_read_of_several_topics_is_planned_with_the_partitions_of_all(self, world: ScriptedWorld) -> None:
        assert set(planned(world, subscribe="payments,orders")) == {"orders-0", "orders-1", "payments-0"}

    def test_a_subscribe_pattern_matches_parts_of_topic_names_and_skips_internal_topics(
        self, world: ScriptedWorld
    ) -> None:
        assert set(planned(world, subscribePattern="e")) == {"orders-0", "orders-1", "payments-0"}
        assert planned(world, subscribePattern="nothing like it") == {}

    def test_the_assign_option_selects_the_planned_partitions(self, world: ScriptedWorld) -> None:
        assert planned(world, assign='{"orders": [1]}') == {"orders-1": (20, 50)}

    def test_planning_a_read_of_an_unknown_topic_fails_with_the_nearest_topic_name(self, world: ScriptedWorld) -> None:
        with pytest.raises(BadOption, match=r"topic order does not exist\. Did you mean orders"):
            plan(world, subscribe="order")

    def test_planning_a_read_of_an_unknown_partition_fails(self, world: ScriptedWorld) -> None:
        with pytest.raises(BadOption, match="assign has orders-7, which does not exist"):
            plan(world, assign='{"orders": [0, 7]}')

    def test_planning_a_read_waits_for_a_topic_just_created(self, world: ScriptedWorld) -> None:
        world.cluster.metadata_errors["orders"] = [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE,
        ]  # fmt: skip

        assert len(planned(world)) == 2

    def test_a_topic_error_in_metadata_fails_planning_with_topic_and_error_code(self, world: ScriptedWorld) -> None:
        world.cluster.metadata_errors["orders"] = [ErrorCode.INVALID_TOPIC_EXCEPTION]

        with pytest.raises(BadOption, match="refuse to describe topic 'orders': INVALID_TOPIC_EXCEPTION"):
            plan(world)


class TestBounds:
    def test_starting_offsets_per_partition_may_be_earliest_and_latest(self, world: ScriptedWorld) -> None:
        given = {
            "startingOffsets": '{"orders": {"0": 5, "1": -2, "2": 0}}',
            "endingOffsets": '{"orders": {"0": -1, "1": 40, "2": -1}}',
        }

        assert planned(world, **given) == {"orders-0": (5, 100), "orders-1": (20, 40)}

    def test_starting_offsets_for_only_some_of_the_partitions_are_refused(self, world: ScriptedWorld) -> None:
        with pytest.raises(
            BadOption, match=r"startingOffsets must have every partition of the read\. Add orders-1, orders-2"
        ):
            plan(world, startingOffsets='{"orders": {"0": 5}}')

    def test_starting_offsets_for_partitions_that_are_not_read_are_refused(self, world: ScriptedWorld) -> None:
        with pytest.raises(
            BadOption,
            match="endingOffsets has payments-0, which subscribe, subscribePattern or assign does not include",
        ):
            plan(world, assign='{"orders": [0]}', endingOffsets='{"orders": {"0": 5}, "payments": {"0": 1}}')

    def test_starting_timestamps_are_resolved_to_offsets_with_list_offsets(self, world: ScriptedWorld) -> None:
        given = {"assign": '{"orders": [0]}'}

        assert planned(world, **given, startingTimestamp="500", endingTimestamp="1500") == {"orders-0": (10, 60)}
        each = planned(world, **given, startingOffsetsByTimestamp='{"orders": {"0": 1001}}')
        assert each == {"orders-0": (60, 100)}

    def test_an_ending_timestamp_after_all_records_is_planned_as_the_log_end(self, world: ScriptedWorld) -> None:
        assert planned(world, assign='{"orders": [0]}', endingTimestamp="9999") == {"orders-0": (0, 100)}

    def test_a_starting_timestamp_after_all_records_fails_or_reads_nothing_as_configured(
        self, world: ScriptedWorld
    ) -> None:
        with pytest.raises(BadOption, match=r"orders-1 has no record at or after time 1600.*Strategy to latest"):
            plan(world, assign='{"orders": [0, 1]}', startingTimestamp="1600")

        latest = {"startingOffsetsByTimestampStrategy": "latest"}
        assert planned(world, assign='{"orders": [0, 1]}', startingTimestamp="1600", **latest) == {
            "orders-0": (60, 100)
        }

    def test_a_read_committed_batch_is_planned_up_to_the_last_stable_offset(self, world: ScriptedWorld) -> None:
        world.cluster.logs[TopicPartition("orders", 0)].last_stable = 70

        assert planned(world, kafka__isolation__level="read_committed")["orders-0"] == (0, 70)
        assert planned(world)["orders-0"] == (0, 100)

    def test_an_ending_offset_beyond_the_log_end_is_reported_as_data_loss(self, world: ScriptedWorld) -> None:
        given = {"assign": '{"orders": [1]}', "endingOffsets": '{"orders": {"1": 80}}'}

        with pytest.raises(
            DataLoss, match="orders-1: offsets 50 to 79 are lost: option endingOffsets says 80, but the log ends at 50"
        ):
            plan(world, **given)
        with logged("offsets 50 to 79 are lost"):
            assert planned(world, **given, failOnDataLoss="false") == {"orders-1": (20, 50)}

    @pytest.mark.parametrize("on_data_loss", ["fail", "skip"])
    def test_an_ending_offset_in_an_open_transaction_is_refused_and_not_called_data_loss(
        self, world: ScriptedWorld, on_data_loss: str
    ) -> None:
        """What is committed later must not be missing from a read that asks for it."""
        world.cluster.logs[TopicPartition("orders", 0)].last_stable = 70
        given = {"assign": '{"orders": [0]}', "onDataLoss": on_data_loss}
        committed = {"kafka__isolation__level": "read_committed"}

        with pytest.raises(
            BadOption,
            match=r"endingOffsets says 90 for orders-0, but a transaction is open there, .* ends at 70\. Wait until",
        ):
            plan(world, endingOffsets='{"orders": {"0": 90}}', **given, **committed)
        assert planned(world, endingOffsets='{"orders": {"0": 70}}', **given, **committed) == {"orders-0": (0, 70)}
        assert planned(world, endingOffsets='{"orders": {"0": 90}}', **given) == {"orders-0": (0, 90)}

    def test_a_starting_offset_beyond_the_log_end_is_reported_as_data_loss(self, world: ScriptedWorld) -> None:
        given = {"assign": '{"orders": [1]}', "startingOffsets": '{"orders": {"1": 80}}'}

        with pytest.raises(
            DataLoss,
            match="orders-1: offsets 50 to 79 are lost: option startingOffsets says 80, but the log ends at 50; "
            "give an offset up to 50",
        ):
            plan(world, **given)
        with logged("orders-1: offsets 50 to 79 are lost"):
            assert planned(world, **given, failOnDataLoss="false") == {}

    def test_a_starting_offset_at_the_log_end_reads_nothing(self, world: ScriptedWorld) -> None:
        assert planned(world, assign='{"orders": [1]}', startingOffsets='{"orders": {"1": 50}}') == {}

    def test_a_start_between_last_stable_offset_and_high_watermark_is_not_data_loss(self, world: ScriptedWorld) -> None:
        world.cluster.logs[TopicPartition("orders", 0)].last_stable = 70
        given = {"assign": '{"orders": [0]}', "startingOffsets": '{"orders": {"0": 90}}'}

        assert planned(world, **given, kafka__isolation__level="read_committed") == {}

    def test_an_ending_time_before_the_starting_offset_reads_nothing(self, world: ScriptedWorld) -> None:
        given = {"startingOffsets": '{"orders": {"0": 50}}', "endingTimestamp": "1"}

        assert planned(world, assign='{"orders": [0]}', **given) == {}


class TestTopicIds:
    def test_a_planned_offset_range_carries_the_topic_id(self, world: ScriptedWorld) -> None:
        assert {r.topic_id for r in plan(world)} == {world.cluster.topic_id("orders")}

    def test_a_topic_recreated_during_planning_is_not_read_by_its_new_topic_id(self, world: ScriptedWorld) -> None:
        planned_id = world.cluster.topic_id("orders")

        def recreate(broker: int, request: object) -> None:
            if isinstance(request, ListOffsetsRequest) and "orders" not in world.cluster.incarnations:
                world.cluster.recreate_topic("orders", log(0, 30))

        world.cluster.on_request = recreate

        assert {r.topic_id for r in plan(world, assign='{"orders": [0]}')} == {planned_id}

    def test_a_topic_deleted_during_planning_is_reported_as_data_loss(self, world: ScriptedWorld) -> None:
        delete_when_planned(world)

        with pytest.raises(DataLoss, match=r"topic orders does not exist.*set the option onDataLoss to skip"):
            plan(world, subscribe="orders,payments")
        assert world.now < 5

    def test_a_topic_deleted_during_planning_is_skipped_if_data_loss_is_allowed(self, world: ScriptedWorld) -> None:
        delete_when_planned(world)

        with logged("topic orders does not exist"):
            assert planned(world, subscribe="orders,payments", failOnDataLoss="false") == {"payments-0": (0, 10)}

    def test_planning_reports_only_the_partitions_of_a_deleted_topic_as_lost(self, world: ScriptedWorld) -> None:
        delete_when_planned(world)

        with read_client(world, options(subscribe="orders,payments", onDataLoss="report")) as brokers:
            found = plan_ranges(brokers)

        assert {str(lost.topic_partition) for lost in found.lost} == {"orders-0", "orders-1", "orders-2"}
        assert all("topic orders does not exist" in lost.reason for lost in found.lost)

    def test_a_topic_deleted_after_its_offsets_are_known_is_left_to_the_tasks(self) -> None:
        """These report the loss, or skip it; only the sizes are missing, by which tasks are cut."""
        world = scripted(orders_0=log(0, 30_000, per_batch=10_000))

        def delete(broker: int, request: object) -> None:
            if isinstance(request, ListOffsetsRequest) and world.cluster.requests["DESCRIBE_LOG_DIRS"]:
                world.cluster.delete_topic("orders")

        world.cluster.on_request = delete

        with read_client(world, options()) as brokers:
            tasks = plan_batch(brokers, EVERY_ROW, 1)

        assert "orders" not in {p.topic for p in world.cluster.logs}
        assert sum(r.size for task in tasks for r in task.ranges) == 30_000


def delete_when_planned(world: ScriptedWorld) -> None:
    """Delete the topic while the plan is made."""

    def delete(broker: int, request: object) -> None:
        if isinstance(request, ListOffsetsRequest):
            world.cluster.delete_topic("orders")

    world.cluster.on_request = delete


class TestBrokers:
    def test_planning_uses_the_second_bootstrap_server_if_the_first_is_down(self, world: ScriptedWorld) -> None:
        world.down.add(1)
        for scripted_log in world.cluster.logs.values():
            scripted_log.leader = 2

        assert len(planned(world)) == 2

    def test_planning_a_read_waits_until_each_partition_has_a_leader(self, world: ScriptedWorld) -> None:
        world.down.add(1)

        def elect(broker: int, request: object) -> None:
            if world.now > 2:
                for scripted_log in world.cluster.logs.values():
                    scripted_log.leader = 2

        world.cluster.on_request = elect

        assert planned(world) == {"orders-0": (0, 100), "orders-1": (20, 50)}

    def test_unreachable_brokers_fail_planning_of_a_read_after_the_timeout(self, world: ScriptedWorld) -> None:
        world.down |= {1, 2}

        with pytest.raises(
            Unreachable, match=r"asking for metadata: no attempt succeeded within 60 s; .* one:9092: .* two:9092"
        ):
            plan(world)

    def test_planning_retries_list_offsets_after_a_lost_connection_or_a_leader_change(
        self, world: ScriptedWorld
    ) -> None:
        seen: list[int] = []

        def leave(broker: int, request: object) -> None:
            if isinstance(request, ListOffsetsRequest):
                seen.append(broker)
                if len(seen) == 1:
                    raise ConnectionResetError("gone")

        world.cluster.on_request = leave
        world.cluster.errors[TopicPartition("orders", 1)] = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2

        assert len(planned(world)) == 2

    def test_a_non_retriable_list_offsets_error_fails_planning_of_a_read(self, world: ScriptedWorld) -> None:
        world.cluster.errors[TopicPartition("orders", 1)] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]

        with pytest.raises(
            KlammError, match="orders-1: the broker refused the request with TOPIC_AUTHORIZATION_FAILED"
        ):
            plan(world)

    def test_a_partition_that_stays_without_a_leader_fails_planning_of_a_read(self, world: ScriptedWorld) -> None:
        world.cluster.logs[TopicPartition("orders", 1)].leader = -1

        with pytest.raises(Unreachable, match=r"ListOffsets: .*orders-1 has no leader"):
            plan(world, kafka__default__api__timeout__ms="3000")
