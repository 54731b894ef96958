"""A leader answers from memory only while no other broker leads: its followers prove that, or ZooKeeper tells."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.support.memory_zookeeper import MemoryEnsemble
from tests.support.replica_cluster import P0, ReplicaCluster

from klamm.broker.leadership_check import FOLLOWERS_S, TIMEOUT_S, LeadershipCheck
from klamm.model.ids import BrokerId
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.loop import SimulatedLoop
from klamm.wire.messages import FetchRequest
from klamm.zk.errors import ConnectionLoss
from klamm.zk.operations import Create, Set
from klamm.zk.store import Store
from klamm.zk.znodes import encode_state, state_path


class Room:
    """Broker 1 leads the partition with followers 2 and 3. ZooKeeper answers, unless it is `lost` or `held`."""

    def __init__(self, cluster: ReplicaCluster) -> None:
        self.cluster = cluster
        self.ensemble = MemoryEnsemble()
        self.session = self.ensemble.client()
        self.check = LeadershipCheck(BrokerId(1), cluster.brokers[1], self._store)
        self.is_lost = False
        self.held: asyncio.Event | None = None
        self.syncs = 0
        self._sync = self.session.sync
        self.session.sync = self._counted_sync  # type: ignore[method-assign]

    async def begin(self) -> None:
        await Store(self.session).create_top_level_paths()
        await self.session.ensure_path(state_path(P0).rpartition("/")[0])
        self.ensemble.apply([Create(state_path(P0), encode_state(self._state(1)))])
        await self.cluster.elect(1)
        await asyncio.sleep(5)

    def write_leader(self, leader: int) -> None:
        self.ensemble.apply([Set(state_path(P0), encode_state(self._state(leader)))])

    def cut_off(self, *followers: int) -> None:
        self.cluster.cut |= {(follower, 1) for follower in followers}

    async def confirm(self) -> tuple[bool, float]:
        """Whether the leadership is confirmed, and after how many seconds."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        return await self.check.confirm(P0), loop.time() - began

    def _state(self, leader: int) -> LeaderAndIsr:
        return LeaderAndIsr(BrokerId(leader), leader, (BrokerId(1), BrokerId(2), BrokerId(3)), 1, 0)

    def _store(self) -> Store:
        if self.is_lost:
            raise ConnectionLoss("", "there is no session")
        return Store(self.session)

    async def _counted_sync(self, path: str) -> None:
        self.syncs += 1
        if self.held is not None:
            await self.held.wait()
        await self._sync(path)


Body = Callable[[Room], Awaitable[None]]


def play(body: Body) -> None:
    async def main() -> None:
        cluster = ReplicaCluster()
        room = Room(cluster)
        await room.begin()
        await body(room)
        await room.check.close()
        await cluster.close()

    SimulatedLoop().run(main())


def test_followers_prove_the_leadership_at_once_although_their_fetches_wait_for_records() -> None:
    async def body(room: Room) -> None:
        for _ in range(20):
            is_confirmed, seconds = await room.confirm()
            assert is_confirmed
            assert seconds < FOLLOWERS_S / 2
            await asyncio.sleep(0.07)
        assert room.syncs == 0

    play(body)


def test_followers_that_are_about_to_fetch_prove_the_leadership_at_once() -> None:
    """Their next fetch proves nothing, since it follows an earlier answer: it must not wait for records either."""

    async def body(room: Room) -> None:
        for step in range(20):
            assert not await room.cluster.produce(1, acks=1)
            await asyncio.sleep(step / 5_000)
            is_confirmed, seconds = await room.confirm()
            assert is_confirmed
            assert seconds < FOLLOWERS_S / 2
        assert room.syncs == 0

    play(body)


def test_one_fetch_of_each_follower_proves_the_leadership_for_all_that_wait() -> None:
    async def body(room: Room) -> None:
        sent = len(room.cluster.sent)
        assert await asyncio.gather(*(room.check.confirm(P0) for _ in range(50))) == [True] * 50
        assert len(room.cluster.sent) - sent <= 4

    play(body)


def test_followers_that_nobody_hurries_wait_for_records_as_before() -> None:
    async def body(room: Room) -> None:
        await room.confirm()
        sent = len(room.cluster.sent)
        await asyncio.sleep(5)
        assert len(room.cluster.sent) - sent <= 2 * 5 / 0.5

    play(body)


def test_a_leader_that_is_cut_off_from_followers_and_zookeeper_is_not_confirmed() -> None:
    async def body(room: Room) -> None:
        room.cut_off(2, 3)
        room.held = asyncio.Event()
        is_confirmed, seconds = await room.confirm()
        assert not is_confirmed
        assert seconds == pytest.approx(TIMEOUT_S)

    play(body)


