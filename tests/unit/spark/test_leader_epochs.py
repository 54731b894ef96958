"""Leader epochs in Spark reads: a cut-off leader is not believed, and truncation behind the position is data loss."""

import json
from typing import Any

import pytest
from tests.support.kafka_server import serve_brokers
from tests.support.scripted_brokers import ScriptedWorld
from tests.unit.spark.fetching import ORDERS, SMALL_FETCHES, after_fetches
from tests.unit.spark.scripts import job, log, logged, numbered, options, plan, scripted
from tests.unit.spark.stream_queries import Query, append

from klamm.client.errors import Unreachable
from klamm.model.errors import ErrorCode
from klamm.runtime.blocking import RealBlockingWorld
from klamm.spark.errors import DataLoss
from klamm.spark.plan import plan_ranges
from klamm.spark.ranges import OffsetRange, TaskRanges
from klamm.spark.read_client import read_client
from klamm.spark.tasks import read_task
from klamm.wire.api import ApiKey
from klamm.wire.messages import FetchRequest, ListOffsetsRequest, MetadataRequest, OffsetForLeaderEpochRequest

NEW = b"new %d"


def world_of(end: int = 100, epoch: int = 3) -> ScriptedWorld:
    """Broker 1 leads orders-0 in epoch 3."""
    return scripted(orders_0=log(0, end, epoch=epoch))


def elect_uncleanly(world: ScriptedWorld, kept: int, end: int, epoch: int = 4) -> None:
    """Broker 2 becomes the leader with the records before `kept` alone, and writes others up to `end`."""
    world.cluster.logs[ORDERS].elect(2, epoch, kept, *numbered(kept, end, epoch=epoch, text=NEW))


def values(world: Any, *ranges: OffsetRange, **given: str) -> list[bytes]:
    """The values that a task reads."""
    return [row["value"] for row in rows(world, *ranges, **given)]


def rows(world: Any, *ranges: OffsetRange, **given: str) -> list[dict[str, Any]]:
    pieces = read_task(world, job(("offset", "value", "dataLoss"), given), TaskRanges(ranges))
    return [row for piece in pieces for row in piece.to_pylist()]


def old(first: int, end: int) -> list[bytes]:
    return [b"%d" % offset for offset in range(first, end)]


class TestACutOffLeader:
    """Broker 1 is cut off from ZooKeeper and believes that it leads; broker 2 leads in epoch 4."""

    def test_a_task_does_not_return_to_a_leader_that_is_older_than_the_planned_one(self) -> None:
        world = world_of()
        world.cluster.cut_off_broker(1)
        world.cluster.logs[ORDERS].elect(2, 4, 60, *numbered(60, 100, epoch=4, text=NEW))
        world.cluster.brokers = {2: ("two", 9092), 1: ("one", 9092)}
        ranges = plan(world, kafka__bootstrap__servers="two:9092")

        read = values(world, *ranges, kafka__bootstrap__servers="one:9092,two:9092")

        assert read == [*old(0, 60), *(NEW % o for o in range(60, 100))]

    def test_the_same_over_real_sockets(self) -> None:
        world = world_of()
        cluster = world.cluster
        with serve_brokers(cluster) as bootstrap:
            one, two = bootstrap.split(",")
            cluster.cut_off_broker(1)
            elect_uncleanly(world, 60, 100)
            with read_client(RealBlockingWorld(), options(kafka__bootstrap__servers=two)) as brokers:
                (planned,) = plan_ranges(brokers).ranges
            read = values(RealBlockingWorld(), planned, kafka__bootstrap__servers=f"{one},{two}")

        assert read == [*old(0, 60), *(NEW % o for o in range(60, 100))]

    def test_a_stream_does_not_take_the_log_end_of_a_leader_that_is_older_than_its_checkpoint(self) -> None:
        world = world_of(end=60)
        world.cluster.cut_off_broker(1).logs[ORDERS].batches += numbered(60, 80, epoch=3)
        world.cluster.logs[ORDERS].elect(2, 4, 60)
        query = Query(world, startingOffsets="earliest", kafka__bootstrap__servers="two:9092")
        query.run()

        query.given["kafka.bootstrap.servers"] = "one:9092,two:9092"
        query.restart()

        assert query.run() is None
        append(world, 5)
        assert query.run() == [(0, o) for o in range(60, 65)]


