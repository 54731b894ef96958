"""Who is controller: elections, expired sessions, resignations; and that every caller gets an answer."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
from tests.support.controller_nodes import Nodes

from klamm.controller import events
from klamm.controller.controller import HANDLERS
from klamm.controller.decisions.features import FeatureUpdate, UpgradeType
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import AlterPartitionRequest
from klamm.zk.admin_znodes import encode_preferred_election, encode_reassignment
from klamm.zk.errors import MalformedReply
from klamm.zk.operations import Create, Delete, Op, Set
from klamm.zk.port import ZooKeeperClient
from klamm.zk.registrar import BrokerIdTaken
from klamm.zk.watches import EventType, WatchEvent
from klamm.zk.znodes import (
    BROKER_IDS,
    CONTROLLER,
    CONTROLLER_EPOCH,
    DELETE_TOPICS,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    PREFERRED_ELECTION,
    REASSIGN_PARTITIONS,
    TOPICS,
    MalformedZnode,
    encode_controller,
    encode_topic,
)


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    made = Nodes()
    yield made
    await made.close()


def controller_epoch(nodes: Nodes) -> int:
    return int(nodes.ensemble.nodes[CONTROLLER_EPOCH].data or b"")


async def test_of_three_started_at_once_one_is_elected(nodes: Nodes) -> None:
    for number in (1, 2, 3):
        await nodes.start(number)
    await nodes.settle()

    assert len(nodes.active) == 1
    assert controller_epoch(nodes) == 1


async def test_another_node_becomes_controller_when_the_controller_stops(nodes: Nodes) -> None:
    for number in (1, 2):
        await nodes.start(number)
    await nodes.settle()
    [first] = nodes.active

    await nodes.stop(first)
    await nodes.settle()

    [second] = nodes.active
    assert second != first
    assert controller_epoch(nodes) == 2
    [term] = nodes.journal(second, "ready")
    assert (term.controller_epoch, term.facts["brokers"]) == (2, [second])


async def test_an_expired_session_ends_the_term_and_the_broker_is_registered_again(nodes: Nodes) -> None:
    await nodes.start(1)
    await nodes.start(2)
    await nodes.settle()
    [first] = nodes.active
    registered = nodes.ensemble.nodes[f"/brokers/ids/{first}"].czxid

    await nodes.expire(first)
    await nodes.settle()

    assert len(nodes.active) == 1
    assert nodes.ensemble.nodes[f"/brokers/ids/{first}"].czxid > registered
    assert nodes.journal(first, "resigned")[0].facts["why"] == "the ZooKeeper session expired"


async def test_callers_waiting_when_the_session_expires_are_told_not_controller(nodes: Nodes) -> None:
    controller = await nodes.start(1)
    await nodes.settle()
    asked = [
        asyncio.ensure_future(controller.alter_partition(AlterPartitionRequest(broker_id=1), 3)),
        asyncio.ensure_future(controller.allocate_producer_ids(BrokerId(1), 1)),
        asyncio.ensure_future(controller.controlled_shutdown(BrokerId(1), 1)),
    ]
    await asyncio.sleep(0)
    await nodes.expire(1)

    alter, ids, shutdown = [await a for a in asked]
    assert ErrorCode.NOT_CONTROLLER in (alter.error_code, ids.error)  # the first may have been in work already
    assert ids.error is ErrorCode.NOT_CONTROLLER
    assert shutdown.error is ErrorCode.STALE_CONTROLLER_EPOCH


async def test_callers_of_an_inactive_controller_are_told(nodes: Nodes) -> None:
    await nodes.start(1)
    await nodes.settle()
    inactive = await nodes.start(2)
    await nodes.settle()

    assert (await inactive.alter_partition(AlterPartitionRequest(), 3)).error_code == ErrorCode.NOT_CONTROLLER
    assert (await inactive.allocate_producer_ids(BrokerId(2), 1)).error is ErrorCode.NOT_CONTROLLER
    assert (await inactive.controlled_shutdown(BrokerId(2), 1)).error is ErrorCode.STALE_CONTROLLER_EPOCH


async def test_callers_after_the_stop_are_told(nodes: Nodes) -> None:
    controller = await nodes.start(1)
    await nodes.settle()
    await nodes.stop(1)

    assert (await controller.allocate_producer_ids(BrokerId(1), 1)).error is ErrorCode.NOT_CONTROLLER


def depose(nodes: Nodes) -> None:
    """Broker 9 is controller, and node 1 has not heard of it yet."""
    nodes.clients[1].is_not_told_of(CONTROLLER)
    nodes.ensemble.apply([Set(CONTROLLER_EPOCH, b"2"), Delete(CONTROLLER)])
    nodes.ensemble.apply([Create(CONTROLLER, encode_controller(BrokerId(9), 0))])


async def test_a_deposed_controller_finds_out_by_its_first_write_and_resigns(nodes: Nodes) -> None:
    controller = await nodes.start(1)
    await nodes.settle()
    depose(nodes)

    await nodes.topic("a", [(1,)])

    assert not controller.is_active
    assert "/brokers/topics/a/partitions" not in nodes.ensemble.nodes
    assert controller_epoch(nodes) == 2


MOVED_WHILE = {
    "a topic is created": Create("/brokers/topics/b", encode_topic(None, {0: ReplicaAssignment((BrokerId(1),))})),
    "a preferred leader is asked for": Create(PREFERRED_ELECTION, encode_preferred_election([TopicPartition("a", 0)])),
    "a partition is to move": Create(
        REASSIGN_PARTITIONS, encode_reassignment({TopicPartition("a", 0): (BrokerId(1),)})
    ),
}


@pytest.mark.parametrize("asked", MOVED_WHILE.values(), ids=MOVED_WHILE)
async def test_whatever_a_deposed_controller_is_asked_it_does_nothing_and_resigns(nodes: Nodes, asked: Create) -> None:
    controller = await nodes.start(1)
    await nodes.settle()
    await nodes.topic("a", [(1,)])
    depose(nodes)
    before = dict(nodes.ensemble.nodes)
    nodes.receivers[1].received.clear()

    nodes.ensemble.apply([asked])
    await nodes.settle()

    assert not controller.is_active
    assert nodes.journal(1, "moved")
    assert {p: n.version for p, n in nodes.ensemble.nodes.items() if p != asked.path} == {
        p: n.version for p, n in before.items()
    }
    assert asked.path in nodes.ensemble.nodes
    assert nodes.receivers[1].take("LeaderAndIsr") == nodes.receivers[1].take("StopReplica") == []


async def test_a_deposed_controller_that_is_asked_to_delete_a_topic_leaves_its_znodes_and_resigns(nodes: Nodes) -> None:
    """Nobody is told to delete: brokers that do not know the new controller would."""
    controller = await nodes.start(1)
    await nodes.settle()
    await nodes.topic("a", [(1,)])
    depose(nodes)
    told: list[ApiKey] = []
    nodes.receivers[1].answer = lambda key, request: told.append(key)

    nodes.ensemble.apply([Create("/admin/delete_topics/a")])
    await nodes.settle()

    assert told == []
    assert not controller.is_active
    assert nodes.journal(1, "moved")
    left = {"/admin/delete_topics/a", "/config/topics/a", "/brokers/topics/a/partitions/0/state"}
    assert left <= nodes.ensemble.nodes.keys()


async def test_a_controller_znode_of_an_earlier_session_of_ours_does_not_make_us_active(nodes: Nodes) -> None:
    other_session = nodes.ensemble.client()
    nodes.ensemble.apply(
        [Create(CONTROLLER, encode_controller(BrokerId(1), 0), ephemeral=True)], other_session.session_id
    )
    controller = await nodes.start(1)
    await nodes.settle()
    assert not controller.is_active

    nodes.ensemble.expire(other_session)
    await nodes.settle()
    assert controller.is_active


async def test_a_controller_znode_of_this_session_without_a_term_is_deleted(nodes: Nodes) -> None:
    controller = await nodes.start(1)
    await nodes.settle()
    await controller._election.resign("", "a test says so")
    await nodes.settle()
    assert not controller.is_active

    nodes.ensemble.apply([Set(CONTROLLER, encode_controller(BrokerId(1), 1))])
    await nodes.settle()

    assert controller.is_active
    assert controller_epoch(nodes) == 2


async def test_a_kraft_controller_is_left_alone(nodes: Nodes) -> None:
    payload = b'{"version":2,"brokerid":3000,"timestamp":"0","kraftControllerEpoch":7}'
    nodes.ensemble.apply([Create(CONTROLLER, payload)])

    controller = await nodes.start(1)
    await nodes.settle()

    assert not controller.is_active
    assert nodes.ensemble.nodes[CONTROLLER].data == payload


async def test_another_node_becomes_controller_when_an_operator_deletes_the_znode(nodes: Nodes) -> None:
    await nodes.start(1)
    await nodes.settle()

    nodes.ensemble.apply([Delete(CONTROLLER)])
    await nodes.settle()

    assert nodes.active == [1]
    assert controller_epoch(nodes) == 2


class Reluctant:
    """Refuses to register broker 1 as long as `refuses` says so."""

    def __init__(self, nodes: Nodes, refuses: Callable[[], bool]) -> None:
        self._registrar = nodes.registrars[1]
        self._refuses = refuses
        nodes.registrars[1] = self  # type: ignore[assignment]

    async def register(self, client: ZooKeeperClient, now_ms: int) -> int:
        if self._refuses():
            raise BrokerIdTaken("someone else")
        return await self._registrar.register(client, now_ms)


async def test_a_refused_registration_is_tried_again(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klamm.controller.controller.MIN_RETRY_BACKOFF_S", 0)
    await nodes.start(1)
    await nodes.settle()
    refusals = iter((True, True, False))
    Reluctant(nodes, lambda: next(refusals))

    await nodes.expire(1)
    await nodes.eventually(lambda: "/brokers/ids/1" in nodes.ensemble.nodes and nodes.active == [1])

    assert not list(refusals)


async def test_a_retried_registration_leaves_a_term_that_began_meanwhile(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for a new session's, whose term has to be over."""
    monkeypatch.setattr("klamm.controller.controller.MIN_RETRY_BACKOFF_S", 0)
    controller = await nodes.start(1)
    await nodes.settle()
    is_refused = True
    Reluctant(nodes, lambda: is_refused)

    await nodes.expire(1)
    assert await controller.become_controller(epoch=1)
    is_refused = False
    await nodes.eventually(lambda: "/brokers/ids/1" in nodes.ensemble.nodes)
    await nodes.settle()

    assert (controller.is_active, controller_epoch(nodes)) == (True, 2)


