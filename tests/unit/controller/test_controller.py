"""Controller elections, expired sessions, resignations, and answers to all callers."""

import asyncio
import gc
import uuid
import weakref

import pytest
from tests.support.controller_nodes import Nodes
from tests.support.waiting import settle

from klamm.controller import events
from klamm.controller.controller import HANDLERS
from klamm.controller.decisions.features import FeatureUpdate, UpgradeType
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.wire.messages import AlterPartitionRequest
from klamm.zk.election import ControllerEpoch
from klamm.zk.fenced import ControllerMoved
from klamm.zk.operations import Create, Delete, Set
from klamm.zk.store import Store
from klamm.zk.watches import EventType, WatchEvent
from klamm.zk.znodes import (
    CONTROLLER,
    MalformedZnode,
    delete_topic_path,
    encode_controller,
)


async def test_exactly_one_of_three_nodes_started_at_once_becomes_controller(nodes: Nodes) -> None:
    for number in (1, 2, 3):
        await nodes.start(number)
    await nodes.settle()

    assert len(nodes.active) == 1
    assert nodes.controller_epoch == 1


async def test_another_node_becomes_controller_when_the_controller_stops(nodes: Nodes) -> None:
    for number in (1, 2):
        await nodes.start(number)
    await nodes.settle()
    [first] = nodes.active

    await nodes.stop(first)
    await nodes.settle()

    [second] = nodes.active
    assert second != first
    assert nodes.controller_epoch == 2
    [term] = nodes.journal(second, "ready")
    assert (term.controller_epoch, term.facts["brokers"]) == (2, [second])


class Kept:
    """Something that a term keeps in memory."""


async def test_a_controller_whose_term_has_ended_keeps_nothing_of_it_in_memory(nodes: Nodes) -> None:
    """Also without a collection of cycles: full ones are rare where few objects are created."""
    await nodes.start(1)
    await nodes.start(2)
    await nodes.settle()
    await nodes.topic("a", [(1, 2), (2, 1)])
    term = nodes.controllers[nodes.active[0]].term
    assert term is not None
    topic = term.context.topics["a"]
    kept = Kept()
    reference = weakref.ref(kept)
    term.context.gone_since[BrokerId(9)] = kept  # type: ignore[assignment]
    gc.collect()
    gc.disable()
    try:
        del kept, term
        await nodes.expire(nodes.active[0])

        await nodes.eventually(lambda: not topic.partitions)
        await nodes.eventually(lambda: reference() is None)
    finally:
        gc.enable()


async def test_an_expired_zookeeper_session_ends_the_controllers_term_and_the_broker_registers_again(
    nodes: Nodes,
) -> None:
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


async def test_requests_queued_at_the_controller_get_not_controller_when_its_session_expires(nodes: Nodes) -> None:
    controller = await nodes.start(1)
    await nodes.settle()
    async with asyncio.TaskGroup() as tasks:
        alter = tasks.create_task(controller.alter_partition(AlterPartitionRequest(broker_id=1), 3))
        ids = tasks.create_task(controller.allocate_producer_ids(BrokerId(1), 1))
        shutdown = tasks.create_task(controller.controlled_shutdown(BrokerId(1), 1))
        await asyncio.sleep(0)
        await nodes.expire(1)

    # the first may have been in work already
    assert ErrorCode.NOT_CONTROLLER in (alter.result().error_code, ids.result().error)
    assert ids.result().error is ErrorCode.NOT_CONTROLLER
    assert shutdown.result().error is ErrorCode.STALE_CONTROLLER_EPOCH


async def test_only_the_active_controller_knows_topics_queued_for_deletion(nodes: Nodes) -> None:
    controller, other = await nodes.start(1), await nodes.start(2)
    await nodes.settle()
    await nodes.topic("a", [[1, 2]])
    await nodes.topic("b", [[1, 2]])
    nodes.ensemble.apply([Create(delete_topic_path("a"))])
    nodes.receivers[2].refuses_connections = True
    await nodes.expire(2)

    await nodes.eventually(lambda: controller.is_queued_for_deletion("a"))

    assert not controller.is_queued_for_deletion("b")
    assert not other.is_queued_for_deletion("a")


async def test_only_the_active_controller_knows_the_names_of_topic_ids(nodes: Nodes) -> None:
    controller, other = await nodes.start(1), await nodes.start(2)
    await nodes.settle()
    await nodes.topic("a", [[1, 2]])
    assert controller.term is not None
    topic_id = controller.term.context.topics["a"].id
    assert topic_id is not None

    assert controller.topic_name(topic_id) == "a"
    assert controller.topic_name(uuid.UUID(int=77)) is None
    assert other.topic_name(topic_id) is None