class TestTruncationBetweenBatches:
    @pytest.mark.parametrize("restarts", [False, True])
    def test_a_stream_finds_a_log_that_was_truncated_and_has_grown_beyond_its_position(self, restarts: bool) -> None:
        world = world_of()
        query = Query(world, startingOffsets="earliest")
        query.run()
        elect_uncleanly(world, 60, 150)
        if restarts:
            query.restart()

        with pytest.raises(
            DataLoss,
            match="orders-0: offsets 60 to 99 are lost: the log was truncated at offset 60: the leader of epoch 3 had "
            "them, that of epoch 4 was elected without them",
        ):
            query.run()

    @pytest.mark.parametrize("limit", [{}, {"maxOffsetsPerTrigger": "1000"}])
    def test_a_stream_that_skips_losses_reads_what_the_new_leader_wrote_in_their_place(
        self, limit: dict[str, str]
    ) -> None:
        world = world_of()
        query = Query(world, startingOffsets="earliest", onDataLoss="skip", **limit)
        query.run()
        elect_uncleanly(world, 60, 150)

        with logged("orders-0: offsets 60 to 99 are lost"):
            assert query.run() == []
        assert query.run() == [(0, o) for o in range(60, 150)]
        assert query.run() is None

    def test_a_stream_that_reports_losses_has_a_row_for_the_truncated_range(self) -> None:
        world = world_of()
        query = Query(world, startingOffsets="earliest", onDataLoss="report")
        query.run()
        elect_uncleanly(world, 60, 150)

        assert query.plan()
        (row,) = query.rows()

        assert (row["partition"], row["offset"]) == (0, 60)
        assert row["dataLoss"]["endOffset"] == 100
        assert "the log was truncated at offset 60" in row["dataLoss"]["reason"]

    def test_a_micro_batch_that_is_truncated_before_a_restarted_query_reads_it_is_data_loss(self) -> None:
        world = world_of()
        query = Query(world, startingOffsets="earliest")
        assert query.plan()
        elect_uncleanly(world, 60, 150)
        query.restart()

        with pytest.raises(DataLoss, match="orders-0: offsets 60 to 99 are lost"):
            query.rows()

    def test_a_truncation_where_the_log_is_still_shorter_is_found_at_once(self) -> None:
        world = world_of()
        query = Query(world, startingOffsets="earliest")
        query.run()
        elect_uncleanly(world, 60, 70)
        began = world.now

        with pytest.raises(DataLoss, match="orders-0: offsets 60 to 99 are lost"):
            query.run()
        assert world.now - began < 1

    def test_a_stream_goes_on_with_a_new_leader_that_has_what_was_read(self) -> None:
        world = world_of()
        query = Query(world, startingOffsets="earliest")
        query.run()
        world.cluster.logs[ORDERS].elect(2, 4, 100)

        assert query.run() is None
        append(world, 5)
        assert query.run() == [(0, o) for o in range(100, 105)]
        assert json.loads(query.stored[-1])["epochs"] == {"orders": {"0": 4}}

    def test_a_high_watermark_that_lags_after_a_clean_election_is_no_truncation(self) -> None:
        world = scripted(orders_0=log(0, 100, epoch=3), orders_1=log(0, 10, leader=2, epoch=1))
        query = Query(world, startingOffsets="earliest")
        query.run()
        leader = world.cluster.logs[ORDERS]
        leader.elect(2, 4, 100)
        leader.offset_for = lambda time, read_committed: 90 if time == -1 else 0  # type: ignore[method-assign]
        append(world, 2, partition=1)

        assert query.run() == [(1, 10), (1, 11)]
        assert json.loads(query.stored[-1])["epochs"] == {"orders": {"0": 3, "1": 1}}

    def test_a_topic_that_was_created_again_is_read_in_spite_of_its_lower_leader_epoch(self) -> None:
        world = world_of()
        query = Query(world, startingOffsets="earliest", onDataLoss="skip")
        query.run()
        world.cluster.recreate_topic("orders", log(0, 20, epoch=0))

        assert query.run() == [(0, o) for o in range(20)]

    def test_a_checkpoint_without_epochs_is_read_and_gets_them_with_its_next_batch(self) -> None:
        world = world_of()
        query = Query(world, startingOffsets="earliest")
        query.run()
        stored = json.loads(query.stored[-1])
        del stored["epochs"]
        query.stored[-1] = json.dumps(stored)
        query.restart()
        append(world, 5)

        assert query.run() == [(0, o) for o in range(100, 105)]
        assert json.loads(query.stored[-1])["epochs"] == {"orders": {"0": 3}}

    def test_a_truncation_at_an_offset_that_the_leader_does_not_know_is_data_loss(self) -> None:
        world = world_of()
        query = Query(world, startingOffsets="earliest")
        query.run()
        world.cluster.logs[ORDERS].epoch, world.cluster.logs[ORDERS].epochs = 4, []

        with pytest.raises(DataLoss, match=r"offsets from 100 on are lost: .* has no records of epoch 3 or before"):
            query.run()

    def test_brokers_that_tell_no_epochs_leave_none_in_the_checkpoint(self) -> None:
        query = Query(world_of(epoch=-1), startingOffsets="earliest")
        query.run()

        assert "epochs" not in json.loads(query.stored[-1])


