"""A node that is not controller keeps a mirror for its election, and a new one after each term or loss."""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any

import pytest
from tests.support.controller_nodes import Nodes
from tests.support.memory_zookeeper import MemoryZooKeeper

from klamm.broker.assembly import is_standby
from klamm.config.node_config import parse_node_config
from klamm.controller import mirror as mirrors
from klamm.controller import standby as standbys
from klamm.controller.controller import Controller
from klamm.controller.decisions.standby import StandbyMode, keeps_mirror
from klamm.controller.mirror import Mirror, MirrorSession
from klamm.controller.observer import Observer
from klamm.controller.standby import Standby, StandbyPorts
from klamm.model.ids import BrokerId, TopicPartition
from klamm.zk.errors import ConnectionLoss, NoAuth
from klamm.zk.operations import Delete, Set
from klamm.zk.states import SessionState
from klamm.zk.znodes import decode_state, encode_controller, encode_state, state_path


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("START_DELAY_S", "RETRY_BACKOFF_S", "GIVE_WAY_S"):
        monkeypatch.setattr(standbys, name, 0)
    monkeypatch.setattr(mirrors, "PAUSE_S", 0)
    monkeypatch.setattr(mirrors, "FOLLOW_INTERVAL_S", 0)


class Pair:
    """Node 1 is controller, node 2 stands by."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.sessions: list[MemoryZooKeeper] = []
        self.is_chosen = True
        self.may_open = asyncio.Event()
        self.may_open.set()
        self.is_opening = False
        self.failures: list[Exception] = []
        self.errors: list[Exception] = []
        self.standby: Standby
        self.controller: Controller

    async def start(self) -> None:
        """Start both nodes, and wait until the mirror is read."""
        await self.nodes.start(1)
        await self.nodes.settle()
        await self.nodes.topic("a", [(1, 2), (2, 1)])
        observer = Observer()
        observer.on_unexpected_error = self.errors.append  # type: ignore[assignment, method-assign]
        ports = StandbyPorts(self._open, lambda: self.is_chosen)
        self.controller = await self.nodes.start(2, observer=observer, standby=ports)
        standby = self.controller.standby
        assert standby is not None
        self.standby = standby

    async def current(self) -> Mirror:
        """Wait until the mirror is read; return it."""
        await self.nodes.eventually(lambda: self.standby.is_current)
        assert self.standby.mirror is not None
        return self.standby.mirror

    async def _open(self) -> MirrorSession:
        if self.failures:
            raise self.failures.pop()
        self.is_opening = True
        await self.may_open.wait()
        self.sessions.append(self.nodes.ensemble.client())
        return self.sessions[-1]

    def elect_node_2(self) -> Awaitable[None]:
        """End the controller's process."""
        return self.nodes.stop(1)

    def lines(self, kind: str) -> list[Mapping[str, Any]]:
        """The facts of the journal lines of node 2 of this kind."""
        return [e.facts for e in self.nodes.journal(2, kind)]


@pytest.fixture
async def pair(nodes: Nodes) -> Pair:
    made = Pair(nodes)
    await made.start()
    return made


async def test_an_elected_standby_node_becomes_controller_from_its_mirror_of_zookeeper(pair: Pair) -> None:
    mirror = await pair.current()

    await pair.elect_node_2()
    await pair.nodes.settle()

    term = pair.controller.term
    assert term is not None
    assert term.context.topics is mirror.context.topics
    assert [(f["topic_count"], f["states_to_read"]) for f in pair.lines("warm")] == [(1, 0)]
    assert [(f["topic_count"], f["partition_count"]) for f in pair.lines("standby")] == [(1, 2)]
    assert pair.standby.mirror is None
    assert not pair.sessions[0].is_alive
    assert not pair.standby.losses


async def test_a_node_whose_controller_term_ended_loads_a_new_standby_mirror(pair: Pair) -> None:
    await pair.current()
    await pair.elect_node_2()
    await pair.nodes.settle()
    assert len(pair.sessions) == 1

    pair.nodes.ensemble.apply([Delete("/controller")])
    await pair.nodes.ensemble.client().create("/controller", encode_controller(BrokerId(9), 0), ephemeral=True)

    await pair.current()

    assert not pair.controller.is_active
    assert len(pair.sessions) == 2


