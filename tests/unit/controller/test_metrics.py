"""What dashboards show of a controller, and that nothing is left of it when it resigned."""

import asyncio

from tests.support.controller_nodes import Nodes
from tests.support.controller_room import Room, assert_counted

from klamm.controller.controller import Controller
from klamm.controller.events import BrokerChange
from klamm.controller.handlers.brokers import on_broker_change
from klamm.controller.metrics import TIMER_OF, ControllerMetrics
from klamm.controller.states import ControllerState, PartitionState
from klamm.telemetry.meters import Timer
from klamm.telemetry.metric_table import SUMMARY, TABLE

GAUGE = "kafka_controller_kafkacontroller_"


def gauges(controller: Controller) -> dict[str, float]:
    return {
        r.name.removeprefix(GAUGE): r.value
        for r in controller.readings()
        if r.name.startswith(GAUGE) and not isinstance(r.value, Timer)
    }


def timed(controller: Controller, name: str) -> int:
    found = {r.name: r.value for r in controller.readings()}[f"kafka_controller_controllerstats_{name}rateandtimems"]
    assert isinstance(found, Timer)
    return found.count


def brokers_with_queues(controller: Controller) -> set[str]:
    return {r.labels[0] for r in controller.readings() if r.name.endswith("channelmanager_queuesize")}


async def test_the_numbers_of_a_failover() -> None:
    nodes = Nodes()
    first, second = await nodes.start(1), await nodes.start(2)
    await nodes.settle()
    await nodes.topic("orders", [(1, 2), (2, 1), (1,)])

    shown = gauges(first)
    assert {name: shown[name] for name in ("activecontrollercount", "globaltopiccount", "globalpartitioncount")} == {
        "activecontrollercount": 1,
        "globaltopiccount": 1,
        "globalpartitioncount": 3,
    }
    assert (shown["activebrokercount"], shown["offlinepartitionscount"]) == (2, 0)
    assert brokers_with_queues(first) == {"1", "2"}
    assert set(gauges(second).values()) == {0}

    await nodes.stop(1)
    await nodes.settle()

    shown = gauges(second)
    assert (shown["activecontrollercount"], shown["globalpartitioncount"], shown["activebrokercount"]) == (1, 3, 1)
    assert (shown["offlinepartitionscount"], shown["preferredreplicaimbalancecount"]) == (1, 2)
    assert timed(second, "controllerchange") >= 2
    await nodes.close()


async def test_a_controller_that_resigned_shows_nothing_of_its_term() -> None:
    nodes = Nodes()
    controller = await nodes.start(1)
    await nodes.settle()
    await nodes.topic("orders", [(1,)])
    events_before = timed(controller, "topicchange")
    assert events_before >= 1

    nodes.ensemble.expire(nodes.clients[1])
    await controller.session_expired()
    await nodes.settle()

    assert set(gauges(controller).values()) == {0}
    assert brokers_with_queues(controller) == set()
    assert timed(controller, "topicchange") == events_before  # counters go on: they are the process's
    await controller.stop()


async def test_unclean_elections_are_counted_over_terms() -> None:
    nodes = Nodes()
    controller = await nodes.start(1)
    await nodes.settle()
    await nodes.start(2)
    await nodes.topic("orders", [(2, 1)], {"unclean.leader.election.enable": "true"})
    client = nodes.ensemble.client()
    state = "/brokers/topics/orders/partitions/0/state"
    await client.set(state, b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":0,"isr":[2]}')
    await nodes.stop(2)
    await nodes.settle()

    shown = {r.name: r.value for r in controller.readings()}

    assert shown["kafka_controller_controllerstats_uncleanleaderelections"] == 1
    await nodes.close()


async def test_a_queue_that_was_idle_for_long_forgets_how_long_events_waited() -> None:
    metrics = ControllerMetrics()
    metrics.event_taken(7.0)
    metrics.queue_time.forget()

    assert dict(metrics.queue_time.quantiles())[0.5] == 0.0
    assert metrics.queue_time.count == 1


def test_every_state_with_a_timer_in_kafka_has_it() -> None:
    without = set(ControllerState) - set(TIMER_OF)
    names = {f"kafka_controller_controllerstats_{name}rateandtimems" for name in TIMER_OF.values()}

    assert without == {ControllerState.IDLE, ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED}
    assert names == {n for n, row in TABLE.items() if row.kind == SUMMARY and "controllerstats" in n}


async def test_every_reading_has_a_row() -> None:
    nodes = Nodes()
    controller = await nodes.start(1)
    await nodes.settle()

    assert all(len(TABLE[r.name].labels) == len(r.labels) for r in controller.readings())
    await nodes.close()


async def test_unclean_leaders_allowed_at_run_time_are_elected_at_once() -> None:
    nodes = Nodes()
    controller = await nodes.start(1)
    await nodes.settle()
    await nodes.start(2)
    await nodes.topic("orders", [(2, 1)])
    state = "/brokers/topics/orders/partitions/0/state"
    behind = b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":0,"isr":[2]}'
    await nodes.ensemble.client().set(state, behind)
    await nodes.stop(2)
    await nodes.settle()
    assert gauges(controller)["offlinepartitionscount"] == 1

    controller.allow_unclean_election(True)
    await nodes.settle()

    assert gauges(controller)["offlinepartitionscount"] == 0
    await nodes.close()


async def test_nothing_is_left_of_a_term_that_ended() -> None:
    nodes = Nodes()
    controller = await nodes.start(1)
    await nodes.start(2)
    await nodes.settle()
    await nodes.topic("orders", [(1, 2)])
    bench = controller.bench
    assert bench is not None
    names = {t.get_name() for t in asyncio.all_tasks()}
    assert {"controller-to-broker-1", "controller-to-broker-2"} <= names

    await nodes.expire(1)
    await nodes.settle()

    assert bench.timers._waiting == {}
    assert len(bench.channels) == 0
    await nodes.close()
    left = {t.get_name() for t in asyncio.all_tasks() if t is not asyncio.current_task()}
    assert not {name for name in left if name.startswith("controller")}


async def test_partitions_of_topics_to_be_deleted_are_neither_offline_nor_imbalanced() -> None:
    room = await Room.open(brokers=(1, 2), topics={"a": [(2,), (2, 1)], "b": [(2,)]})
    room.kill(2)
    await room.handle(on_broker_change, BrokerChange())
    context = room.bench.context
    assert (context.offline_count, len(context.imbalanced)) == (2, 3)

    context.queue_deletion(["a"])
    assert_counted(context)
    assert (context.offline_count, len(context.imbalanced)) == (1, 1)
    context.move(list(context.topics["a"].partitions.values()), PartitionState.OFFLINE)
    assert_counted(context)
    assert context.replicas_to_delete == 3

    context.remove_topic("a")
    assert_counted(context)
