"""The mirror of a standby on a real ZooKeeper: after thousands of changes by others it equals one that is read anew."""

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.support.zookeeper import PATIENT, Ensemble

from klamm.controller.mirror import Mirror, MirrorLost
from klamm.controller.settings import ControllerSettings
from klamm.embedded.zookeeper import ZooKeeperServer
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.runtime.time_slices import TimeSlices
from klamm.runtime.world import real_world
from klamm.sim.invariants.contexts import describe
from klamm.zk import znodes
from klamm.zk.client import ZooKeeper
from klamm.zk.operations import Create, Op, Set
from klamm.zk.store import Store

TOPICS = 20
PARTITIONS = 10
CHANGES = 3_000
LONG_MS = 60_000


@pytest.fixture
def kazoo(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    witness = KazooClient(zookeeper.connect_string)
    witness.start()
    yield witness
    witness.stop()
    witness.close()


@pytest.fixture
async def client(zookeeper: ZooKeeperServer) -> AsyncIterator[ZooKeeper]:
    opened = await session(zookeeper)
    yield opened
    await opened.close()


async def session(server: ZooKeeperServer, timeout_ms: int = 30_000) -> ZooKeeper:
    """A new session."""
    client = ZooKeeper(real_world(), server.connect_string, timeout_ms)
    await client.connect(60)
    return client


def create_topic(kazoo: KazooClient, number: int, count: int) -> None:
    """Create a topic with all its states."""
    name = f"t{number}"
    partitions = {n: ReplicaAssignment((BrokerId(1), BrokerId(n % 3 + 2))) for n in range(count)}
    kazoo.create_async(znodes.topic_path(name), znodes.encode_topic(uuid.uuid4(), partitions))
    kazoo.create_async(znodes.partitions_path(name), b"")
    for n in partitions:
        p = TopicPartition(name, n)
        kazoo.create_async(znodes.partition_path(p), b"")
        state = znodes.encode_state(LeaderAndIsr(BrokerId(1), 0, (BrokerId(1),), 1))
        kazoo.create_async(znodes.state_path(p), state)


def change(kazoo: KazooClient, dice: random.Random, number: int) -> None:
    """A random change: mostly of a state, rarely of a topic."""
    topic = dice.randrange(TOPICS)
    if number % 300 == 299:
        kazoo.delete(znodes.topic_path(f"t{topic}"), recursive=True)
        create_topic(kazoo, topic, dice.randrange(1, PARTITIONS + 3))
        return
    p = TopicPartition(f"t{topic}", dice.randrange(PARTITIONS))
    state = LeaderAndIsr(BrokerId(dice.randrange(1, 5)), number, (BrokerId(1),), 1)
    kazoo.set_async(znodes.state_path(p), znodes.encode_state(state))  # where it does not exist, nothing happens


def change_often(kazoo: KazooClient, dice: random.Random) -> None:
    """All changes; returns once ZooKeeper has taken them."""
    for number in range(CHANGES):
        change(kazoo, dice, number)
    kazoo.get("/")


async def test_a_standby_mirror_equals_zookeeper_after_thousands_of_changes_by_another_client(
    zookeeper: ZooKeeperServer, client: ZooKeeper, kazoo: KazooClient
) -> None:
    await Store(client).create_top_level_paths()
    for number in range(TOPICS):
        create_topic(kazoo, number, PARTITIONS)
    own = await session(zookeeper)
    mirror = Mirror(own, TimeSlices(), ControllerSettings(BrokerId(1)))
    await mirror.load()
    following = asyncio.create_task(mirror.follow())

    dice = random.Random(1)
    await asyncio.to_thread(change_often, kazoo, dice)
    await client.sync("/")
    await client.exists("/")
    await mirror.finish(client.seen_zxid)
    await following
    if mirror._changed:
        await mirror._read_changed(list(mirror._changed))
    other = await session(zookeeper)
    fresh = Mirror(other, TimeSlices(), ControllerSettings(BrokerId(1)))
    await fresh.load()

    assert describe(mirror.context) == describe(fresh.context)
    assert mirror.mzxids == fresh.mzxids
    assert mirror.context.partition_count > TOPICS
    assert mirror.reads < CHANGES, "changes of one znode that follow each other are read once"
    for opened in (own, other):
        await opened.close()


async def test_a_standby_discards_its_copy_of_the_znodes_when_its_zookeeper_server_restarts(
    zookeeper: ZooKeeperServer, client: ZooKeeper
) -> None:
    await Store(client).create_top_level_paths()
    own = await session(zookeeper)
    mirror = Mirror(own, TimeSlices(), ControllerSettings(BrokerId(1)))
    await mirror.load()
    await mirror.finish(client.seen_zxid)
    again = Mirror(own, TimeSlices(), ControllerSettings(BrokerId(1)))
    await again.load()

    await asyncio.to_thread(zookeeper.stop)
    await asyncio.wait_for(again.lost.wait(), 60)
    await asyncio.to_thread(zookeeper.start)

    with pytest.raises(MirrorLost, match="disconnected"):
        await again.finish(0)
    await own.close()


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[Ensemble]:
    """Three servers, which wait long for one that is paused."""
    servers = Ensemble(tmp_path, options=replace(PATIENT, sync_limit_ticks=LONG_MS // PATIENT.tick_ms))
    servers.start()
    yield servers
    servers.kill()


async def test_an_election_gets_all_notices_of_a_standby_mirror_whose_zookeeper_server_lags(ensemble: Ensemble) -> None:
    follower = ensemble.followers[0]
    writer, own = await session(ensemble.leader, LONG_MS), await session(follower, LONG_MS)
    await Store(writer).create_top_level_paths()
    state = znodes.encode_state(LeaderAndIsr(BrokerId(1), 0, (BrokerId(1),), 1))
    partitions = [TopicPartition("t", n) for n in range(50)]
    assignment = {p.partition: ReplicaAssignment((BrokerId(1),)) for p in partitions}
    topic = znodes.encode_topic(uuid.uuid4(), assignment)
    creations: list[Op] = [Create(znodes.topic_path("t"), topic), Create(znodes.partitions_path("t"), b"")]
    for p in partitions:
        creations += [Create(znodes.partition_path(p), b""), Create(znodes.state_path(p), state)]
    await writer.multi(creations)
    await own.sync("/")
    mirror = Mirror(own, TimeSlices(), ControllerSettings(BrokerId(1)))
    await mirror.load()

    follower.pause()
    await writer.multi([Set(znodes.state_path(p), state) for p in partitions])
    finishing = asyncio.create_task(mirror.finish(writer.seen_zxid))
    await writer.exists("/")
    noted_while_it_lagged = mirror.changed_count
    follower.resume()
    await finishing

    assert noted_while_it_lagged == 0
    assert {p.key for p in await mirror.unread_partitions()} == set(partitions)
    for opened in (own, writer):
        await opened.close()
