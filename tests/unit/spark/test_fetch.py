"""Reading a range from brokers that move leaders, lose connections, lose records."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.scripted_brokers import ScriptedWorld
from tests.unit.spark.batch_bytes import Record, batch, marker
from tests.unit.spark.scripts import log, offsets_read, plan, scripted

from klamm.client.errors import Unreachable, UnsupportedVersion
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.spark.errors import DataLoss
from klamm.spark.ranges import OffsetRange
from klamm.wire.api import ApiKey
from klamm.wire.messages import AbortedTransaction, FetchRequest, MetadataRequest
from klamm.wire.vectors.batches import CorruptBatch

ORDERS = TopicPartition("orders", 0)
SMALL_FETCHES = {"kafka__max__partition__fetch__bytes": "300"}


def orders(start: int, end: int) -> OffsetRange:
    return OffsetRange(ORDERS, start, end)


def world_of_orders(end: int = 100) -> ScriptedWorld:
    return scripted(orders_0=log(0, end))


def after_fetches(world: ScriptedWorld, count: int, change: Callable[[], None]) -> None:
    """Make the change once, when the fetch after so many arrives."""
    fetches: list[int] = []

    def on_request(broker: int, request: Any) -> None:
        if isinstance(request, FetchRequest):
            fetches.append(broker)
            if len(fetches) == count + 1:
                change()

    world.cluster.on_request = on_request


def test_a_range_read_returns_exactly_its_offsets() -> None:
    assert offsets_read(world_of_orders(), orders(13, 47)) == list(range(13, 47))


def test_many_small_fetches_request_each_batch_once() -> None:
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


def test_a_small_range_of_a_large_log_is_fetched_with_a_small_limit() -> None:
    world = world_of_orders(end=1_000)
    limits = limits_of(world)

    assert offsets_read(world, orders(10, 40)) == list(range(10, 40))
    assert offsets_read(world, orders(0, 1_000)) == list(range(1_000))
    assert limits == [64 * 1024, 2 * 1_000 * 1024]


def test_the_fetch_limit_follows_the_size_of_the_records() -> None:
    world = scripted(orders_0=log(0, 50_000, per_batch=1_000))
    limits = limits_of(world)

    assert len(offsets_read(world, orders(0, 50_000), kafka__max__partition__fetch__bytes="300000")) == 50_000
    assert limits[0] == 300_000
    assert limits[-1] < 300_000


def test_ranges_of_one_task_share_connections() -> None:
    world = scripted(orders_0=log(0, 30), orders_1=log(0, 30, leader=2))
    ranges = [orders(0, 30), OffsetRange(TopicPartition("orders", 1), 5, 30)]

    assert len(offsets_read(world, *ranges)) == 55
    assert len(world.connections) == 2
    assert all(c.closed for c in world.connections)


def test_offsets_removed_by_compaction_are_no_data_loss() -> None:
    world = world_of_orders()
    del world.cluster.logs[ORDERS].batches[2:5]

    assert offsets_read(world, orders(15, 70)) == [*range(15, 20), *range(50, 70)]


def test_an_empty_range_needs_no_connection() -> None:
    world = world_of_orders()

    assert offsets_read(world, orders(5, 5)) == []
    assert not world.connections


class TestLeaders:
    def test_a_read_continues_on_the_new_leader_after_a_leader_change(self) -> None:
        world = world_of_orders()

        def move(broker: int, request: Any) -> None:
            if isinstance(request, FetchRequest) and request.topics[0].partitions[0].fetch_offset >= 40:
                world.cluster.logs[ORDERS].leader = 2

        world.cluster.on_request = move

        assert offsets_read(world, orders(0, 100), **SMALL_FETCHES) == list(range(100))
        assert {broker for broker, offset in world.cluster.fetched_from if offset > 60} == {2}

    def test_a_partition_without_a_leader_is_waited_for_and_read_from_the_next_leader(self) -> None:
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

    def test_fetched_records_are_kept_when_the_next_request_cannot_be_sent(self) -> None:
        world = world_of_orders()

        def refuse_once(broker: int, request: Any) -> None:
            world.cluster.refuses_to_take = isinstance(request, FetchRequest) and len(world.cluster.fetched_from) == 3

        world.cluster.on_request = refuse_once
        world.sleep = lambda seconds: setattr(world.cluster, "refuses_to_take", False)  # type: ignore[method-assign]

        assert offsets_read(world, orders(0, 100), **SMALL_FETCHES) == list(range(100))

    @pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR])
    def test_retriable_fetch_errors_are_retried_after_a_backoff(self, code: ErrorCode) -> None:
        world = world_of_orders()
        world.cluster.errors[ORDERS] = [code] * 4

        assert offsets_read(world, orders(0, 100)) == list(range(100))
        assert world.now > 0.5

    def test_a_fetch_error_that_is_not_retriable_fails_the_read_and_is_named(self) -> None:
        world = world_of_orders()
        world.cluster.errors[ORDERS] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]

        with pytest.raises(KlammError, match="orders-0: the broker refuses with TOPIC_AUTHORIZATION_FAILED"):
            offsets_read(world, orders(0, 100))

    def test_an_unknown_error_code_is_reported_by_its_number(self) -> None:
        world = world_of_orders()
        world.cluster.errors[ORDERS] = [999]  # type: ignore[list-item]

        with pytest.raises(KlammError, match="error code 999"):
            offsets_read(world, orders(0, 100))


class TestTime:
    def test_unreachable_brokers_fail_the_read_after_the_timeout(self) -> None:
        world = world_of_orders()
        world.down |= {1, 2}

        with pytest.raises(Unreachable) as caught:
            offsets_read(world, orders(7, 100), kafkaConsumer__pollTimeoutMs="5000")

        assert "orders-0: reading offset 7: no success within 5 s" in str(caught.value)
        assert "no connection to two:9092: connection refused" in str(caught.value)
        assert world.now <= 5

    def test_received_records_restart_the_read_timeout(self) -> None:
        world = world_of_orders()

        def be_slow_and_stumble(broker: int, request: Any) -> None:
            world.sleep(1)
            if isinstance(request, FetchRequest) and len(world.cluster.fetched_from) == 7:
                world.cluster.errors[ORDERS] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]

        world.cluster.on_request = be_slow_and_stumble

        read = offsets_read(world, orders(0, 100), kafkaConsumer__pollTimeoutMs="3000", **SMALL_FETCHES)

        assert read == list(range(100))
        assert world.now > 10

    def test_a_range_beyond_the_high_watermark_fails_after_the_timeout(self) -> None:
        world = world_of_orders(end=50)

        with pytest.raises(Unreachable, match=r"reading offset 50: .* the high watermark is 50"):
            offsets_read(world, orders(40, 60), kafkaConsumer__pollTimeoutMs="5000")

    def test_the_retry_backoff_doubles_up_to_a_second(self) -> None:
        world = world_of_orders()
        world.down |= {1, 2}
        waits: list[float] = []
        world.sleep = lambda s: (waits.append(s), setattr(world, "now", world.now + s))  # type: ignore[method-assign]

        with pytest.raises(Unreachable):
            offsets_read(world, orders(0, 9), kafkaConsumer__pollTimeoutMs="8000")

        assert waits[:5] == [0.1, 0.2, 0.4, 0.8, 1.0]
        assert max(waits) == 1.0


class TestLoss:
    """failOnDataLoss: what is gone is named with topic, partition and offsets."""

    def test_a_start_before_the_log_start_is_data_loss(self) -> None:
        world = scripted(orders_0=log(60, 100))

        with pytest.raises(DataLoss) as caught:
            offsets_read(world, orders(10, 90))

        assert str(caught.value).startswith("orders-0: offsets 10 to 59 are lost: the log now begins at offset 60")
        assert "failOnDataLoss" in str(caught.value)

    def test_lost_offsets_are_skipped_with_a_warning_if_loss_is_allowed(self) -> None:
        with pytest.warns(UserWarning, match="orders-0: offsets 10 to 59 are lost"):
            read = offsets_read(scripted(orders_0=log(60, 100)), orders(10, 90), failOnDataLoss="false")

        assert read == list(range(60, 90))

    def test_a_range_that_is_wholly_lost_gives_no_rows_if_loss_is_allowed(self) -> None:
        with pytest.warns(UserWarning, match="offsets 10 to 49 are lost"):
            read = offsets_read(scripted(orders_0=log(60, 100)), orders(10, 50), failOnDataLoss="false")

        assert read == []

    def test_a_truncated_log_is_data_loss(self) -> None:
        world = world_of_orders(end=30)

        with pytest.raises(DataLoss, match="offsets 50 to 89 are lost: the log now ends at offset 30"):
            offsets_read(world, orders(50, 90))

    def test_a_deleted_topic_is_data_loss_within_five_seconds(self) -> None:
        world = world_of_orders()
        after_fetches(world, 2, lambda: world.cluster.delete_topic("orders"))

        with pytest.raises(DataLoss, match=r"orders-0: offsets \d+ to 99 are lost: topic orders does not exist"):
            offsets_read(world, *plan(world), **SMALL_FETCHES)
        assert world.now < 5

    def test_a_topic_deleted_before_its_range_is_read_is_data_loss(self) -> None:
        world = world_of_orders()
        ranges = plan(world)
        world.cluster.delete_topic("orders")

        with pytest.raises(DataLoss, match="orders-0: offsets 0 to 99 are lost: topic orders does not exist"):
            offsets_read(world, *ranges)
        assert world.now < 5

    def test_a_deleted_topic_is_skipped_with_a_warning_if_loss_is_allowed(self) -> None:
        world = world_of_orders()
        ranges = plan(world)
        world.cluster.delete_topic("orders")

        with pytest.warns(UserWarning, match="offsets 0 to 99 are lost: topic orders does not exist"):
            assert offsets_read(world, *ranges, failOnDataLoss="false") == []
        assert world.now < 5

    def test_a_recreated_topic_is_data_loss_and_none_of_its_records_are_read(self) -> None:
        world = world_of_orders()
        ranges = plan(world)
        world.cluster.recreate_topic("orders", log(0, 100))

        with pytest.raises(DataLoss, match=r"orders-0: offsets 0 to 99 are lost: .* deleted and created again"):
            offsets_read(world, *ranges)
        with pytest.warns(UserWarning, match="deleted and created again"):
            assert offsets_read(world, *ranges, failOnDataLoss="false") == []
        assert world.now < 10

    def test_no_record_of_a_topic_recreated_during_the_read_is_read(self) -> None:
        world = world_of_orders()
        after_fetches(world, 2, lambda: world.cluster.recreate_topic("orders", log(0, 100)))

        with pytest.warns(UserWarning, match=r"offsets \d+ to 99 are lost: .* deleted and created again"):
            read = offsets_read(world, *plan(world), failOnDataLoss="false", **SMALL_FETCHES)

        assert 0 < len(read) < 100
        assert read == list(range(len(read)))

    def test_a_read_waits_for_a_topic_that_one_broker_does_not_know_yet(self) -> None:
        world = world_of_orders()
        ranges = plan(world)
        world.cluster.metadata_errors["orders"] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3

        assert offsets_read(world, *ranges) == list(range(100))

    def test_one_broker_with_stale_metadata_does_not_make_a_topic_deleted(self) -> None:
        world = world_of_orders()
        ranges = plan(world)
        world.cluster.logs[ORDERS].leader = 2

        def be_stale(broker: int, request: Any) -> None:
            if isinstance(request, MetadataRequest):
                world.cluster.metadata_errors["orders"] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] if broker == 1 else []

        world.cluster.on_request = be_stale

        assert offsets_read(world, *ranges) == list(range(100))

    def test_a_broker_without_metadata_is_ignored(self) -> None:
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

    def test_without_topic_ids_a_topic_is_read_by_name_and_a_warning_says_what_is_not_checked(self) -> None:
        world = world_of_orders()
        world.cluster.has_topic_ids = False

        with pytest.warns(UserWarning, match=r"topic orders has no id.*created again.*not noticed"):
            ranges = plan(world)

        assert offsets_read(world, *ranges) == list(range(100))

    def test_a_deleted_topic_is_data_loss_without_topic_ids_too(self) -> None:
        world = world_of_orders()
        world.cluster.has_topic_ids = False
        after_fetches(world, 2, lambda: world.cluster.delete_topic("orders"))

        with pytest.raises(DataLoss, match="topic orders does not exist"):
            offsets_read(world, orders(0, 100), **SMALL_FETCHES)
        assert world.now < 5

    def test_a_recreated_topic_with_fewer_partitions_is_data_loss(self) -> None:
        world = scripted(orders_0=log(0, 30), orders_1=log(0, 30))
        world.cluster.has_topic_ids = False
        world.cluster.recreate_topic("orders", log(0, 30))

        with pytest.raises(DataLoss, match=r"orders-1: offsets 0 to 29 are lost: topic orders has no partition 1"):
            offsets_read(world, OffsetRange(TopicPartition("orders", 1), 0, 30))

    def test_a_leader_that_cannot_fetch_by_topic_id_gives_a_warning_and_one_topic_id_check(self) -> None:
        world = world_of_orders()
        world.cluster.offered[ApiKey.FETCH] = (0, 12)
        ranges = plan(world)

        with pytest.warns(UserWarning, match=r"broker one:9092 offers FETCH only up to version 12.*not noticed"):
            assert offsets_read(world, *ranges) == list(range(100))
        world.cluster.recreate_topic("orders", log(0, 100))
        with pytest.raises(DataLoss, match="deleted and created again"):
            offsets_read(world, *ranges)


class TestOutOfRange:
    def test_out_of_range_for_an_offset_inside_the_log_is_retried(self) -> None:
        world = world_of_orders()
        world.cluster.errors[ORDERS] = [ErrorCode.OFFSET_OUT_OF_RANGE]

        assert offsets_read(world, orders(0, 100)) == list(range(100))


class TestBrokers:
    def test_requests_to_an_old_broker_use_versions_that_it_supports(self) -> None:
        world = world_of_orders()
        world.cluster.offered = {
            ApiKey.FETCH: (0, 4),
            ApiKey.LIST_OFFSETS: (0, 1),
            ApiKey.METADATA: (0, 4),
            ApiKey.API_VERSIONS: (0, 0),
        }

        assert offsets_read(world, orders(0, 100)) == list(range(100))

    def test_a_broker_without_a_usable_version_fails_the_read_at_once(self) -> None:
        world = world_of_orders()
        world.cluster.offered[ApiKey.FETCH] = (0, 3)

        with pytest.raises(UnsupportedVersion, match="one:9092 offers Fetch 0-3, needed is 4-12"):
            offsets_read(world, orders(0, 100))

    def test_an_address_that_is_no_kafka_broker_is_named_in_the_error(self) -> None:
        world = world_of_orders()
        world.cluster.answer = lambda broker, frame: [b"HTTP/1.1 400 Bad Request\r\n"]  # type: ignore[method-assign]

        with pytest.raises(Unreachable, match="does not speak Kafka's protocol"):
            offsets_read(world, orders(0, 100), kafkaConsumer__pollTimeoutMs="1000")

    def test_a_batch_truncated_at_the_limit_is_fetched_with_a_higher_limit(self) -> None:
        world = scripted(orders_0=log(0, 100, per_batch=100))
        whole = world.cluster.logs[ORDERS]
        content = whole.batches[0][2]
        whole.read = lambda offset, max_bytes: content[:max_bytes]  # type: ignore[method-assign]

        assert offsets_read(world, orders(0, 100), **SMALL_FETCHES) == list(range(100))

    def test_an_old_message_format_fails_the_read_with_partition_and_offset(self) -> None:
        world = world_of_orders()
        first, last, content = world.cluster.logs[ORDERS].batches[0]
        world.cluster.logs[ORDERS].batches[0] = (first, last, content[:16] + b"\1" + content[17:])

        with pytest.raises(CorruptBatch, match="orders-0, fetched from offset 0: message format 1"):
            offsets_read(world, orders(0, 100))

    def test_an_answer_with_a_wrong_correlation_id_is_retried_until_the_timeout(self) -> None:
        world = world_of_orders()
        answer = world.cluster.answer
        world.cluster.answer = (
            lambda broker, frame: [  # type: ignore[method-assign]
                whole[:4] + b"\7" + whole[5:] for whole in [b"".join(answer(broker, frame))]
            ]
        )

        with pytest.raises(Unreachable, match="answer 117440512 came where 0 was due"):
            offsets_read(world, orders(0, 100), kafkaConsumer__pollTimeoutMs="1000")

    def test_an_unreadable_answer_is_retried_until_the_timeout(self) -> None:
        world = world_of_orders()
        answer = world.cluster.answer
        world.cluster.answer = (
            lambda broker, frame: [  # type: ignore[method-assign]
                (8).to_bytes(4) + b"".join(answer(broker, frame))[4:12]
            ]
        )

        with pytest.raises(Unreachable, match="unreadable answer to API_VERSIONS v3"):
            offsets_read(world, orders(0, 100), kafkaConsumer__pollTimeoutMs="1000")

    def test_an_answer_for_another_partition_is_retried(self) -> None:
        world = world_of_orders()
        world.cluster.logs[TopicPartition("orders", 1)] = log(0, 100)
        asked = world.cluster._fetch

        def confuse(broker: int, request: FetchRequest) -> Any:
            answer = asked(broker, request)
            if len(world.cluster.fetched_from) == 1:
                answer.responses[0].partitions[0].partition_index = 1
            return answer

        world.cluster._fetch = confuse  # type: ignore[method-assign]

        assert offsets_read(world, orders(0, 100)) == list(range(100))

    def test_metadata_is_requested_last_from_a_frozen_broker(self) -> None:
        world = world_of_orders()
        world.cluster.logs[ORDERS].leader = 2
        frozen: list[int] = []

        def freeze(broker: int, request: Any) -> None:
            if broker == 1:
                frozen.append(broker)
                world.sleep(30)
                raise TimeoutError("timed out")

        world.cluster.on_request = freeze
        world.cluster.errors[ORDERS] = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 5

        assert offsets_read(world, orders(0, 100)) == list(range(100))
        assert len(frozen) == 1

    def test_a_batch_larger_than_the_limit_is_read(self) -> None:
        world = scripted(orders_0=log(0, 100, per_batch=100))

        assert offsets_read(world, orders(0, 100), kafka__max__partition__fetch__bytes="1") == list(range(100))

    def test_a_wrong_checksum_fails_the_read_with_partition_and_offsets(self) -> None:
        world = world_of_orders()
        first, last, content = world.cluster.logs[ORDERS].batches[3]
        world.cluster.logs[ORDERS].batches[3] = (first, last, content[:-1] + b"!")

        with pytest.raises(CorruptBatch, match=r"orders-0, batches at offsets 30 to 39: .* checksum"):
            offsets_read(world, orders(0, 100), **SMALL_FETCHES)

    def test_a_broker_that_answers_with_earlier_offsets_fails_the_read(self) -> None:
        world = world_of_orders()
        log_ = world.cluster.logs[ORDERS]
        log_.read = lambda offset, max_bytes: log_.batches[0][2]  # type: ignore[method-assign]

        with pytest.raises(CorruptBatch, match="orders-0: fetched from offset 10, but records end at 9"):
            offsets_read(world, orders(0, 100))


def test_read_committed_skips_aborted_transactions() -> None:
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
