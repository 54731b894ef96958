"""Events that failed in ZooKeeper, and znodes that could not be read, are retried with growing backoff."""

from collections.abc import Awaitable, Callable, Sequence

import pytest
from tests.support.controller_nodes import Nodes

from klamm.controller import events
from klamm.model.ids import parse_topic_partition
from klamm.zk.errors import MalformedReply, SessionExpired
from klamm.zk.operations import Create, Delete, Op, Set
from klamm.zk.port import ZooKeeperClient
from klamm.zk.registrar import BrokerIdTaken
from klamm.zk.store import Store
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
    state_path,
)


class Reluctant:
    """A registration of broker 1 that fails as long as `refuses` returns true."""

    def __init__(self, nodes: Nodes, refuses: Callable[[], bool]) -> None:
        self._registrar = nodes.registrars[1]
        self._refuses = refuses
        nodes.registrars[1] = self  # type: ignore[assignment]

    async def register(self, client: ZooKeeperClient, now_ms: int) -> int:
        if self._refuses():
            raise BrokerIdTaken("someone else")
        return await self._registrar.register(client, now_ms)


async def test_a_refused_broker_registration_is_retried(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klamm.controller.controller.MIN_RETRY_BACKOFF_S", 0)
    await nodes.start(1)
    await nodes.settle()
    refusals = iter((True, True, False))
    Reluctant(nodes, lambda: next(refusals))

    await nodes.expire(1)
    await nodes.eventually(lambda: "/brokers/ids/1" in nodes.ensemble.nodes and nodes.active == [1])

    assert not list(refusals)


async def test_a_retried_broker_registration_does_not_end_a_controller_term_that_began_meanwhile(
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

    assert (controller.is_active, nodes.controller_epoch) == (True, 2)


LISTS: dict[str, Callable[[Nodes], Awaitable[object]]] = {
    BROKER_IDS: lambda nodes: tell(nodes, BROKER_IDS + "/2"),
    TOPICS: lambda nodes: nodes.topic("b", [(1,)]),
    DELETE_TOPICS: lambda nodes: tell(nodes, DELETE_TOPICS + "/nope"),
    ISR_CHANGES: lambda nodes: tell(nodes, ISR_CHANGES + "/isr_change_0"),
    LOG_DIR_EVENTS: lambda nodes: tell(nodes, LOG_DIR_EVENTS + "/log_dir_event_0"),
    REASSIGN_PARTITIONS: lambda nodes: tell(nodes, REASSIGN_PARTITIONS),
    PREFERRED_ELECTION: lambda nodes: tell(nodes, PREFERRED_ELECTION),
}
"""What the controller watches, and how it changes."""


async def tell(nodes: Nodes, path: str) -> None:
    """Create a znode at this path, below a list that the controller watches."""
    nodes.ensemble.apply([Create(path)])
    await nodes.settle()


@pytest.mark.parametrize("path", LISTS)
async def test_the_controller_reads_a_znode_again_after_a_failed_read(
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
    """The partitions in LeaderAndIsr requests to node 1 since the last call."""
    topics = [t for r in nodes.receivers[1].take("LeaderAndIsr") for t in r.topic_states]
    return {state.partition_index for topic in topics for state in topic.partition_states}


async def test_partition_states_written_before_a_zookeeper_failure_are_sent_and_the_rest_retried(
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


async def test_a_controller_whose_session_expires_in_an_event_sends_no_partition_states(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it would send may be out of date: nobody knows whether ZooKeeper took the write without an answer."""
    monkeypatch.setattr("klamm.controller.handlers.partitions.WRITE_PARTITIONS", 1)
    await nodes.start(1)
    await nodes.settle()

    def expire(ops: Sequence[Op]) -> None:
        if any(op.path == "/brokers/topics/a/partitions/1/state" for op in ops):
            nodes.ensemble.expire(nodes.clients[1])
            raise SessionExpired("")

    nodes.ensemble.before_multi = expire
    await nodes.topic("a", [(1,), (1,)])

    assert nodes.journal(1, "failed")
    assert "/brokers/topics/a/partitions/0/state" in nodes.ensemble.nodes
    assert led_by_order(nodes) == set()


async def test_repeated_failures_of_a_controller_event_increase_its_retry_backoff(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = await nodes.start(1)
    await nodes.settle()
    pauses: list[float] = []

    def keep_pause(name: str, seconds: float, event: events.Event) -> None:
        if isinstance(event, events.TopicChange):
            pauses.append(seconds)

    monkeypatch.setattr(controller._timers, "after", keep_pause)
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


async def test_many_failures_of_a_controller_event_within_one_second_increase_its_backoff_once(nodes: Nodes) -> None:
    controller = await nodes.start(1)
    await nodes.settle()
    nodes.ensemble.unreadable.update((TOPICS, DELETE_TOPICS))
    for _ in range(3):
        for path in (TOPICS, DELETE_TOPICS):
            controller.on_watch(WatchEvent(EventType.CHILDREN_CHANGED, path))
        await nodes.settle()

    retried = (events.TopicChange, events.TopicDeletion, events.ResumeAfterFailure)
    assert controller._retry_backoffs_s == {event().retry_key: 1 for event in retried}


async def test_reading_the_controller_znode_is_retried_after_zookeeper_refused_the_read(
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


async def test_the_controller_election_is_retried_until_a_malformed_controller_epoch_is_repaired(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody was elected, so nothing comes or goes that a watch could tell of."""
    monkeypatch.setattr("klamm.controller.controller.MIN_RETRY_BACKOFF_S", 0.001)
    monkeypatch.setattr("klamm.controller.controller_election.ELECTION_BACKOFF_S", 0)
    controller = await nodes.start(1)
    await nodes.settle()

    nodes.ensemble.apply([Set(CONTROLLER_EPOCH, b"rubbish"), Delete(CONTROLLER)])
    await nodes.eventually(lambda: bool(nodes.journal(1, "failed")))
    assert not controller.is_active
    nodes.ensemble.apply([Set(CONTROLLER_EPOCH, b"7")])

    await nodes.eventually(lambda: controller.is_active and controller.epoch == 8)


async def test_unreadable_admin_request_znodes_are_journalled_at_each_retry(nodes: Nodes) -> None:
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


@pytest.mark.parametrize("path", [REASSIGN_PARTITIONS, PREFERRED_ELECTION])
async def test_a_request_list_that_an_acl_hides_does_not_fail_a_failover_and_is_read_again(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr("klamm.controller.controller.MIN_RETRY_BACKOFF_S", 0.001)
    await Store(nodes.ensemble.client()).create_top_level_paths()
    await nodes.ensemble.client().ensure_path(path)
    nodes.ensemble.unreadable.add(path)

    await nodes.start(1)
    await nodes.eventually(lambda: bool(nodes.journal(1, "ready") or nodes.journal(1, "resigned")))
    assert path in [r.facts["what"] for r in nodes.journal(1, "refused")]
    assert nodes.controller_epoch == 1

    nodes.ensemble.unreadable.clear()
    await nodes.eventually(lambda: path not in nodes.ensemble.nodes)


async def test_a_new_topic_that_an_acl_hides_is_read_again(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klamm.controller.controller.MIN_RETRY_BACKOFF_S", 0.001)
    await nodes.start(1)
    await nodes.settle()
    nodes.ensemble.unreadable.add(f"{TOPICS}/a")
    nodes.ensemble.apply([Create(f"{TOPICS}/a", b'{"version":1,"partitions":{"0":[1]}}')])
    await nodes.eventually(lambda: bool(nodes.journal(1, "refused")))

    nodes.ensemble.unreadable.clear()
    await nodes.eventually(lambda: state_path(parse_topic_partition("a-0")) in nodes.ensemble.nodes)

    assert [r.facts["topic"] for r in nodes.journal(1, "refused")] == ["a"]


async def test_a_new_topic_that_an_acl_hides_is_deleted_as_requested_once_it_can_be_read(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("klamm.controller.controller.MIN_RETRY_BACKOFF_S", 0.001)
    await nodes.start(1)
    await nodes.settle()
    nodes.ensemble.unreadable.add(f"{TOPICS}/a")
    topic = Create(f"{TOPICS}/a", b'{"version":1,"partitions":{"0":[1]}}')
    nodes.ensemble.apply([topic, Create(f"{DELETE_TOPICS}/a")])
    await nodes.eventually(lambda: "topic deletion" in [r.facts["what"] for r in nodes.journal(1, "refused")])

    nodes.ensemble.unreadable.clear()

    await nodes.eventually(lambda: "begins" in [r.facts["step"] for r in nodes.journal(1, "deletion")])
