"""What the mirror of a standby reads, when, and when it is lost."""

import asyncio
import uuid
from typing import Any

import pytest
from tests.support.controller_room import Room
from tests.support.model_zookeeper import ModelZooKeeper
from tests.support.waiting import settle
from tests.unit.controller.mirrored_room import (
    CHANGED,
    STATE,
    TOPICS,
    Comparison,
    following,
    payload,
    room_with_mirror,
    topic_id,
)

from klamm.controller import mirror as mirrors
from klamm.controller.mirror import Mirror, MirrorLost, changed_by
from klamm.controller.settings import ControllerSettings, parse_ibp
from klamm.controller.state_encoder import StateEncoder
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.runtime.time_slices import CountedSlices
from klamm.zk import znodes
from klamm.zk.errors import NoNode, SessionExpired, Unimplemented
from klamm.zk.operations import Create, Delete, Set
from klamm.zk.states import SessionState
from klamm.zk.store import Store
from klamm.zk.watches import EventType, WatchEvent

pytestmark = pytest.mark.usefixtures("no_pauses")


# ---- a mirror that may be wrong is lost


async def test_a_standby_mirror_becomes_invalid_when_its_zookeeper_connection_is_lost() -> None:
    _, mirror, session = await room_with_mirror()

    session.on_state(SessionState.DISCONNECTED)
    session.on_state(SessionState.CONNECTED)

    with pytest.raises(MirrorLost, match="disconnected"):
        await mirror.finish(0)


async def test_a_standby_mirror_is_invalid_if_its_server_lags_behind_the_election() -> None:
    room, mirror, session = await room_with_mirror()
    session.last_seen_zxid = room.ensemble.zxid

    await mirror.finish(room.ensemble.zxid)
    with pytest.raises(MirrorLost, match="without the newest changes"):
        await mirror.finish(room.ensemble.zxid + 1)


async def test_a_standby_mirror_with_too_many_unread_changes_becomes_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrors, "MAX_CHANGED_PATHS", 3)
    room, mirror, _ = await room_with_mirror()

    for n in range(4):
        room.ensemble.apply([Create(znodes.topic_path(f"new-{n}"), payload((1,)))])

    with pytest.raises(MirrorLost, match="3 znodes changed"):
        await mirror.finish(0)
    assert not mirror.changed_count


async def test_a_burst_of_more_than_100000_notices_of_different_znodes_makes_a_standby_mirror_invalid() -> None:
    _, mirror, session = await room_with_mirror()
    notices = [WatchEvent(EventType.DATA_CHANGED, znodes.state_path(TopicPartition("a", n))) for n in range(100_001)]

    for notice in notices[:-1] + notices[:-1]:
        session.on_watch(notice)
    kept, was_lost = mirror.changed_count, mirror.lost.is_set()
    session.on_watch(notices[-1])

    assert (kept, was_lost) == (100_000, False)
    assert mirror.lost.is_set()
    assert not mirror.changed_count


async def test_the_lag_of_a_standby_mirror_is_the_age_of_the_oldest_change_that_is_not_read() -> None:
    room, mirror, session = await room_with_mirror()
    loop = asyncio.get_running_loop()
    get_many, during = session.get_many, []

    async def measured(*args: Any, **options: Any) -> Any:
        during.append(mirror.lag_s)
        return await get_many(*args, **options)

    session.get_many = measured  # type: ignore[method-assign]
    before = mirror.lag_s
    room.ensemble.apply([Set(STATE, znodes.encode_state(CHANGED))])
    noted = loop.time()
    room.ensemble.apply([Set(STATE, znodes.encode_state(CHANGED))])
    while loop.time() - noted < 0.002:  # noqa: ASYNC110 - nothing but time has to pass
        await asyncio.sleep(0)
    waiting = mirror.lag_s
    await mirror._read_changed([STATE])

    assert before == 0
    assert waiting >= 0.002
    assert during[0] >= waiting
    assert mirror.lag_s == 0


async def test_a_standby_mirror_becomes_invalid_when_the_znode_brokers_topics_itself_changes() -> None:
    room, mirror, _ = await room_with_mirror()

    room.ensemble.apply([Set(znodes.TOPICS, b"")])

    with pytest.raises(MirrorLost, match="/brokers/topics itself changed"):
        await mirror.finish(0)


async def test_a_standby_mirror_becomes_invalid_when_changed_znodes_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room, mirror, session = await room_with_mirror()

    async def fail(*_: Any, **__: Any) -> Any:
        raise SessionExpired("")

    monkeypatch.setattr(session, "get_many", fail)
    following_task = asyncio.create_task(mirror.follow())
    room.ensemble.apply([Set(STATE, znodes.encode_state(CHANGED))])

    with pytest.raises(SessionExpired):
        await following_task
    with pytest.raises(MirrorLost, match="could not be read"):
        await mirror.finish(0)


