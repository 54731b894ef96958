"""Filters that the source takes select partitions, offsets and rows; Spark keeps all others."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
)
from tests.support.scripted_brokers import ScriptedWorld
from tests.unit.spark.scripts import job, log, options, scripted

from klamm.model.ids import TopicPartition
from klamm.spark.filters import RowFilter, take_filters
from klamm.spark.plan import plan_batch
from klamm.spark.ranges import TaskRanges
from klamm.spark.read_client import read_client
from klamm.spark.tasks import read_task

COLUMNS = ("topic", "partition", "offset", "timestamp")


def taken(*filters: Filter) -> RowFilter:
    conditions: list[object] = []
    assert list(take_filters(filters, conditions)) == []  # type: ignore[arg-type]
    return RowFilter(tuple(conditions))  # type: ignore[arg-type]


def listed(column: str, *values: object) -> In:
    """As Spark passes it: with a list."""
    return In((column,), list(values))  # type: ignore[arg-type]


@pytest.fixture
def world() -> ScriptedWorld:
    world = scripted(orders_0=log(0, 100), orders_1=log(20, 50), payments_0=log(0, 10))
    for scripted_log in world.cluster.logs.values():
        scripted_log.times = {1_000: 0, 2_000: 30}
    return world


def read(world: ScriptedWorld, wanted: RowFilter) -> tuple[list[TaskRanges], list[tuple[str, int, int]]]:
    """The tasks planned with the filter, and the rows that they give out."""
    given = {"subscribe": "orders,payments"}
    with read_client(world, options(**given)) as brokers:
        tasks = plan_batch(brokers, wanted, 1)
    what = job(COLUMNS, given)._replace(wanted=wanted)
    rows = [r for t in tasks for b in read_task(world, what, t) for r in b.to_pylist()]
    return tasks, [(r["topic"], r["partition"], r["offset"]) for r in rows]


def orders(partition: int, *offsets: int) -> list[tuple[str, int, int]]:
    return [("orders", partition, o) for o in offsets]


CASES = {
    "one partition": ((EqualTo(("partition",), 1),), orders(1, *range(20, 50))),
    "one topic, some offsets": (
        (EqualTo(("topic",), "orders"), GreaterThan(("offset",), 47)), [*orders(0, *range(48, 100)), *orders(1, 48, 49)]
    ),
    "a range of offsets": (
        (EqualTo(("partition",), 1), GreaterThanOrEqual(("offset",), 25), LessThanOrEqual(("offset",), 27)),
        orders(1, 25, 26, 27),
    ),
    "an offset": ((listed("topic", "orders", "x"), EqualTo(("offset",), 21)), [*orders(0, 21), *orders(1, 21)]),
    "listed offsets": ((EqualTo(("partition",), 1), listed("offset", 22, 49, None)), orders(1, 22, 49)),
    "before": ((EqualTo(("partition",), 1), LessThan(("Offset",), 22)), orders(1, 20, 21)),
    "nothing": ((EqualTo(("partition",), 1), LessThan(("offset",), 20)), []),
}  # fmt: skip


@pytest.mark.parametrize(("filters", "expected"), CASES.values(), ids=CASES)
def test_spark_filters_return_exactly_the_matching_rows_and_plan_only_their_offsets(
    world: ScriptedWorld, filters: tuple[Filter, ...], expected: list[tuple[str, int, int]]
) -> None:
    tasks, rows = read(world, taken(*filters))

    assert rows == expected
    planned = [(r.topic_partition, o) for t in tasks for r in t.ranges for o in range(r.start, r.end)]
    least = min((o for _, _, o in expected), default=0)
    most = max((o for _, _, o in expected), default=-1)
    assert all(least <= o <= most for _, o in planned)


def test_a_spark_filter_with_a_minimum_timestamp_sets_the_first_offset_to_read(world: ScriptedWorld) -> None:
    wanted = taken(GreaterThanOrEqual(("timestamp",), datetime.fromtimestamp(1.5, UTC)), EqualTo(("topic",), "orders"))

    tasks, _ = read(world, wanted)

    assert [(r.start, r.end) for t in tasks for r in t.ranges] == [(30, 100), (30, 50)]


def test_a_spark_filter_with_a_minimum_timestamp_before_1970_reads_records_without_timestamp(
    world: ScriptedWorld,
) -> None:
    for scripted_log in world.cluster.logs.values():
        scripted_log.times = {-1: 0, 1_000: 30}
    wanted = taken(GreaterThan(("timestamp",), datetime(1960, 1, 1, tzinfo=UTC)), EqualTo(("topic",), "orders"))

    tasks, _ = read(world, wanted)

    assert [(r.start, r.end) for t in tasks for r in t.ranges] == [(0, 100), (20, 50)]


def test_spark_filters_compare_timestamps_in_microseconds() -> None:
    at = datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
    times = pa.array([at, at.replace(microsecond=122_999), None], pa.timestamp("us", tz="UTC"))
    rows = pa.RecordBatch.from_arrays([times], ["timestamp"])

    assert taken(EqualTo(("timestamp",), at)).apply(rows).num_rows == 1
    assert taken(listed("timestamp", at)).apply(rows).num_rows == 1
    assert taken(LessThan(("timestamp",), at)).apply(rows).num_rows == 1


STAYS = {
    "a condition on the value": EqualTo(("value",), b"x"),
    "not": Not(EqualTo(("partition",), 1)),
    "is null": IsNull(("offset",)),
    "a field of a struct": EqualTo(("dataLoss", "endOffset"), 1),
    "part of a text": StringContains(("topic",), "o"),
    "a time that is not null": IsNotNull(("timestamp",)),
    "a value that is not null": IsNotNull(("value",)),
    "nothing listed": listed("offset", None),
}


@pytest.mark.parametrize("given", STAYS.values(), ids=STAYS)
def test_filters_that_the_source_does_not_support_are_left_to_spark(given: Filter) -> None:
    conditions: list[object] = []

    assert list(take_filters([given], conditions)) == [given]  # type: ignore[arg-type]
    assert conditions == []


def test_is_not_null_filters_on_columns_that_are_never_null_add_no_condition() -> None:
    assert taken(IsNotNull(("partition",)), IsNotNull(("offset",)), IsNotNull(("topic",))) == RowFilter()


def test_partitions_excluded_by_a_spark_filter_cause_no_list_offsets_request(world: ScriptedWorld) -> None:
    read(world, taken(EqualTo(("partition",), 7)))

    assert "LIST_OFFSETS" not in world.cluster.requests
    assert taken(EqualTo(("partition",), 7)).may_have(TopicPartition("orders", 7))