class TestTruncationDuringATask:
    def test_a_task_whose_records_are_truncated_before_it_reads_them_reports_data_loss(self) -> None:
        world = world_of()
        ranges = plan(world)
        elect_uncleanly(world, 60, 150)

        with pytest.raises(DataLoss, match="orders-0: offsets 60 to 99 are lost"):
            values(world, *ranges)

    def test_a_task_reports_records_that_are_truncated_after_it_read_them(self) -> None:
        world = world_of()
        ranges = plan(world)
        after_fetches(world, 3, lambda: elect_uncleanly(world, 10, 150))

        with pytest.raises(DataLoss, match="orders-0: offsets 10 to 99 are lost"):
            values(world, *ranges, **SMALL_FETCHES)

    def test_a_task_that_reports_losses_reads_planned_records_only(self) -> None:
        world = world_of()
        ranges = plan(world)
        elect_uncleanly(world, 60, 150)

        found = rows(world, *ranges, onDataLoss="report")

        assert [row["value"] for row in found if row["dataLoss"] is None] == old(0, 60)
        assert [row["offset"] for row in found if row["dataLoss"] is not None] == [60]

    def test_the_epoch_of_the_last_batch_finds_a_truncation_where_metadata_tell_no_epochs(self) -> None:
        world = world_of()
        world.cluster.offered[ApiKey.METADATA] = (4, 8)
        ranges = plan(world)
        after_fetches(world, 3, lambda: elect_uncleanly(world, 10, 150))

        with pytest.raises(DataLoss, match=r"offsets 10 to 99 are lost: .*, the present one was elected without them"):
            values(world, *ranges, **SMALL_FETCHES)

    def test_a_new_leader_that_has_the_range_is_asked_once(self) -> None:
        world = world_of()
        ranges = plan(world)
        world.cluster.logs[ORDERS].elect(2, 4, 100)

        assert values(world, *ranges, **SMALL_FETCHES) == old(0, 100)
        assert world.cluster.requests["OFFSET_FOR_LEADER_EPOCH"] == 1

    def test_the_leader_that_was_planned_with_is_not_asked(self) -> None:
        world = world_of()

        assert values(world, *plan(world)) == old(0, 100)
        assert world.cluster.requests["OFFSET_FOR_LEADER_EPOCH"] == 0

    def test_a_leader_that_has_a_successor_when_it_has_answered_is_not_read(self) -> None:
        """Broker 2 validates in epoch 4 and is replaced by broker 1, of which the reader hears while it asks."""
        world = world_of()
        ranges = plan(world)
        world.cluster.logs[ORDERS].elect(2, 4, 100)
        fetched: list[tuple[int, int]] = []

        def on_request(broker: int, request: Any) -> None:
            if isinstance(request, OffsetForLeaderEpochRequest) and world.cluster.logs[ORDERS].epoch == 4:
                world.cluster.cut_off_broker(2)
                world.cluster.logs[ORDERS].elect(1, 5, 100)
                world.cluster.cut_off[2].errors[ORDERS] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
            if isinstance(request, FetchRequest):
                fetched.append((broker, request.topics[0].partitions[0].current_leader_epoch))

        world.cluster.on_request = on_request

        assert values(world, *ranges) == old(0, 100)
        assert set(fetched) == {(1, 5)}

    def test_a_refusal_that_names_the_new_leader_is_followed_without_metadata(self) -> None:
        world = world_of()
        ranges = plan(world)
        world.cluster.tells_leaders = True
        before: list[int] = []

        def elect() -> None:
            world.cluster.logs[ORDERS].elect(2, 4, 100)
            before.append(world.cluster.requests["METADATA"])

        after_fetches(world, 3, elect)

        assert values(world, *ranges, **SMALL_FETCHES) == old(0, 100)
        assert world.cluster.requests["METADATA"] == before[0]

    def test_an_epoch_that_no_broker_has_yet_is_waited_for_up_to_the_read_timeout(self) -> None:
        world = world_of()
        (planned,) = plan(world)

        with pytest.raises(Unreachable, match="leader epoch 3, but epoch 9 was seen before"):
            values(world, planned._replace(leader_epoch=9), kafkaConsumer__pollTimeoutMs="5000")
        assert world.now < 6

    def test_offsets_are_listed_in_the_epoch_of_the_leader(self) -> None:
        world = world_of()
        asked: list[int] = []

        def on_request(broker: int, request: Any) -> None:
            if isinstance(request, ListOffsetsRequest):
                asked.append(request.topics[0].partitions[0].current_leader_epoch)
            if isinstance(request, MetadataRequest):
                asked.append(-1)

        world.cluster.on_request = on_request
        plan(world)

        assert set(asked[1:]) == {3}