async def test_a_finished_standby_mirror_keeps_its_unread_changes_when_its_session_ends() -> None:
    room, mirror, session = await room_with_mirror()
    room.ensemble.apply([Set(STATE, znodes.encode_state(CHANGED))])
    await mirror.finish(room.ensemble.zxid)

    room.ensemble.apply([Set(znodes.TOPICS, b"")])
    await session.close()

    assert [str(p) for p in await mirror.unread_partitions()] == ["a-0"]


async def test_many_changes_of_a_standby_mirror_are_collected_in_several_event_loop_iterations() -> None:
    room, mirror, _ = await room_with_mirror()
    topic = mirror.context.add_topic("large", None)
    for number in range(1_000):
        mirror.context.add_partition(topic, number, ReplicaAssignment((BrokerId(1),)))
        mirror._on_watch(WatchEvent(EventType.DATA_CHANGED, f"/brokers/topics/large/partitions/{number}/state"))
    await mirror.finish(room.ensemble.zxid)
    passes = 0

    async def count_passes() -> None:
        nonlocal passes
        while True:
            await asyncio.sleep(0)
            passes += 1

    counting = asyncio.create_task(count_passes())
    unread = await mirror.unread_partitions()
    counting.cancel()

    assert len(unread) == 1_000
    assert passes >= 3


async def test_a_finished_mirror_reads_nothing_any_more() -> None:
    room, mirror, _ = await room_with_mirror()
    async with following(mirror):
        room.ensemble.apply([Set(STATE, znodes.encode_state(CHANGED))])
        await mirror.finish(room.ensemble.zxid)
        await settle()

        assert mirror.changed_count == 1


async def test_partitions_without_a_state_of_a_topic_that_changed_last_are_not_read_twice() -> None:
    room, mirror, _ = await room_with_mirror()
    async with following(mirror):
        room.ensemble.apply([Delete(STATE)])
    room.ensemble.apply([Set(znodes.topic_path("a"), payload((1, 2), topic_id=topic_id(room, "a")))])

    await room.become_controller()

    [line] = room.entries("warm")
    assert (line.facts["topics_to_read"], line.facts["states_to_read"]) == (1, 0)
    assert isinstance(room.observer, Comparison)
    assert room.observer.compared == 1


async def test_a_broker_whose_only_topic_was_deleted_is_not_in_the_context_of_the_next_controller() -> None:
    room, mirror, _ = await room_with_mirror()
    async with following(mirror):
        room.ensemble.apply([Create(znodes.topic_path("x"), payload((9,)))])
        await settle()
        room.ensemble.apply([Delete(znodes.topic_path("x"))])

    await room.become_controller()

    assert sorted(room.term.context.replica_states) == [1, 2, 3]


async def test_a_mirror_encodes_the_states_that_it_reads() -> None:
    room, mirror, _ = await room_with_mirror()
    partitions = list(mirror.context.partitions())
    encoder = StateEncoder(room.settings)
    assert [p.encoded for p in partitions] == [encoder.common(p) for p in partitions]

    async with following(mirror):
        room.ensemble.apply([Set(STATE, znodes.encode_state(CHANGED))])

    changed = mirror.context.topics["a"].partitions[0]
    assert changed.leadership is not None
    assert changed.leadership.leader_epoch == CHANGED.leader_epoch
    assert changed.encoded == encoder.common(changed)


async def test_a_topic_that_gets_an_id_has_it_in_the_mirror() -> None:
    room = await Room.open()
    without = {0: ReplicaAssignment((BrokerId(1),))}
    room.ensemble.apply([Create(znodes.topic_path("old"), znodes.encode_topic(None, without))])
    mirror = Mirror(room.ensemble.client(), CountedSlices(), ControllerSettings(BrokerId(1), ibp=parse_ibp("2.7")))
    await mirror.load()
    assert mirror.context.topics["old"].id is None

    async with following(mirror):
        room.ensemble.apply([Set(znodes.topic_path("old"), payload((1,)))])

    found = mirror.context.topic_with_id(uuid.UUID(int=5))
    assert found is mirror.context.topics["old"]


async def test_an_election_waits_for_a_running_read_of_the_standby_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    room, mirror, session = await room_with_mirror()
    may_read = asyncio.Event()
    get_many = session.get_many

    async def slow(*args: Any, **options: Any) -> Any:
        await may_read.wait()
        return await get_many(*args, **options)

    monkeypatch.setattr(session, "get_many", slow)
    async with following(mirror):
        room.ensemble.apply([Set(STATE, znodes.encode_state(CHANGED))])
        await settle()
        elected = asyncio.create_task(room.become_controller())
        await settle()
        assert not elected.done()
        may_read.set()
        await elected

    assert room.partition("a-0").leader_epoch == 7


