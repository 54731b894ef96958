"""The controller's metrics during a term, and after its resignation."""

import asyncio

import pytest
from tests.support.controller_nodes import Nodes
from tests.support.controller_room import Room, assert_counted

from klamm.controller.controller import HANDLERS, QUEUE_TIMES_KEPT_S, Controller
from klamm.controller.events import (
    AutoPreferredReplicaLeaderElection,
    BrokerChange,
    Event,
    TopicChange,
    UpdateMetadataResponseReceived,
    ZkPartitionReassignment,
)
from klamm.controller.handlers.brokers import on_broker_change
from klamm.controller.metrics import TIMER_OF, ControllerMetrics, count_deletion
from klamm.controller.states import ControllerState, PartitionState, ReplicaState
from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId
from klamm.telemetry.meters import Timer
from klamm.telemetry.metric_table import SUMMARY, TABLE
from klamm.wire.messages import UpdateMetadataResponse

GAUGE = "kafka_controller_kafkacontroller_"


def gauges(controller: Controller) -> dict[str, float]:
    """The current values of the gauges that change."""
    return {
        r.name.removeprefix(GAUGE): r.value
        for r in controller.readings()
        if r.name.startswith(GAUGE) and not isinstance(r.value, Timer) and r.name != f"{GAUGE}zkmigrationstate"
    }


def timed(controller: Controller, name: str) -> int:
    """How many events this timer has counted."""
    found = {r.name: r.value for r in controller.readings()}[f"kafka_controller_controllerstats_{name}rateandtimems"]
    assert isinstance(found, Timer)
    return found.count


def brokers_with_queues(controller: Controller) -> set[str]:
    return {r.labels[0] for r in controller.readings() if r.name.endswith("channelmanager_queuesize")}


async def test_controller_metrics_count_topics_partitions_and_brokers_after_a_failover() -> None:
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


async def test_controller_metrics_are_zero_after_the_controllers_resignation() -> None:
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


async def test_the_unclean_election_metric_continues_over_several_controller_terms() -> None:
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


async def test_controller_event_queue_times_expire_after_a_long_idle_time() -> None:
    metrics = ControllerMetrics()
    metrics.event_taken(7.0)
    metrics.queue_time.forget()

    assert dict(metrics.queue_time.quantiles())[0.5] == 0.0
    assert metrics.queue_time.count == 1