async def test_requests_to_a_broker_that_is_not_controller_get_not_controller(nodes: Nodes) -> None:
    await nodes.start(1)
    await nodes.settle()
    inactive = await nodes.start(2)
    await nodes.settle()

    assert (await inactive.alter_partition(AlterPartitionRequest(), 3)).error_code == ErrorCode.NOT_CONTROLLER
    assert (await inactive.allocate_producer_ids(BrokerId(2), 1)).error is ErrorCode.NOT_CONTROLLER
    assert (await inactive.controlled_shutdown(BrokerId(2), 1)).error is ErrorCode.STALE_CONTROLLER_EPOCH


async def test_requests_to_a_stopped_controller_are_refused(nodes: Nodes) -> None:
    controller = await nodes.start(1)
    await nodes.settle()
    await nodes.stop(1)

    assert (await controller.allocate_producer_ids(BrokerId(1), 1)).error is ErrorCode.NOT_CONTROLLER


async def test_a_controller_znode_of_a_nodes_earlier_session_does_not_make_that_node_controller(nodes: Nodes) -> None:
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


async def test_a_node_deletes_a_controller_znode_of_its_session_if_its_term_never_began(nodes: Nodes) -> None:
    controller = await nodes.start(1)
    await nodes.settle()
    await controller._election.resign("", "a test says so")
    await nodes.settle()
    assert not controller.is_active

    nodes.ensemble.apply([Set(CONTROLLER, encode_controller(BrokerId(1), 1))])
    await nodes.settle()

    assert controller.is_active
    assert nodes.controller_epoch == 2


async def test_a_controller_znode_written_by_a_kraft_controller_is_not_replaced(nodes: Nodes) -> None:
    payload = b'{"version":2,"brokerid":3000,"timestamp":"0","kraftControllerEpoch":7}'
    nodes.ensemble.apply([Create(CONTROLLER, payload)])

    controller = await nodes.start(1)
    await nodes.settle()

    assert not controller.is_active
    assert nodes.ensemble.nodes[CONTROLLER].data == payload


async def test_another_node_becomes_controller_when_an_operator_deletes_the_controller_znode(nodes: Nodes) -> None:
    await nodes.start(1)
    await nodes.settle()

    nodes.ensemble.apply([Delete(CONTROLLER)])
    await nodes.settle()

    assert nodes.active == [1]
    assert nodes.controller_epoch == 2


def test_every_event_of_an_active_controller_has_a_handler() -> None:
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


async def test_producer_id_blocks_are_allocated_only_to_brokers_with_their_current_epoch(nodes: Nodes) -> None:
    controller = await nodes.start(1)
    await nodes.settle()
    epoch = nodes.ensemble.nodes["/brokers/ids/1"].czxid

    assert await controller.allocate_producer_ids(BrokerId(1), epoch) == (ErrorCode.NONE, 0, 1_000)
    assert await controller.allocate_producer_ids(BrokerId(1), epoch) == (ErrorCode.NONE, 1_000, 1_000)
    assert (await controller.allocate_producer_ids(BrokerId(1), epoch + 1)).error is ErrorCode.STALE_BROKER_EPOCH
    assert (await controller.allocate_producer_ids(BrokerId(9), epoch)).error is ErrorCode.BROKER_ID_NOT_REGISTERED


async def test_a_session_expiry_while_becoming_controller_leaves_the_node_without_a_term(nodes: Nodes) -> None:
    controller = await nodes.start(1)
    nodes.ensemble.before_multi = lambda ops: nodes.ensemble.expire(nodes.clients[1]) if controller.is_active else None
    nodes.ensemble.apply([Create("/isr_change_notification/isr_change_", sequential=True)])
    await nodes.eventually(lambda: bool(nodes.journal(1, "failed")))
    nodes.ensemble.before_multi = lambda ops: None
    await nodes.settle()

    assert not controller.is_active
    await controller.session_expired()


