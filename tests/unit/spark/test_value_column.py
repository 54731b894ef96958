"""Records whose value is not of the format: the read fails, says so in a column, or writes them to another topic."""

from typing import Any

import pyarrow as pa
import pytest
from tests.support.scripted_brokers import ScriptedLog, ScriptedWorld
from tests.unit.spark.batch_bytes import Record, batch
from tests.unit.spark.scripts import options, plan, scripted

from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.spark.columns import BadTimestamp
from klamm.spark.errors import BadOption
from klamm.spark.ranges import TaskRanges
from klamm.spark.schema import Columns
from klamm.spark.tasks import Job, read_task
from klamm.spark.value_column import BadValue
from klamm.wire.messages import ProduceRequest
from klamm.wire.records import records
from klamm.wire.records.batch import header_at

KIND = pa.struct([pa.field("id", pa.int64())])
VALUES = (b'{"id": 1}', b"broken", None, b'{"id": "x"}', b'{"id": 5}')
NAMES = ("offset", "value", "decodeError")


@pytest.fixture
def world() -> ScriptedWorld:
    content = [Record(b"k%d" % i, v, 1_000 + i, [("h", b"1")]) for i, v in enumerate(VALUES)]
    held = ScriptedLog(1, [(0, len(VALUES) - 1, batch(content))])
    return scripted(orders_0=held, dead_0=ScriptedLog(1), dead_1=ScriptedLog(2))


def read(world: ScriptedWorld, names: tuple[str, ...] = NAMES, **given: str) -> list[dict[str, Any]]:
    told = {"valueFormat": "json", **given}
    job = Job(options(**told), Columns(names, names, KIND if told["valueFormat"] == "json" else None))
    return [row for rows in read_task(world, job, TaskRanges(tuple(plan(world)))) for row in rows.to_pylist()]


def test_a_value_that_cannot_be_decoded_fails_the_spark_read_and_names_its_offset(world: ScriptedWorld) -> None:
    with pytest.raises(BadValue) as caught:
        read(world)

    assert str(caught.value) == (
        "orders-0, offset 1: the value is not JSON of the schema: the value is not an object. It is one of 2 such "
        "values in 5 records. Set the option onDecodeError to report or deadletter:TOPIC, or correct valueFormat or "
        "valueSchema."
    )


def test_on_decode_error_report_returns_the_reason_in_a_column(world: ScriptedWorld) -> None:
    rows = read(world, onDecodeError="report")

    ids = [(r["offset"], r["value"] and r["value"]["id"]) for r in rows]
    assert ids == [(0, 1), (1, None), (2, None), (3, None), (4, 5)]
    assert [r["offset"] for r in rows if r["decodeError"]] == [1, 3]


NANOSECONDS = 1_700_000_000_000_000_000
BEYOND = f"timestamp {NANOSECONDS} ms is outside of what Spark's TIMESTAMP holds, the years -290308 to 294247"


@pytest.fixture
def far_world() -> ScriptedWorld:
    """Four records; the timestamps of the second and of the last one are too far away."""
    times = ((b'{"id": 1}', 1), (b'{"id": 2}', NANOSECONDS), (b"broken", 2), (b"broken", NANOSECONDS))
    content = [Record(b"k", value, time) for value, time in times]
    return scripted(orders_0=ScriptedLog(1, [(0, 3, batch(content))]), dead_0=ScriptedLog(1))


def test_on_decode_error_report_returns_null_for_a_timestamp_beyond_spark_and_the_reason(
    far_world: ScriptedWorld,
) -> None:
    rows = read(far_world, ("timestamp", "value", "decodeError"), onDecodeError="report")

    assert [r["timestamp"] is None for r in rows] == [False, True, False, True]
    assert [r["value"] and r["value"]["id"] for r in rows] == [1, 2, None, None]
    [good, far, broken, both] = [r["decodeError"] for r in rows]
    assert (good, far, both) == (None, BEYOND, f"{BEYOND}; {broken}")
    assert broken.startswith("the value is not JSON")