class SteppedClock:
    """The loop's time, which advances only when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = float(int(asyncio.get_running_loop().time()))  # no timer of the controller is due by it
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now)


def queue_times(controller: Controller) -> tuple[int, float, float]:
    """The number of events taken from the queue, their total waiting time in ms, and the longest recent one."""
    [timer] = [r.value for r in controller.readings() if r.name.endswith("eventqueuetimems")]
    assert isinstance(timer, Timer)
    return timer.count, timer.total_ms, timer.quantiles()[-1][1]


async def test_the_event_queue_time_metric_is_measured_from_put_to_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = Nodes()
    controller = await nodes.start(1)
    await nodes.settle()
    clock = SteppedClock(monkeypatch)
    controller._metrics.queue_time = Timer()

    async def takes_half_a_second(*_: object) -> None:
        clock.now += 0.5

    monkeypatch.setitem(HANDLERS, TopicChange, takes_half_a_second)
    controller._queue.put(TopicChange())
    controller._queue.put(TopicChange())
    await nodes.settle()

    assert queue_times(controller) == (2, 500.0, 500.0)

    clock.now += QUEUE_TIMES_KEPT_S - 1
    assert queue_times(controller) == (2, 500.0, 500.0)
    clock.now += 1
    assert queue_times(controller) == (2, 500.0, 0.0)  # a dashboard must not show an hour-old wait as today's
    await nodes.close()


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(
    ("event", "timer"),
    [
        (AutoPreferredReplicaLeaderElection(), "autoleaderbalance"),
        (BrokerChange(), "leaderelection"),
        (ZkPartitionReassignment(), "partitionreassignment"),
    ],
)
async def test_a_handled_or_failed_controller_event_is_timed_and_sets_the_controller_state_metric(
    monkeypatch: pytest.MonkeyPatch, event: Event, timer: str, fails: bool
) -> None:
    nodes = Nodes()
    controller = await nodes.start(1)
    await nodes.settle()
    before = timed(controller, timer)
    seen: list[float] = []

    async def look(*_: object) -> None:
        seen.append(gauges(controller)["controllerstate"])
        if fails:
            raise KlammError("it went wrong")

    monkeypatch.setitem(HANDLERS, type(event), look)
    controller._queue.put(event)
    await nodes.settle()

    assert seen == [int(event.state)]
    assert (controller.state, timed(controller, timer)) == (ControllerState.IDLE, before + 1)
    await nodes.close()


async def test_a_controller_event_is_timed_from_its_begin_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes()
    controller = await nodes.start(1)
    await nodes.settle()
    clock = SteppedClock(monkeypatch)

    async def takes_half_a_second(*_: object) -> None:
        clock.now += 0.5

    monkeypatch.setitem(HANDLERS, TopicChange, takes_half_a_second)
    timer = controller._metrics.state_times[ControllerState.TOPIC_CHANGE] = Timer()
    controller._queue.put(TopicChange())
    await nodes.settle()

    assert timer.total_ms == 500.0
    assert [e.facts["ms"] for e in nodes.journal(1, "done")][-1] == 500.0
    await nodes.close()


async def test_a_controller_event_without_a_metric_timer_does_not_stop_the_next_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = Nodes()
    controller = await nodes.start(1)
    await nodes.settle()
    handled: list[str] = []

    async def note(_: object, event: Event) -> None:
        handled.append(type(event).__name__)

    for kind in (UpdateMetadataResponseReceived, TopicChange):
        monkeypatch.setitem(HANDLERS, kind, note)
    controller._queue.put(UpdateMetadataResponseReceived(UpdateMetadataResponse(), BrokerId(1)))
    controller._queue.put(TopicChange())
    await nodes.settle()

    assert handled == ["UpdateMetadataResponseReceived", "TopicChange"]
    await nodes.close()


def test_every_controller_state_that_kafka_times_has_a_timer_metric() -> None:
    without = set(ControllerState) - set(TIMER_OF)
    names = {f"kafka_controller_controllerstats_{name}rateandtimems" for name in TIMER_OF.values()}

    assert without == {ControllerState.IDLE, ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED}
    assert names == {n for n, row in TABLE.items() if row.kind == SUMMARY and "controllerstats" in n}


async def test_every_controller_metric_has_a_row_in_the_table_of_metrics() -> None:
    nodes = Nodes()
    controller = await nodes.start(1)
    await nodes.settle()

    assert all(len(TABLE[r.name].labels) == len(r.labels) for r in controller.readings())
    await nodes.close()


async def test_enabling_unclean_elections_at_run_time_elects_unclean_leaders_at_once() -> None:
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


async def test_the_end_of_a_controllers_term_leaves_no_timer_channel_or_task() -> None:
    nodes = Nodes()
    controller = await nodes.start(1)
    await nodes.start(2)
    await nodes.settle()
    await nodes.topic("orders", [(1, 2)])
    term = controller.term
    assert term is not None
    names = {t.get_name() for t in asyncio.all_tasks()}
    assert {"controller-to-broker-1", "controller-to-broker-2"} <= names

    await nodes.expire(1)
    await nodes.settle()

    assert term.timers._waiting == {}
    assert len(term.channels) == 0
    await nodes.close()
    left = {t.get_name() for t in asyncio.all_tasks() if t is not asyncio.current_task()}
    assert not {name for name in left if name.startswith("controller")}


async def test_partitions_of_topics_to_be_deleted_count_neither_as_offline_nor_as_imbalanced() -> None:
    room = await Room.open(brokers=(1, 2), topics={"a": [(2,), (2, 1)], "b": [(2,)]})
    room.kill(2)
    await room.handle(on_broker_change, BrokerChange())
    context = room.term.context
    assert (context.offline_count, context.imbalanced_count) == (2, 3)

    context.queue_deletion(["a"])
    assert_counted(context)
    assert (context.offline_count, context.imbalanced_count) == (1, 1)
    context.move(list(context.topics["a"].partitions.values()), PartitionState.OFFLINE)
    assert_counted(context)
    assert await count_deletion(context, room.term.slices) == (3, 0)
    context.move_replicas(BrokerId(2), [room.partition("a-0")], ReplicaState.DELETION_INELIGIBLE)
    context.move_replicas(BrokerId(1), [room.partition("a-1")], ReplicaState.OFFLINE)
    for state in (ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL):
        context.move_replicas(BrokerId(1), [room.partition("a-1")], state)
    assert await count_deletion(context, room.term.slices) == (2, 1)

    context.remove_topic("a")
    assert_counted(context)
