"""A write while brokers move, refuse and fall silent: each record once, in order, or an error that says why."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from tests.support.scripted_brokers import ScriptedLog, ScriptedWorld
from tests.unit.spark.scripts import options, scripted

from klamm.client.errors import DeliveryFailed, Unreachable
from klamm.client.transactions import ProducerIdAndEpoch
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.spark.read_client import read_client
from klamm.spark.record_encoder import EncodedRecords, RecordColumns, Run, encode_runs
from klamm.spark.record_writer import Identity, RecordWriter, SendSettings
from klamm.wire.compression import Codec
from klamm.wire.messages import ProduceRequest
from klamm.wire.records.batch import NO_PRODUCER_ID, batches, crc_is_valid, header_at
from klamm.wire.records.record import records

P0, P1, P2 = (TopicPartition("orders", n) for n in range(3))
NOW_MS = 1_700_000_000_000
SETTINGS = SendSettings(
    acks=-1, codec=Codec.NONE, level=None, request_timeout_s=30, delivery_timeout_s=60, max_request_bytes=10_000,
    max_buffered_bytes=20_000,
)  # fmt: skip
IDEMPOTENT = Identity(ProducerIdAndEpoch(7, 1))


@pytest.fixture
def world() -> ScriptedWorld:
    return scripted(orders_0=ScriptedLog(1), orders_1=ScriptedLog(1), orders_2=ScriptedLog(2))


@contextmanager
def writer(
    world: ScriptedWorld, settings: SendSettings = SETTINGS, identity: Identity = IDEMPOTENT
) -> Iterator[RecordWriter]:
    with read_client(world, options()) as brokers:
        yield RecordWriter(brokers, settings, identity, lambda: NOW_MS)


def encoded(partition: TopicPartition, first: int, end: int, max_bytes: int = 200) -> list[EncodedRecords]:
    values = pa.array([b"%d" % n for n in range(first, end)], pa.binary())
    return list(encode_runs(RecordColumns(None, values), [Run(partition, 0, end - first)], max_bytes))


def write_all(out: RecordWriter, batches: list[EncodedRecords]) -> None:
    out.write(batches)
    out.flush()


def values(world: ScriptedWorld, partition: TopicPartition) -> list[int]:
    """What the partition has; every batch must be valid."""
    found = []
    for _, _, content in world.cluster.logs[partition].batches:
        [header] = batches(content)
        assert crc_is_valid(content, header)
        assert header.base_timestamp == header.max_timestamp == NOW_MS
        found += [int(record.value or b"") for record in records(content, header)]
    return found


def sequences(world: ScriptedWorld, partition: TopicPartition) -> list[int]:
    return [header_at(content).base_sequence for _, _, content in world.cluster.logs[partition].batches]


def on_produce(world: ScriptedWorld, at: int, act: Callable[[int], None]) -> None:
    """Act at the produce request of this number, with the broker that got it."""
    seen: list[int] = []

    def on_request(broker: int, request: Any) -> None:
        if isinstance(request, ProduceRequest):
            seen.append(broker)
            if len(seen) == at:
                act(broker)

    world.cluster.on_request = on_request


@pytest.mark.parametrize("codec", Codec)
def test_the_spark_sink_writes_records_to_several_leaders_in_order(world: ScriptedWorld, codec: Codec) -> None:
    with writer(world, SETTINGS._replace(codec=codec)) as out:
        for partition in (P0, P1, P2):
            out.write(encoded(partition, 0, 100))
        out.flush()

    assert [values(world, p) for p in (P0, P1, P2)] == [list(range(100))] * 3
    assert sequences(world, P0)[:2] == [0, header_at(world.cluster.logs[P0].batches[0][2]).record_count]


def test_the_spark_sink_resends_a_batch_with_its_sequence_number_after_a_leader_change(world: ScriptedWorld) -> None:
    def move(broker: int) -> None:
        world.cluster.logs[P0].leader = 2
        world.down.add(broker)
        raise ConnectionResetError("reset")

    world.cluster.errors[P0] = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT]
    on_produce(world, 5, move)

    with writer(world) as out:
        out.write(encoded(P0, 0, 300))
        out.flush()

    assert values(world, P0) == list(range(300))
    assert sequences(world, P0) == sorted(set(sequences(world, P0)))


def test_the_spark_sink_treats_duplicate_sequence_number_as_delivered(world: ScriptedWorld) -> None:
    world.cluster.errors[P0] = [ErrorCode.DUPLICATE_SEQUENCE_NUMBER]

    with writer(world) as out:
        out.write(encoded(P0, 0, 10, max_bytes=1_000))
        out.flush()

    assert values(world, P0) == []


def test_the_spark_sink_halves_a_batch_refused_as_too_large_and_keeps_its_sequence_numbers(
    world: ScriptedWorld,
) -> None:
    world.cluster.errors[P0] = [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.MESSAGE_TOO_LARGE]

    with writer(world) as out:
        out.write(encoded(P0, 0, 11, max_bytes=1_000))
        out.write(encoded(P0, 11, 20, max_bytes=1_000))
        out.flush()

    assert values(world, P0) == list(range(20))
    assert sequences(world, P0) == [0, 2, 5, 11]


@pytest.mark.parametrize(
    ("code", "count", "message"),
    [
        (ErrorCode.MESSAGE_TOO_LARGE, 1, "orders-0 refused a record with MESSAGE_TOO_LARGE.* raise max.message.bytes"),
        (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED, 5,
            "the leader of orders-0 refused a batch of 5 records with TOPIC_AUTHORIZATION_FAILED",
        ),
    ],
    ids=["a record too large for its topic", "an error that no retry repairs"],
)  # fmt: skip
def test_a_final_produce_error_fails_the_spark_write_and_names_the_partition(
    world: ScriptedWorld, code: ErrorCode, count: int, message: str
) -> None:
    world.cluster.errors[P0] = [code]

    with writer(world) as out, pytest.raises(DeliveryFailed, match=message):
        write_all(out, encoded(P0, 0, count))


def test_a_partition_that_refuses_records_until_the_timeout_fails_the_spark_write(world: ScriptedWorld) -> None:
    world.cluster.errors[P0] = [ErrorCode.NOT_ENOUGH_REPLICAS] * 1_000

    with (
        writer(world) as out,
        pytest.raises(
            Unreachable, match=r"writing to orders-0: no attempt succeeded within 60 s; .*NOT_ENOUGH_REPLICAS"
        ),
    ):
        write_all(out, encoded(P0, 0, 5))


def test_the_spark_sink_never_buffers_more_than_the_allowed_bytes(world: ScriptedWorld) -> None:
    with writer(world) as out:
        for first in range(0, 10_000, 1_000):
            out.write(encoded(P0, first, first + 1_000))
            assert out._buffered <= SETTINGS.max_buffered_bytes + SETTINGS.max_request_bytes
        out.flush()

    assert values(world, P0) == list(range(10_000))


def test_a_produce_request_of_the_spark_sink_has_at_most_the_allowed_bytes(world: ScriptedWorld) -> None:
    sizes: list[int] = []

    def on_request(broker: int, request: Any) -> None:
        if isinstance(request, ProduceRequest):
            sizes.append(sum(len(p.records or b"") for t in request.topic_data for p in t.partition_data))

    world.cluster.on_request = on_request

    with writer(world, SETTINGS._replace(max_request_bytes=200)) as out:
        out.write([*encoded(P0, 0, 50), *encoded(P1, 0, 50)])
        out.flush()

    assert max(sizes) <= 200
    assert values(world, P0) == values(world, P1) == list(range(50))


def test_a_lost_connection_fails_a_spark_write_with_acks_0(world: ScriptedWorld) -> None:
    settings = SETTINGS._replace(acks=0)
    with writer(world, settings, Identity()) as out:
        out.write(encoded(P0, 0, 50))
        out.flush()
    assert values(world, P0) == list(range(50))
    assert header_at(world.cluster.logs[P0].batches[0][2]).producer_id == NO_PRODUCER_ID

    def lose(broker: int) -> None:
        raise ConnectionResetError("reset")

    on_produce(world, 1, lose)
    with (
        writer(world, settings, Identity()) as out,
        pytest.raises(DeliveryFailed, match=r"set kafka\.acks to 1 or all"),
    ):
        write_all(out, encoded(P0, 0, 50))


def test_a_leader_that_a_refusal_names_gets_the_records_without_another_metadata_request(world: ScriptedWorld) -> None:
    world.cluster.tells_leaders = True
    world.cluster.logs[P0].elect(1, 3, 0)
    before: list[int] = []

    def elect(broker: int) -> None:
        world.cluster.logs[P0].elect(2, 4, 0)
        before.append(world.cluster.requests["METADATA"])

    on_produce(world, 1, elect)
    with writer(world) as out:
        write_all(out, encoded(P0, 0, 10))

    assert values(world, P0) == list(range(10))
    assert before == [world.cluster.requests["METADATA"]]


def test_a_leader_is_looked_up_while_requests_are_in_flight_at_all_brokers(world: ScriptedWorld) -> None:
    world.cluster.errors[P0] = [ErrorCode.NOT_ENOUGH_REPLICAS] * 3

    def take_time(broker: int, request: Any) -> None:
        world.now += 0.05  # so that the partition that was refused is due again before the others are done

    world.cluster.on_request = take_time
    with writer(world, SETTINGS._replace(max_request_bytes=300, max_buffered_bytes=30_000)) as out:
        out.write(encoded(P0, 0, 20))
        for first in range(0, 400, 20):
            out.write([*encoded(P1, first, first + 20), *encoded(P2, first, first + 20)])
        out.flush()

    assert values(world, P0) == list(range(20))
    assert [values(world, p) for p in (P1, P2)] == [list(range(400))] * 2
