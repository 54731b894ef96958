"""Reading a range of offsets: fetch sizes, changes of leaders, retries and time-outs."""

from typing import Any

import pytest
from tests.support.scripted_brokers import ScriptedWorld
from tests.unit.spark.batch_bytes import Record, batch, marker
from tests.unit.spark.fetching import ORDERS, SMALL_FETCHES, orders, world_of_orders
from tests.unit.spark.scripts import log, offsets_read, scripted

from klamm.client.errors import Unreachable
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.spark.ranges import OffsetRange
from klamm.wire.messages import AbortedTransaction, FetchRequest, MetadataRequest


def test_reading_an_offset_range_returns_exactly_its_offsets() -> None:
    assert offsets_read(world_of_orders(), orders(13, 47)) == list(range(13, 47))


def test_reading_a_range_in_many_small_fetches_requests_each_batch_once() -> None:
    world = world_of_orders()

    assert offsets_read(world, orders(0, 100), **SMALL_FETCHES) == list(range(100))
    asked = [offset for _, offset in world.cluster.fetched_from]
    assert asked == sorted(set(asked))
    assert len(asked) > 3


def limits_of(world: ScriptedWorld) -> list[int]:
    """The byte limit of each fetch from now on."""
    limits: list[int] = []

    def see(broker: int, request: Any) -> None:
        if isinstance(request, FetchRequest):
            limits.append(request.max_bytes)

    world.cluster.on_request = see
    return limits


def test_a_small_range_of_a_large_log_is_fetched_with_a_small_byte_limit() -> None:
    world = world_of_orders(end=1_000)
    limits = limits_of(world)

    assert offsets_read(world, orders(10, 40)) == list(range(10, 40))
    assert offsets_read(world, orders(0, 1_000)) == list(range(1_000))
    assert limits == [64 * 1024, 2 * 1_000 * 1024]


def test_the_byte_limit_of_fetches_adapts_to_the_size_of_the_records() -> None:
    world = scripted(orders_0=log(0, 50_000, per_batch=1_000))
    limits = limits_of(world)

    assert len(offsets_read(world, orders(0, 50_000), kafka__max__partition__fetch__bytes="300000")) == 50_000
    assert limits[0] == 300_000
    assert limits[-1] < 300_000


def test_offset_ranges_of_one_spark_task_share_connections() -> None:
    world = scripted(orders_0=log(0, 30), orders_1=log(0, 30, leader=2))
    ranges = [orders(0, 30), OffsetRange(TopicPartition("orders", 1), 5, 30)]

    assert len(offsets_read(world, *ranges)) == 55
    assert len(world.connections) == 2
    assert all(c.closed for c in world.connections)


def test_offsets_removed_by_compaction_are_not_reported_as_data_loss() -> None:
    world = world_of_orders()
    del world.cluster.logs[ORDERS].batches[2:5]

    assert offsets_read(world, orders(15, 70)) == [*range(15, 20), *range(50, 70)]


def test_reading_an_empty_offset_range_opens_no_connection() -> None:
    world = world_of_orders()

    assert offsets_read(world, orders(5, 5)) == []
    assert not world.connections