def test_a_leader_that_has_one_of_two_in_sync_followers_needs_zookeeper() -> None:
    """The silent one may lead already."""

    async def body(room: Room) -> None:
        room.cut_off(3)
        assert (await room.confirm())[0]
        assert room.syncs == 1
        room.is_lost = True
        assert not (await room.confirm())[0]

    play(body)


def test_with_a_silent_follower_zookeeper_confirms_the_leadership_without_a_long_wait() -> None:
    async def body(room: Room) -> None:
        room.cut_off(2, 3)
        is_confirmed, seconds = await room.confirm()
        assert is_confirmed
        assert seconds == pytest.approx(FOLLOWERS_S, abs=0.01)

    play(body)


def test_another_leader_in_zookeeper_is_believed_at_once() -> None:
    async def body(room: Room) -> None:
        room.cut_off(2, 3)
        room.write_leader(2)
        is_confirmed, seconds = await room.confirm()
        assert not is_confirmed
        assert seconds == pytest.approx(FOLLOWERS_S, abs=0.01)

    play(body)


@pytest.mark.parametrize("fails", [True, False])
def test_followers_that_need_long_prove_the_leadership_where_zookeeper_does_not_answer(fails: bool) -> None:
    async def body(room: Room) -> None:
        room.is_lost, room.held = fails, asyncio.Event()
        room.cluster.delay_s = 3 * FOLLOWERS_S
        for _ in range(20):
            assert (await room.confirm())[0]
            await asyncio.sleep(0.07)

    play(body)


def test_a_fetch_that_was_under_way_when_the_followers_got_another_leader_proves_nothing() -> None:
    """It arrives after the question, as from the socket of a process that was paused."""

    async def body(room: Room) -> None:
        cluster = room.cluster
        room.is_lost = True
        cluster.delay_s = 0.05
        await asyncio.sleep(2)
        cluster.sent.clear()
        assert not await cluster.produce(1, acks=1)
        await asyncio.sleep(0.06)
        assert {source for source, _, message, _ in cluster.sent if isinstance(message, FetchRequest)} == {2, 3}
        await cluster.elect(2, tell=(2, 3))
        assert not (await room.confirm())[0]

    play(body)


def test_a_leader_alone_in_its_isr_needs_no_proof() -> None:
    async def body(room: Room) -> None:
        room.cut_off(2, 3)
        room.is_lost = True
        await room.cluster.elect(1, isr=(1,), tell=(1,))
        assert await room.confirm() == (True, 0)

    play(body)


def test_a_follower_is_not_confirmed_as_leader() -> None:
    async def body(room: Room) -> None:
        await room.cluster.elect(2)
        assert await room.confirm() == (False, 0)

    play(body)


def test_a_proof_that_was_given_up_proves_nothing_to_the_next_request() -> None:
    async def body(room: Room) -> None:
        room.cut_off(2, 3)
        room.is_lost = True
        await asyncio.sleep(0.6)
        for _ in range(3):
            assert not (await room.confirm())[0]

    play(body)


def test_a_request_that_goes_leaves_the_proof_to_the_others() -> None:
    async def body(room: Room) -> None:
        room.is_lost = True
        waiting = [asyncio.ensure_future(room.check.confirm(P0)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        assert await asyncio.gather(*waiting[1:]) == [True, True]

    play(body)


def test_one_read_of_zookeeper_serves_all_that_wait_when_it_begins() -> None:
    async def body(room: Room) -> None:
        room.cut_off(2, 3)
        room.held = asyncio.Event()
        early = [asyncio.ensure_future(room.check.confirm(P0)) for _ in range(10)]
        await asyncio.sleep(0.1)
        late = [asyncio.ensure_future(room.check.confirm(P0)) for _ in range(10)]
        await asyncio.sleep(0.1)
        assert room.syncs == 1
        room.held.set()
        assert await asyncio.gather(*early, *late) == [True] * 20
        assert room.syncs == 2

    play(body)


def test_a_question_during_a_read_of_zookeeper_is_not_answered_by_it() -> None:
    """Another broker may have become leader after it."""

    async def body(room: Room) -> None:
        room.cut_off(2, 3)
        room.held = asyncio.Event()
        early = asyncio.ensure_future(room.check.confirm(P0))
        await asyncio.sleep(0.1)
        late = asyncio.ensure_future(room.check.confirm(P0))
        await asyncio.sleep(0.1)
        get_many = room.session.get_many

        async def replaced_after_the_read(paths: list[str], watch: bool = False) -> object:
            read = await get_many(paths, watch)
            room.write_leader(2)
            return read

        room.session.get_many = replaced_after_the_read  # type: ignore
        room.held.set()
        assert [await early, await late] == [True, False]

    play(body)