async def test_an_elected_node_with_an_unfinished_standby_mirror_reads_everything_from_zookeeper(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirrors, "PAUSE_S", 3600)
    pair = Pair(nodes)
    await pair.start()
    await nodes.eventually(lambda: pair.standby.mirror is not None)

    await pair.elect_node_2()
    await nodes.settle()

    assert pair.controller.term is not None
    assert list(pair.controller.term.context.topics) == ["a"]
    assert not pair.lines("warm")
    assert "before everything was read" in pair.lines("standby")[-1]["lost"]


async def test_an_elected_node_whose_mirror_session_does_not_answer_reads_everything_from_zookeeper(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pair.current()
    monkeypatch.setattr(standbys, "TAKE_TIMEOUT_S", 0)

    async def never(path: str) -> None:
        await pair.nodes.ensemble.client().exists("/")
        await _forever()

    pair.sessions[0].sync = never  # type: ignore[method-assign]
    await pair.elect_node_2()
    await pair.nodes.eventually(lambda: bool(pair.lines("standby")[1:]))
    await pair.nodes.settle()

    assert pair.controller.term is not None
    assert list(pair.controller.term.context.topics) == ["a"]
    assert not pair.lines("warm")
    assert "did not arrive within" in pair.lines("standby")[-1]["lost"]


async def test_a_mirror_keeps_its_partitions_if_sync_is_slow_and_its_session_closes_during_the_election(
    pair: Pair,
) -> None:
    """The task that follows the mirror ends while the election waits for `sync`; it must not free what is taken."""
    mirror = await pair.current()
    session = pair.sessions[0]
    syncing, may_answer, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()
    sync, close = session.sync, session.close

    async def slow_sync(path: str) -> None:
        syncing.set()
        await may_answer.wait()
        await sync(path)

    async def slow_close() -> None:
        await close()
        closed.set()

    session.sync, session.close = slow_sync, slow_close  # type: ignore[method-assign]
    await pair.elect_node_2()
    await syncing.wait()
    await pair.nodes.settle()
    assert not closed.is_set(), "the election still needs the session"
    may_answer.set()
    await closed.wait()
    await pair.nodes.settle()

    term = pair.controller.term
    assert term is not None
    assert term.context.topics is mirror.context.topics
    assert [len(t.partitions) for t in term.context.topics.values()] == [2]
    assert [(f["topic_count"], f["states_to_read"]) for f in pair.lines("warm")] == [(1, 0)]


async def test_a_standby_mirror_that_became_invalid_is_loaded_again(pair: Pair) -> None:
    first = await pair.current()

    pair.sessions[0].on_state(SessionState.DISCONNECTED)
    await pair.nodes.eventually(lambda: pair.standby.mirror is not first and pair.standby.is_current)

    assert pair.standby.losses == 1
    assert not pair.sessions[0].is_alive
    assert pair.sessions[1].is_alive
    assert [f.get("lost") for f in pair.lines("standby")] == [None, "the ZooKeeper session is disconnected", None]


async def test_a_standby_mirror_whose_session_moves_to_another_server_during_its_first_read_is_read_anew(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_read = asyncio.Event()
    read_again = Mirror._read_again

    async def slow(self: Mirror, *args: Any) -> None:
        await may_read.wait()
        await read_again(self, *args)

    monkeypatch.setattr(Mirror, "_read_again", slow)
    pair = Pair(nodes)
    await pair.start()
    await nodes.eventually(lambda: bool(pair.sessions))
    await nodes.settle()

    pair.sessions[0].on_state(SessionState.DISCONNECTED)
    pair.sessions[0].on_state(SessionState.CONNECTED)
    may_read.set()
    await pair.current()

    assert len(pair.sessions) == 2
    assert not pair.sessions[0].is_alive
    assert [f.get("lost") for f in pair.lines("standby")] == ["the ZooKeeper session is disconnected", None]


async def test_the_metrics_of_a_standby_show_what_it_has_read_and_how_far_it_is_behind(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = await pair.current()
    monkeypatch.setattr(mirrors, "FOLLOW_INTERVAL_S", 3600)
    now = asyncio.get_running_loop().time()
    mirror._changed |= {"/brokers/topics/b": now - 2.5, "/brokers/topics/c": now - 1}
    readings = {
        r.name.removeprefix("klamm_controller_standby_"): r.value for r in standbys.standby_readings(pair.standby)
    }

    assert (readings["current"], readings["partitions"], readings["changed_znodes"]) == (1, 2, 2)
    assert isinstance(lag_ms := readings["lag_ms"], int)
    assert 2_500 <= lag_ms < 100_000


async def test_opening_the_zookeeper_session_of_a_standby_mirror_is_retried(nodes: Nodes) -> None:
    pair = Pair(nodes)
    pair.failures = [ConnectionLoss("", "no server"), ConnectionLoss("", "no quorum"), ConnectionLoss("", "no quorum")]
    await pair.start()

    await pair.current()

    assert [f.get("lost") for f in pair.lines("standby")] == ["no quorum", "no server", None]


async def test_the_loss_of_a_standby_mirror_is_journalled_again_after_another_mirror_was_complete(pair: Pair) -> None:
    for _ in range(2):
        (await pair.current()).lose("the same reason")
        await pair.nodes.eventually(lambda: not pair.standby.is_current)
    await pair.current()

    assert [f.get("lost") for f in pair.lines("standby")] == [None, "the same reason", None, "the same reason", None]


async def test_an_acl_that_forbids_the_watch_is_journalled_once_although_the_node_tries_again(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = 0

    async def refuse(self: object, path: str) -> None:
        nonlocal refusals
        refusals += 1
        raise NoAuth(path)

    monkeypatch.setattr(MemoryZooKeeper, "watch_subtree", refuse)
    pair = Pair(nodes)
    await pair.start()

    await nodes.eventually(lambda: refusals > 2)
    await pair.elect_node_2()
    await nodes.settle()

    assert len(pair.lines("standby")) == 1
    assert "ACL forbids it" in pair.lines("standby")[0]["lost"]
    assert pair.controller.is_active


async def test_an_elected_node_begins_no_mirror_if_its_session_for_one_opens_during_the_term(nodes: Nodes) -> None:
    """As after an outage of ZooKeeper: sessions of mirrors are opened again while a controller is elected."""
    pair = Pair(nodes)
    pair.may_open.clear()
    await pair.start()
    await nodes.eventually(lambda: pair.is_opening)
    await pair.elect_node_2()
    await nodes.settle()
    assert pair.controller.is_active

    pair.may_open.set()
    await nodes.settle()

    assert pair.standby.mirror is None
    assert not pair.standby.reads
    assert [session.is_alive for session in pair.sessions] == [False]

    pair.nodes.ensemble.apply([Delete("/controller")])
    await pair.nodes.ensemble.client().create("/controller", encode_controller(BrokerId(9), 0), ephemeral=True)

    await pair.current()


async def test_a_standby_waits_before_retrying_a_zookeeper_server_without_persistent_watches(nodes: Nodes) -> None:
    pair = Pair(nodes)
    nodes.ensemble.refuses_subtree_watches = True
    await pair.start()
    await nodes.eventually(lambda: bool(pair.lines("standby")))
    await nodes.settle()

    assert [f["lost"] for f in pair.lines("standby")] == ["ZooKeeper servers before 3.6 have no persistent watches"]
    await pair.elect_node_2()
    await nodes.settle()
    assert pair.controller.is_active


async def test_an_unexpected_error_ends_the_standby_mirror_but_not_the_node(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pair.current()
    error = RuntimeError("a bug")

    async def fail(self: Mirror, paths: object) -> None:
        raise error

    monkeypatch.setattr(Mirror, "_read_changed", fail)
    await pair.nodes.topic("b", [(1,)])
    await pair.nodes.eventually(lambda: bool(pair.errors))

    assert pair.errors == [error]
    assert pair.lines("failed")[-1]["what"] == "keeping a mirror"
    await pair.elect_node_2()
    await pair.nodes.settle()
    assert pair.controller.term is not None
    assert list(pair.controller.term.context.topics) == ["a", "b"]


async def test_a_node_no_longer_chosen_as_standby_discards_its_mirror(pair: Pair) -> None:
    await pair.current()
    pair.is_chosen = False

    pair.standby._check_choice()
    await pair.nodes.eventually(lambda: pair.standby.mirror is None)

    assert pair.lines("standby")[-1]["lost"] == "other nodes are chosen to keep one"


async def test_a_mirror_that_an_election_takes_keeps_its_unread_changes_when_other_nodes_are_chosen(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task that follows the mirror waits for up to half a second before it lets it go."""
    mirror = await pair.current()
    monkeypatch.setattr(mirrors, "FOLLOW_INTERVAL_S", 3600)
    partition = TopicPartition("a", 0)
    znode = pair.nodes.ensemble.nodes[state_path(partition)]
    changed = decode_state(partition, znode.data, znode.version)._replace(isr=(BrokerId(1),))
    pair.nodes.ensemble.apply([Set(state_path(partition), encode_state(changed))])
    await pair.nodes.settle()
    pair.is_chosen = False

    taken = await pair.standby.take(pair.nodes.ensemble.zxid)
    pair.standby._check_choice()

    assert taken is mirror
    assert [str(p) for p in await mirror.unread_partitions()] == ["a-0"]


async def test_nodes_without_a_standby_mirror_wait_before_a_controller_election(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    await pair.current()
    monkeypatch.setattr(standbys, "GIVE_WAY_S", 7)
    monkeypatch.setattr("klamm.controller.standby.asyncio.sleep", sleep)
    await pair.standby.give_way()
    assert waits == []
    pair.standby.is_current = False
    await pair.standby.give_way()
    assert waits == [7]


async def test_a_node_gives_way_when_the_controller_is_gone(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Standby] = []

    async def give_way(self: Standby) -> None:
        given.append(self)

    monkeypatch.setattr(Standby, "give_way", give_way)
    await pair.current()

    await pair.elect_node_2()
    await pair.nodes.settle()

    assert given == [pair.standby]


async def test_stopping_a_standby_closes_the_zookeeper_session_of_its_mirror(pair: Pair) -> None:
    await pair.current()

    await pair.nodes.stop(2)

    assert not pair.sessions[0].is_alive


def ids(*numbers: int) -> list[BrokerId]:
    return [BrokerId(n) for n in numbers]


@pytest.mark.parametrize(
    ("mode", "broker", "live", "expected"),
    [
        (StandbyMode.AUTO, 5, ids(1, 2, 3, 4, 5), True),
        (StandbyMode.AUTO, 1, ids(1, 2, 3, 4, 5, 6), True),
        (StandbyMode.AUTO, 2, ids(6, 5, 4, 3, 2, 1), True),
        (StandbyMode.AUTO, 3, ids(1, 2, 3, 4, 5, 6), False),
        (StandbyMode.AUTO, 3, ids(2, 3, 4, 5, 6, 7), True),
        (StandbyMode.AUTO, 0, [], True),
        (StandbyMode.TRUE, 9, ids(1, 2, 3, 4, 5, 6), True),
        (StandbyMode.FALSE, 1, ids(1), False),
    ],
)
def test_the_live_brokers_with_the_lowest_ids_keep_standby_mirrors_in_a_large_cluster(
    mode: StandbyMode, broker: int, live: list[BrokerId], expected: bool
) -> None:
    assert keeps_mirror(mode, BrokerId(broker), live) is expected


@pytest.mark.parametrize(("broker", "expected"), [(100, True), (101, True), (102, False), (1, False), (2, False)])
def test_nodes_that_only_serve_as_controller_keep_standby_mirrors_before_those_with_lower_ids(
    broker: int, expected: bool
) -> None:
    live, only = ids(1, 2, 3, 4, 100, 101, 102), ids(99, 100, 101, 102)

    assert keeps_mirror(StandbyMode.AUTO, BrokerId(broker), live, only) is expected


@pytest.mark.parametrize(("broker", "expected"), [(100, True), (1, True), (2, False)])
def test_a_single_node_that_only_serves_as_controller_shares_the_standby_with_the_lowest_id(
    broker: int, expected: bool
) -> None:
    config = parse_node_config(b"zookeeper.connect=zk:2181\nlog.dirs=/d\nklamm.controller.only.brokers=100\n", "x")

    assert is_standby(config, BrokerId(broker), ids(1, 2, 3, 4, 5, 100)) is expected


async def _forever() -> None:
    """Wait until cancelled."""
    await asyncio.Event().wait()