class TestLeaders:
    def test_a_spark_read_continues_on_the_new_leader_after_a_leader_change(self) -> None:
        world = world_of_orders()

        def move(broker: int, request: Any) -> None:
            if isinstance(request, FetchRequest) and request.topics[0].partitions[0].fetch_offset >= 40:
                world.cluster.logs[ORDERS].leader = 2

        world.cluster.on_request = move

        assert offsets_read(world, orders(0, 100), **SMALL_FETCHES) == list(range(100))
        assert {broker for broker, offset in world.cluster.fetched_from if offset > 60} == {2}

    def test_a_spark_read_waits_while_a_partition_has_no_leader(self) -> None:
        world = world_of_orders()

        def die(broker: int, request: Any) -> None:
            if isinstance(request, FetchRequest) and broker == 1 and request.topics[0].partitions[0].fetch_offset > 30:
                world.down.add(1)
                world.cluster.logs[ORDERS].leader = -1
                raise ConnectionResetError("broker died")
            if isinstance(request, MetadataRequest) and world.now > 3:
                world.cluster.logs[ORDERS].leader = 2

        world.cluster.on_request = die

        assert offsets_read(world, orders(0, 100), **SMALL_FETCHES) == list(range(100))
        assert world.now > 3

    def test_records_already_fetched_are_returned_when_the_next_fetch_cannot_be_sent(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = world_of_orders()

        def refuse_once(broker: int, request: Any) -> None:
            world.cluster.refuses_to_take = isinstance(request, FetchRequest) and len(world.cluster.fetched_from) == 3

        def take_again(seconds: float) -> None:
            world.cluster.refuses_to_take = False

        world.cluster.on_request = refuse_once
        monkeypatch.setattr(world, "sleep", take_again)

        assert offsets_read(world, orders(0, 100), **SMALL_FETCHES) == list(range(100))

    @pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR])
    def test_a_spark_read_retries_retriable_fetch_errors_after_a_backoff(self, code: ErrorCode) -> None:
        world = world_of_orders()
        world.cluster.errors[ORDERS] = [code] * 4

        assert offsets_read(world, orders(0, 100)) == list(range(100))
        assert world.now > 0.5

    def test_a_non_retriable_fetch_error_fails_the_spark_read_and_is_named(self) -> None:
        world = world_of_orders()
        world.cluster.errors[ORDERS] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]

        with pytest.raises(
            KlammError, match="orders-0: the broker refused the request with TOPIC_AUTHORIZATION_FAILED"
        ):
            offsets_read(world, orders(0, 100))

    def test_an_unknown_error_code_in_a_fetch_response_is_reported_by_its_number(self) -> None:
        world = world_of_orders()
        world.cluster.errors[ORDERS] = [999]  # type: ignore[list-item]

        with pytest.raises(KlammError, match="error code 999"):
            offsets_read(world, orders(0, 100))


class TestTime:
    def test_unreachable_brokers_fail_the_spark_read_after_its_timeout(self) -> None:
        world = world_of_orders()
        world.down |= {1, 2}

        with pytest.raises(Unreachable) as caught:
            offsets_read(world, orders(7, 100), kafkaConsumer__pollTimeoutMs="5000")

        assert "orders-0: reading offset 7: no attempt succeeded within 5 s" in str(caught.value)
        assert "no connection to two:9092: connection refused" in str(caught.value)
        assert world.now <= 5

    def test_received_records_restart_the_timeout_of_a_spark_read(self) -> None:
        world = world_of_orders()

        def be_slow_and_stumble(broker: int, request: Any) -> None:
            world.sleep(1)
            if isinstance(request, FetchRequest) and len(world.cluster.fetched_from) == 7:
                world.cluster.errors[ORDERS] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]

        world.cluster.on_request = be_slow_and_stumble

        read = offsets_read(world, orders(0, 100), kafkaConsumer__pollTimeoutMs="3000", **SMALL_FETCHES)

        assert read == list(range(100))
        assert world.now > 10

    def test_reading_a_range_beyond_the_high_watermark_fails_after_the_timeout(self) -> None:
        world = world_of_orders(end=50)

        with pytest.raises(Unreachable, match=r"reading offset 50: .* its high watermark is 50"):
            offsets_read(world, orders(40, 60), kafkaConsumer__pollTimeoutMs="5000")

    def test_the_retry_backoff_of_a_spark_read_doubles_up_to_a_second(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = world_of_orders()
        world.down |= {1, 2}
        waits: list[float] = []

        def wait(seconds: float) -> None:
            waits.append(seconds)
            world.now += seconds

        monkeypatch.setattr(world, "sleep", wait)

        with pytest.raises(Unreachable):
            offsets_read(world, orders(0, 9), kafkaConsumer__pollTimeoutMs="8000")

        assert waits[:5] == [0.1, 0.2, 0.4, 0.8, 1.0]
        assert max(waits) == 1.0


def test_a_spark_read_with_read_committed_skips_aborted_transactions() -> None:
    world = world_of_orders(end=10)
    aborted = batch([Record(b"k", b"10")], 10, producer=5)
    committed = batch([Record(b"k", b"12")], 12, producer=5)
    cluster_log = world.cluster.logs[ORDERS]
    cluster_log.batches += [
        (10, 10, aborted), (11, 11, marker(11, 5, 0)), (12, 12, committed), (13, 13, marker(13, 5, 1)),
    ]  # fmt: skip
    cluster_log.aborted = [AbortedTransaction(producer_id=5, first_offset=10)]

    assert offsets_read(world, orders(0, 14)) == [*range(11), 12]
    assert offsets_read(world, orders(0, 14), kafka__isolation__level="read_committed") == [*range(10), 12]