async def test_a_znode_changed_while_the_standby_mirror_reads_the_znode_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room, mirror, session = await room_with_mirror()
    get_many = session.get_many
    later = [CHANGED]

    async def overtaken(*args: Any, **options: Any) -> Any:
        """The answer is from before the later change, whose notice comes first."""
        read = await get_many(*args, **options)
        while later:
            room.ensemble.apply([Set(STATE, znodes.encode_state(later.pop()))])
        return read

    monkeypatch.setattr(session, "get_many", overtaken)
    async with following(mirror):
        room.ensemble.apply([Set(STATE, znodes.encode_state(CHANGED._replace(leader_epoch=6)))])

    assert not mirror.changed_count
    read = mirror.context.partition("a", 0)
    assert read is not None
    assert read.leader_epoch == 7


async def test_a_node_keeps_no_standby_mirror_if_zookeeper_lacks_persistent_watches() -> None:
    room = await Room.open(topics=TOPICS)
    room.ensemble.refuses_subtree_watches = True

    with pytest.raises(Unimplemented):
        await Mirror(room.ensemble.client(), CountedSlices(), ControllerSettings(BrokerId(1))).load()


async def test_a_discarded_standby_mirror_releases_its_partitions() -> None:
    _, mirror, _ = await room_with_mirror()
    context = mirror.context

    await mirror.discard()

    assert not any(topic.partitions for topic in context.topics.values())
    assert not any(context.led_by.values())
    assert not any(context.replica_states.values())


async def test_waiting_for_work_of_a_standby_mirror_ends_when_the_mirror_becomes_invalid() -> None:
    _, mirror, _ = await room_with_mirror()
    work = asyncio.create_task(mirror.unless_lost(asyncio.Event().wait()))  # type: ignore[arg-type]
    await settle()

    mirror.lose("the test says so")
    mirror.lose("and then something else")

    with pytest.raises(MirrorLost, match="the test says so"):
        await work


async def test_a_server_without_persistent_watches_is_known_also_where_it_has_ended_the_connection() -> None:
    """A server of ZooKeeper 3.5 answers UNIMPLEMENTED, and closes the connection at once."""
    _, mirror, _ = await room_with_mirror()

    async def watch() -> None:
        mirror.lose("the ZooKeeper session is disconnected")
        raise Unimplemented("/brokers/topics")

    with pytest.raises(Unimplemented):
        await mirror.unless_lost(watch())


@pytest.mark.parametrize(
    ("path", "topics", "partitions"),
    [
        ("/brokers/topics/a", ["a"], []),
        ("/brokers/topics/a/partitions", [], []),
        ("/brokers/topics/a/partitions/7", [], []),
        ("/brokers/topics/a/partitions/7/state", [], [("a", 7)]),
        ("/brokers/topics/a/partitions/x/state", [], []),
        ("/brokers/topics/a/partitions/7/state/odd", [], []),
        (f"/brokers/topics/a/partitions/{'7' * 5_000}/state", [], []),
    ],
    ids=lambda given: given[:50] if isinstance(given, str) else "",
)
def test_changed_znode_paths_are_attributed_to_a_topic_a_partition_or_neither(
    path: str, topics: list[str], partitions: list[tuple[str, int]]
) -> None:
    assert changed_by([path]) == (topics, partitions)


async def test_loading_a_standby_mirror_without_the_znode_brokers_topics_raises_an_error() -> None:
    room = Room()

    with pytest.raises(NoNode):
        await Mirror(room.ensemble.client(), CountedSlices(), ControllerSettings(BrokerId(1))).load()


def test_a_finished_mirror_has_the_notices_of_a_server_that_lags() -> None:
    async def story(model: ModelZooKeeper) -> None:
        writer = await model.client("writer", "zk-1:2181")
        await Store(writer).create_top_level_paths()
        await Store(writer).create_topic("a", {0: ReplicaAssignment((BrokerId(1),))}, uuid.uuid4(), {})
        for path in (znodes.partitions_path("a"), znodes.partition_path(TopicPartition("a", 0))):
            await writer.create(path, b"")
        await writer.create(STATE, znodes.encode_state(CHANGED))
        mirror = Mirror(await model.client("reader", "zk-2:2181"), CountedSlices(), ControllerSettings(BrokerId(1)))
        await mirror.load()
        model.servers[1].lag_s = lambda: 2.0

        await writer.set(STATE, znodes.encode_state(CHANGED))
        assert not await mirror.unread_partitions()
        await mirror.finish(writer.seen_zxid)

        assert [str(p) for p in await mirror.unread_partitions()] == ["a-0"]

    ModelZooKeeper(servers=2).run(story)