def test_on_decode_error_report_is_for_timestamps_of_raw_values_too(far_world: ScriptedWorld) -> None:
    rows = read(far_world, ("value", "decodeError", "timestamp"), valueFormat="raw", onDecodeError="report")

    assert [r["value"] for r in rows] == [b'{"id": 1}', b'{"id": 2}', b"broken", b"broken"]
    assert [r["decodeError"] for r in rows] == [None, BEYOND, None, BEYOND]
    assert [r["timestamp"] is None for r in rows] == [False, True, False, True]


@pytest.mark.parametrize(
    ("names", "on_error"),
    [
        (("value", "timestamp", "decodeError"), "fail"),
        (("value", "timestamp"), "report"),
        (("value", "timestamp"), "deadletter:dead"),
    ],
)
def test_a_timestamp_beyond_spark_fails_a_read_that_does_not_report_it(
    far_world: ScriptedWorld, names: tuple[str, ...], on_error: str
) -> None:
    problem = rf"orders-0, offset 1: {BEYOND}; .*set the option onDecodeError to report and read its column decodeError"
    with pytest.raises(BadTimestamp, match=problem):
        read(far_world, names, valueFormat="string", onDecodeError=on_error)


def test_undecodable_values_are_written_to_the_dead_letter_topic_with_partition_and_offset(
    world: ScriptedWorld,
) -> None:
    rows = read(world, ("offset", "value"), onDecodeError="deadletter:dead")

    assert [(r["offset"], r["value"] and r["value"]["id"]) for r in rows] == [(0, 1), (2, None), (4, 5)]
    [(_, _, stored)] = world.cluster.logs[TopicPartition("dead", 0)].batches
    letters = list(records(stored, header_at(stored)))
    assert [(r.key, r.value) for r in letters] == [(b"k1", b"broken"), (b"k3", b'{"id": "x"}')]
    headers = dict(letters[0].headers)
    assert headers == {
        "h": b"1", "klamm.topic": b"orders", "klamm.partition": b"0", "klamm.offset": b"1",
        "klamm.error": b"the value is not JSON of the schema: the value is not an object",
    }  # fmt: skip
    assert [r.timestamp for r in letters] == [1_001, 1_003]


def test_a_dead_letter_keeps_a_timestamp_after_the_year_9999(world: ScriptedWorld) -> None:
    """A producer that gives microseconds for milliseconds."""
    time = 1_700_000_000_000_000
    content = batch([Record(b"k", b"broken", time, [])])
    world.cluster.logs[TopicPartition("orders", 0)] = ScriptedLog(1, [(0, 0, content)])

    assert read(world, ("offset", "value"), onDecodeError="deadletter:dead") == []

    [(_, _, stored)] = world.cluster.logs[TopicPartition("dead", 0)].batches
    assert [(r.value, r.timestamp) for r in records(stored, header_at(stored))] == [(b"broken", time)]


def test_dead_letters_are_written_once_and_to_the_current_leader(world: ScriptedWorld) -> None:
    world.cluster.errors[TopicPartition("dead", 0)] = [ErrorCode.NOT_ENOUGH_REPLICAS]

    def move(broker: int, request: object) -> None:
        if isinstance(request, ProduceRequest):
            world.cluster.logs[TopicPartition("dead", 0)].leader = 2

    world.cluster.on_request = move

    assert len(read(world, ("offset", "value"), onDecodeError="deadletter:dead")) == 3
    assert len(world.cluster.logs[TopicPartition("dead", 0)].batches) == 1


def test_a_missing_dead_letter_topic_fails_the_read_and_is_named(world: ScriptedWorld) -> None:
    with pytest.raises(BadOption, match="onDecodeError: topic nowhere does not exist; create it"):
        read(world, onDecodeError="deadletter:nowhere")


def test_a_spark_read_that_does_not_select_the_value_column_decodes_no_values(world: ScriptedWorld) -> None:
    assert read(world, ("offset",)) == [{"offset": o} for o in range(5)]


def test_value_format_string_returns_values_as_text(world: ScriptedWorld) -> None:
    rows = read(world, ("value",), valueFormat="string")

    assert [r["value"] for r in rows] == [v and v.decode() for v in VALUES]
