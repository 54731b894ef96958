"""Clients kept between tasks: reused while they are good, closed when they are idle, broken or too many."""

from collections.abc import Generator

import pytest
from tests.support.scripted_brokers import ScriptedWorld
from tests.unit.spark.scripts import job, log, logged, options, scripted

from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.spark.errors import DataLoss
from klamm.spark.plan import plan_ranges
from klamm.spark.pool import MAX_IDLE_CLIENTS, MAX_IDLE_S, ClientPool
from klamm.spark.ranges import OffsetRange, TaskRanges
from klamm.spark.read_client import read_client
from klamm.spark.tasks import read_task
from klamm.wire.api import ApiKey

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def world() -> ScriptedWorld:
    return scripted(orders_0=log(0, 100))


@pytest.fixture
def pool() -> ClientPool:
    return ClientPool()


def planned(world: ScriptedWorld, pool: ClientPool) -> TaskRanges:
    """Plan a read with this pool."""
    with read_client(world, options(), pool) as brokers:
        return TaskRanges(tuple(plan_ranges(brokers).ranges))


def rows(world: ScriptedWorld, pool: ClientPool, task: TaskRanges, **given: str) -> int:
    return sum(b.num_rows for b in read_task(world, job(("offset",), given), task, pool))


def test_a_second_spark_task_reuses_the_connections_and_metadata_of_the_first_task(
    world: ScriptedWorld, pool: ClientPool
) -> None:
    task = planned(world, pool)
    world.cluster.requests.clear()

    assert rows(world, pool, task) == rows(world, pool, task) == 100
    assert set(world.cluster.requests) == {"FETCH"}
    assert len(world.connections) == 1


def test_a_spark_read_with_other_options_opens_its_own_connection(world: ScriptedWorld, pool: ClientPool) -> None:
    task = planned(world, pool)

    assert rows(world, pool, task, kafka__client__id="another") == 100
    assert len(world.connections) == 2


def test_a_pooled_client_idle_beyond_the_time_limit_is_closed(world: ScriptedWorld, pool: ClientPool) -> None:
    task = planned(world, pool)
    world.now += MAX_IDLE_S + 1

    assert rows(world, pool, task) == 100
    assert [c.closed for c in world.connections] == [True, False]


def test_a_pooled_connection_closed_by_the_broker_is_opened_again(world: ScriptedWorld, pool: ClientPool) -> None:
    task = planned(world, pool)
    world.connections[0].closed = True

    assert rows(world, pool, task) == 100
    assert len(world.connections) == 2
    assert world.now == 0


def test_a_failed_spark_read_closes_its_client_instead_of_returning_the_client_to_the_pool(
    world: ScriptedWorld, pool: ClientPool
) -> None:
    task = planned(world, pool)
    world.cluster.logs[ORDERS].start = 50

    with pytest.raises(DataLoss):
        rows(world, pool, TaskRanges((OffsetRange(ORDERS, 0, 10, task.ranges[0].topic_id),)))
    assert all(c.closed for c in world.connections)


def test_an_abandoned_spark_read_returns_no_connection_with_a_running_fetch_to_the_pool(
    world: ScriptedWorld, pool: ClientPool
) -> None:
    task = planned(world, pool)
    reading = read_task(world, job(("offset",), {"kafka__max__partition__fetch__bytes": "300"}), task, pool)
    next(reading)
    assert isinstance(reading, Generator)
    reading.close()

    assert world.connections[0].closed
    assert rows(world, pool, task) == 100


def test_concurrent_spark_reads_use_separate_pooled_clients(world: ScriptedWorld, pool: ClientPool) -> None:
    task = planned(world, pool)
    first = read_task(world, job(("offset",), {}), task, pool)
    count = next(first).num_rows

    assert rows(world, pool, task) == 100
    assert count + sum(b.num_rows for b in first) == 100
    assert len(world.connections) == 2


def test_a_topic_recreated_between_two_spark_tasks_is_reported_as_data_loss(
    world: ScriptedWorld, pool: ClientPool
) -> None:
    old = planned(world, pool)
    world.cluster.recreate_topic("orders", log(0, 100))

    with pytest.raises(DataLoss, match="created again"):
        rows(world, pool, old)
    assert rows(world, pool, planned(world, pool)) == 100


def test_a_topic_missing_in_an_earlier_task_is_looked_up_again_by_the_next_task(
    world: ScriptedWorld, pool: ClientPool
) -> None:
    old = planned(world, pool)
    content = world.cluster.logs[ORDERS]
    world.cluster.delete_topic("orders")
    with logged("topic orders does not exist"):
        assert rows(world, pool, old, failOnDataLoss="false") == 0
    world.cluster.logs[ORDERS] = content
    world.cluster.metadata_errors["orders"] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    assert rows(world, pool, old) == 100


def test_each_task_checks_the_topic_id_again_on_a_leader_that_fetches_by_name(
    world: ScriptedWorld, pool: ClientPool
) -> None:
    world.cluster.offered[ApiKey.FETCH] = (0, 12)
    task = planned(world, pool)
    with logged("cannot notice"):
        assert rows(world, pool, task) == 100
    world.cluster.recreate_topic("orders", log(0, 100))

    with pytest.raises(DataLoss, match="created again"):
        rows(world, pool, task)


def test_the_number_of_idle_pooled_clients_is_bounded(world: ScriptedWorld, pool: ClientPool) -> None:
    task = planned(world, pool)
    for number in range(MAX_IDLE_CLIENTS + 2):
        rows(world, pool, task, kafka__client__id=f"client {number}")

    assert sum(not c.closed for c in world.connections) == MAX_IDLE_CLIENTS