LISTS = {
    BROKER_IDS: lambda nodes: nodes.start(2),
    TOPICS: lambda nodes: nodes.topic("b", [(1,)]),
    DELETE_TOPICS: lambda nodes: tell(nodes, DELETE_TOPICS + "/nope"),
    ISR_CHANGES: lambda nodes: tell(nodes, ISR_CHANGES + "/isr_change_0"),
    LOG_DIR_EVENTS: lambda nodes: tell(nodes, LOG_DIR_EVENTS + "/log_dir_event_0"),
    REASSIGN_PARTITIONS: lambda nodes: tell(nodes, REASSIGN_PARTITIONS),
    PREFERRED_ELECTION: lambda nodes: tell(nodes, PREFERRED_ELECTION),
}
"""What the controller watches, and how it changes."""


async def tell(nodes: Nodes, path: str) -> None:
    nodes.ensemble.apply([Create(path)])
    await nodes.settle()


@pytest.mark.parametrize("path", LISTS)
async def test_what_may_not_be_read_for_a_while_is_looked_at_again(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """The watch is spent by then, and the read that was refused set none."""
    monkeypatch.setattr("klamm.controller.controller.MIN_RETRY_BACKOFF_S", 0.001)
    await nodes.start(1)
    await nodes.settle()
    nodes.ensemble.unreadable.add(path)

    await LISTS[path](nodes)
    await nodes.eventually(lambda: bool(nodes.journal(1, "failed")))
    nodes.ensemble.unreadable.clear()
    failed = len(nodes.journal(1, "failed"))
    kind = nodes.journal(1, "failed")[0].facts["what"]

    await nodes.eventually(lambda: sum(e.facts["event"] == kind for e in nodes.journal(1, "done")) > failed)
    await nodes.eventually(lambda: path in nodes.clients[1].child_watches | nodes.clients[1].data_watches)


def led_by_order(nodes: Nodes) -> set[int]:
    """Partitions of which node 1 was told since the last time."""
    topics = [t for r in nodes.receivers[1].take("LeaderAndIsr") for t in r.topic_states]
    return {state.partition_index for topic in topics for state in topic.partition_states}


async def test_what_zookeeper_took_before_it_failed_is_told_and_the_rest_is_tried_again(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory has it, and the next attempt finds nothing to elect there: nobody would ever tell."""
    monkeypatch.setattr("klamm.controller.handlers.partitions.WRITE_PARTITIONS", 1)
    monkeypatch.setattr("klamm.controller.controller.MIN_RETRY_BACKOFF_S", 0.001)
    await nodes.start(1)
    await nodes.settle()

    def refuse(ops: Sequence[Op]) -> None:
        if any(op.path == "/brokers/topics/a/partitions/1/state" for op in ops):
            raise MalformedReply("garbled")

    nodes.ensemble.before_multi = refuse
    await nodes.topic("a", [(1,), (1,)])
    assert nodes.journal(1, "failed")
    assert led_by_order(nodes) == {0}

    nodes.ensemble.before_multi = lambda ops: None
    await nodes.eventually(lambda: "/brokers/topics/a/partitions/1/state" in nodes.ensemble.nodes)
    await nodes.settle()
    assert 1 in led_by_order(nodes)


async def test_what_fails_again_and_again_waits_for_longer_each_time(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = await nodes.start(1)
    await nodes.settle()
    pauses: list[float] = []
    monkeypatch.setattr(
        controller._timers, "after", lambda name, s, event: isinstance(event, events.TopicChange) and pauses.append(s)
    )
    nodes.ensemble.unreadable.add(TOPICS)

    async def look() -> None:
        controller.on_watch(WatchEvent(EventType.CHILDREN_CHANGED, TOPICS))
        await nodes.settle()

    for _ in range(6):
        await look()
    nodes.ensemble.unreadable.clear()
    await look()
    nodes.ensemble.unreadable.add(TOPICS)
    await look()

    assert pauses == [1, 2, 4, 8, 16, 16, 1]


async def test_many_failures_in_one_second_are_one_step_of_that(nodes: Nodes) -> None:
    controller = await nodes.start(1)
    await nodes.settle()
    nodes.ensemble.unreadable.update((TOPICS, DELETE_TOPICS))
    for _ in range(3):
        for path in (TOPICS, DELETE_TOPICS):
            controller.on_watch(WatchEvent(EventType.CHILDREN_CHANGED, path))
        await nodes.settle()

    retried = (events.TopicChange, events.TopicDeletion, events.ResumeAfterFailure)
    assert controller._retry_backoffs_s == {event().retry_key: 1 for event in retried}


async def test_a_node_that_may_not_read_who_is_controller_for_a_while_looks_again(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("klamm.controller.controller.MIN_RETRY_BACKOFF_S", 0.001)
    controller = await nodes.start(1)
    await nodes.settle()
    nodes.ensemble.unreadable.add(CONTROLLER)

    nodes.ensemble.apply([Delete(CONTROLLER)])
    await nodes.eventually(lambda: bool(nodes.journal(1, "failed")))
    nodes.ensemble.unreadable.clear()

    await nodes.eventually(lambda: controller.is_active and controller.epoch == 2)


async def test_an_epoch_that_nobody_can_read_is_looked_at_until_it_is_put_right(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody was elected, so nothing comes or goes that a watch could tell of."""
    monkeypatch.setattr("klamm.controller.controller.MIN_RETRY_BACKOFF_S", 0.001)
    monkeypatch.setattr("klamm.controller.controller_election.PAUSE_AFTER_FAILURE_S", 0)
    controller = await nodes.start(1)
    await nodes.settle()

    nodes.ensemble.apply([Set(CONTROLLER_EPOCH, b"rubbish"), Delete(CONTROLLER)])
    await nodes.eventually(lambda: bool(nodes.journal(1, "failed")))
    assert not controller.is_active
    nodes.ensemble.apply([Set(CONTROLLER_EPOCH, b"7")])

    await nodes.eventually(lambda: controller.is_active and controller.epoch == 8)


async def test_requests_of_old_tools_that_nobody_can_read_are_refused_aloud_again_and_again(nodes: Nodes) -> None:
    controller = await nodes.start(1)
    await nodes.settle()

    for act in (
        Create(REASSIGN_PARTITIONS),
        Create(PREFERRED_ELECTION),
        Create(REASSIGN_PARTITIONS),
        Create(PREFERRED_ELECTION),
    ):
        nodes.ensemble.apply([act])
        await nodes.settle()

    refused = [r.facts["what"] for r in nodes.journal(1, "refused")]
    assert refused == [REASSIGN_PARTITIONS, PREFERRED_ELECTION] * 2
    assert controller.is_active


def test_every_event_of_a_term_has_a_handler() -> None:
    who_is_controller = {
        events.Startup,
        events.ControllerChange,
        events.Reelect,
        events.BecomeController,
        events.RegisterBrokerAndReelect,
        events.Expire,
        events.ShutdownEventThread,
    }
    kinds = {k for k in vars(events).values() if isinstance(k, type) and issubclass(k, events.Event)}

    assert HANDLERS.keys() == kinds - who_is_controller - {events.Event, events.Answered}


async def test_producer_ids_go_to_registered_brokers_with_the_right_epoch(nodes: Nodes) -> None:
    controller = await nodes.start(1)
    await nodes.settle()
    epoch = nodes.ensemble.nodes["/brokers/ids/1"].czxid

    assert await controller.allocate_producer_ids(BrokerId(1), epoch) == (ErrorCode.NONE, 0, 1_000)
    assert await controller.allocate_producer_ids(BrokerId(1), epoch) == (ErrorCode.NONE, 1_000, 1_000)
    assert (await controller.allocate_producer_ids(BrokerId(1), epoch + 1)).error is ErrorCode.STALE_BROKER_EPOCH
    assert (await controller.allocate_producer_ids(BrokerId(9), epoch)).error is ErrorCode.BROKER_ID_NOT_REGISTERED


async def test_a_session_that_expires_while_becoming_controller_leaves_no_term(nodes: Nodes) -> None:
    controller = await nodes.start(1)
    nodes.ensemble.before_multi = lambda ops: nodes.ensemble.expire(nodes.clients[1]) if controller.is_active else None
    nodes.ensemble.apply([Create("/isr_change_notification/isr_change_", sequential=True)])
    await nodes.eventually(lambda: bool(nodes.journal(1, "failed")))
    nodes.ensemble.before_multi = lambda ops: None
    await nodes.settle()

    assert not controller.is_active
    await controller.session_expired()


async def test_a_failed_failover_deletes_the_controller_znode(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = [True]

    async def broken(term: object) -> None:
        if failing.pop():
            failing.append(False)
            raise MalformedZnode("/feature", "rubbish")

    monkeypatch.setattr("klamm.controller.controller_election.on_controller_failover", broken)
    monkeypatch.setattr("klamm.controller.controller_election.PAUSE_AFTER_FAILURE_S", 0)
    await nodes.start(1)
    await nodes.settle()

    assert nodes.active == [1]
    assert controller_epoch(nodes) == 2
    assert "/feature" in nodes.journal(1, "failed")[0].facts["why"]


async def test_an_unclean_election_is_asked_for_by_configs(nodes: Nodes) -> None:
    controller = await nodes.start(1)
    await nodes.settle()

    controller.unclean_election_enabled()
    controller.unclean_election_enabled("a")
    await nodes.settle()

    seen = [e.facts["event"] for e in nodes.journal(1, "event")]
    assert seen[-2:] == ["UncleanLeaderElectionEnable", "TopicUncleanLeaderElectionEnable"]
    assert controller.epoch == 1


async def test_a_stop_does_not_wait_for_a_zookeeper_that_is_gone(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klamm.controller.controller.STOP_PATIENCE_S", 0)
    controller = await nodes.start(1)
    await nodes.settle()

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    nodes.clients[1].children = never  # type: ignore[method-assign, assignment]
    nodes.ensemble.apply([Create("/brokers/topics/a", b"{}")])
    for _ in range(20):
        await asyncio.sleep(0)
    await nodes.stop(1)

    assert not controller.is_active


async def test_watches_that_are_not_the_controllers_are_ignored(nodes: Nodes) -> None:
    controller = await nodes.start(1)
    await nodes.settle()

    for event in (
        WatchEvent(EventType.CHILDREN_CHANGED, "/config/changes"),
        WatchEvent(EventType.CREATED, "/brokers/topics/a/partitions/0/state"),
        WatchEvent(EventType.CREATED, "/brokers/ids/1"),
    ):
        controller.on_watch(event)

    assert controller.queue_size == 0


async def test_an_unexpected_error_in_a_handler_ends_the_term(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    await nodes.start(1)
    await nodes.settle()
    await nodes.topic("a", [(1,)])

    async def mistaken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("klamm.controller.handlers.topics.load_topics", mistaken)
    monkeypatch.setattr("klamm.controller.handlers.failover.load_topics", lambda *a: _nothing())
    await nodes.topic("b", [(1,)])

    assert nodes.active == [1]
    assert controller_epoch(nodes) == 2
    assert "ZeroDivisionError" in nodes.journal(1, "failed")[0].facts["why"]


async def test_an_unexpected_error_while_resigning_does_not_end_the_event_loop(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    await nodes.start(1)
    await nodes.settle()

    async def mistaken(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr("klamm.controller.handlers.topics.load_topics", mistaken)
        broken.setattr("klamm.controller.controller_election.ControllerElection.move", mistaken)
        await nodes.topic("a", [(1,)])
    handled = len(nodes.journal(1, "done"))
    await nodes.topic("b", [(1,)])

    assert len(nodes.journal(1, "done")) > handled


async def test_a_node_becomes_controller_on_request_and_the_former_one_resigns(nodes: Nodes) -> None:
    for number in (1, 2, 3):
        await nodes.start(number)
    await nodes.settle()
    [first] = nodes.active
    wanted = next(n for n in (1, 2, 3) if n != first)

    assert not await nodes.controllers[wanted].become_controller(epoch=7)
    assert nodes.active == [first]
    assert await nodes.controllers[wanted].become_controller(epoch=1)
    await nodes.settle()

    assert nodes.active == [wanted]
    assert controller_epoch(nodes) == 2
    assert f"broker {wanted} is controller now" in nodes.journal(first, "resigned")[0].facts["why"]
    assert await nodes.controllers[wanted].become_controller(epoch=1)
    assert controller_epoch(nodes) == 2


async def test_who_waits_for_features_to_be_seen_keeps_no_event_waiting(nodes: Nodes) -> None:
    seen: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def wait(epoch: int, timeout_s: float) -> bool:
        return await seen if epoch > 0 else True

    controller = await nodes.start(1, wait_for_features=wait)
    await nodes.settle()
    nodes.ensemble.apply([Set("/feature", b'{"version":2,"status":1,"features":{"f":{"max_version_level":3}}}')])
    update = controller.update_features([FeatureUpdate("f", 0, UpgradeType.SAFE_DOWNGRADE)], 1.0, validate_only=False)
    asked = asyncio.create_task(update)
    await nodes.settle()
    await nodes.topic("a", [(1,)])

    assert nodes.ensemble.nodes["/brokers/topics/a/partitions/0/state"].data
    assert not asked.done()
    seen.set_result(False)
    assert {f: error for f, (error, _) in (await asked).results.items()} == {"f": ErrorCode.FEATURE_UPDATE_FAILED}


async def _nothing() -> list[object]:
    return []