async def test_a_failed_controller_failover_deletes_the_controller_znode(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = [True]

    async def broken(term: object) -> None:
        if failing.pop():
            failing.append(False)
            raise MalformedZnode("/feature", "rubbish")

    monkeypatch.setattr("klamm.controller.controller_election.on_controller_failover", broken)
    monkeypatch.setattr("klamm.controller.controller_election.ELECTION_BACKOFF_S", 0)
    await nodes.start(1)
    await nodes.settle()

    assert nodes.active == [1]
    assert nodes.controller_epoch == 2
    assert "/feature" in nodes.journal(1, "failed")[0].facts["why"]


async def test_enabling_unclean_leader_election_in_a_config_triggers_an_election(nodes: Nodes) -> None:
    controller = await nodes.start(1)
    await nodes.settle()

    controller.unclean_election_enabled()
    controller.unclean_election_enabled("a")
    await nodes.settle()

    seen = [e.facts["event"] for e in nodes.journal(1, "event")]
    assert seen[-2:] == ["UncleanLeaderElectionEnable", "TopicUncleanLeaderElectionEnable"]
    assert controller.epoch == 1


async def test_stopping_the_controller_does_not_wait_for_an_unreachable_zookeeper(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("klamm.controller.controller.STOP_TIMEOUT_S", 0)
    controller = await nodes.start(1)
    await nodes.settle()

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    nodes.clients[1].children = never  # type: ignore[method-assign, assignment]
    nodes.ensemble.apply([Create("/brokers/topics/a", b"{}")])
    await settle()
    await nodes.stop(1)

    assert not controller.is_active


async def test_the_controller_ignores_watch_events_on_paths_of_other_components(nodes: Nodes) -> None:
    controller = await nodes.start(1)
    await nodes.settle()

    for event in (
        WatchEvent(EventType.CHILDREN_CHANGED, "/config/changes"),
        WatchEvent(EventType.CREATED, "/brokers/topics/a/partitions/0/state"),
        WatchEvent(EventType.CREATED, "/brokers/ids/1"),
    ):
        controller.on_watch(event)

    assert controller.queue_size == 0


async def test_an_unexpected_error_in_an_event_handler_makes_the_controller_resign(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    await nodes.start(1)
    await nodes.settle()
    await nodes.topic("a", [(1,)])

    async def mistaken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("klamm.controller.handlers.topics.load_topics", mistaken)
    monkeypatch.setattr("klamm.controller.handlers.failover.load_topics", lambda *a: _nothing())
    await nodes.topic("b", [(1,)])

    assert nodes.active == [1]
    assert nodes.controller_epoch == 2
    assert "ZeroDivisionError" in nodes.journal(1, "failed")[0].facts["why"]


async def test_an_unexpected_error_on_a_node_that_is_not_controller_does_not_affect_the_controller(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    await nodes.start(1)
    await nodes.settle()
    other = await nodes.start(2)
    await nodes.settle()

    async def mistaken(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("klamm.controller.controller_election.ControllerElection.take_over", mistaken)
    assert await other.become_controller(1) is False
    await nodes.settle()

    assert (nodes.active, nodes.controller_epoch) == ([1], 1)
    assert not nodes.journal(2, "abandoned")


async def test_an_unexpected_error_during_the_controllers_resignation_does_not_stop_its_event_processing(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    await nodes.start(1)
    await nodes.settle()

    async def mistaken(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr("klamm.controller.handlers.topics.load_topics", mistaken)
        broken.setattr("klamm.controller.controller_election.ControllerElection.resign_and_delete_znode", mistaken)
        await nodes.topic("a", [(1,)])
    handled = len(nodes.journal(1, "done"))
    await nodes.topic("b", [(1,)])

    assert len(nodes.journal(1, "done")) > handled


async def test_a_node_becomes_controller_on_request_and_the_former_controller_resigns(nodes: Nodes) -> None:
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
    assert nodes.controller_epoch == 2
    assert f"broker {wanted} is controller now" in nodes.journal(first, "resigned")[0].facts["why"]
    assert await nodes.controllers[wanted].become_controller(epoch=1)
    assert nodes.controller_epoch == 2


async def test_waiting_for_finalized_features_does_not_block_other_controller_events(nodes: Nodes) -> None:
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


async def test_an_election_lost_to_a_controller_that_is_gone_already_is_repeated(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Created and deleted while this node was disconnected, `/controller` lets no watch fire."""
    monkeypatch.setattr("klamm.controller.controller.MIN_RETRY_BACKOFF_S", 0)
    register = Store.register_controller
    lost: list[str] = []

    async def lose_once(self: Store, broker: BrokerId, now_ms: int) -> ControllerEpoch:
        if not lost:
            lost.append("the first election")
            raise ControllerMoved("another controller was elected")
        return await register(self, broker, now_ms)

    monkeypatch.setattr(Store, "register_controller", lose_once)

    await nodes.start(1)
    await nodes.eventually(lambda: nodes.active == [1])

    assert lost
