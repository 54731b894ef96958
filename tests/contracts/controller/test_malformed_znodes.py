"""Malformed and impossible znodes, as people, tools and partial restores leave them: no controller fails."""

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import count

import pytest
from tests.support.real_controllers import World
from tests.support.waiting import eventually

from klamm.controller.controller import Controller
from klamm.embedded.zookeeper import ZooKeeperServer
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.telemetry.journal_reader import Entry, parse_lines
from klamm.zk.acl import OPEN_ACL, READ_ACL
from klamm.zk.errors import NodeExists
from klamm.zk.port import ZooKeeperClient
from klamm.zk.store import Store
from klamm.zk.znodes import state_path

STATE = {"controller_epoch": 1, "leader": 1, "version": 1, "leader_epoch": 0, "isr": [1]}


def text(value: object) -> bytes:
    return json.dumps(value).encode()


def topic(*replicas: object, **more: object) -> bytes:
    return text({"version": 3, "partitions": {str(n): r for n, r in enumerate(replicas)}, **more})


def partitions(*listed: object) -> bytes:
    return text({"version": 1, "partitions": list(listed)})


HOSTILE: dict[str, dict[str, bytes | None]] = {
    "malformed registrations": {"/brokers/ids/7": b"{", "/brokers/ids/8": None, "/brokers/ids/nine": b"{}"},
    "malformed topics": {
        "/brokers/topics/broken": b"{",
        "/brokers/topics/null": None,
        "/brokers/topics/words": text({"partitions": {"zero": [1]}}),
        "/brokers/topics/list": b"[]",
        "/brokers/topics/id": text({"partitions": {"0": [1]}, "topic_id": "no id at all, by far"}),
    },
    "impossible assignments": {
        "/brokers/topics/nobody": topic([]),
        "/brokers/topics/strangers": topic([77, 78]),
        "/brokers/topics/twice": topic([1, 1]),
        "/brokers/topics/negative": topic([-1]),
        "/brokers/topics/moving": topic([1, 99], adding_replicas={"0": [99]}, removing_replicas={"5": [1]}),
    },
    "malformed states": {
        "/brokers/topics/s": topic([1], [1], [1], [1], [1]),
        "/brokers/topics/s/partitions/0/state": b"{",
        "/brokers/topics/s/partitions/1/state": None,
        "/brokers/topics/s/partitions/2/state": text({**STATE, "leader": "one"}),
        "/brokers/topics/s/partitions/3/state": text({**STATE, "controller_epoch": 4_000}),
        "/brokers/topics/s/partitions/4/state": text({**STATE, "leader": 66, "isr": [66]}),
        "/brokers/topics/s/partitions/x/state": text(STATE),
    },
    "a partial restore": {
        "/brokers/topics/half": topic([1], [1]),
        "/brokers/topics/half/partitions/0": None,
        "/brokers/topics/gone/partitions/0/state": text(STATE),
        "/admin/delete_topics/never-was": None,
        "/config/topics/half": b"{",
    },
    "malformed notifications": {
        "/isr_change_notification/isr_change_0000000900": b"{",
        "/isr_change_notification/isr_change_0000000901": partitions({"topic": "never", "partition": 3}),
        "/isr_change_notification/odd": None,
        "/log_dir_event_notification/log_dir_event_0000000900": b"x",
        "/log_dir_event_notification/log_dir_event_0000000901": text({"version": 1, "broker": 99, "event": 1}),
        "/log_dir_event_notification/log_dir_event_0000000902": None,
    },
    "a reassignment that is not JSON": {"/admin/reassign_partitions": b"{"},
    "a reassignment of missing partitions and to no brokers": {
        "/admin/reassign_partitions": partitions(
            {"topic": "never", "partition": 0, "replicas": [1]},
            {"topic": "good", "partition": 9, "replicas": [1]},
            {"topic": "good", "partition": 0, "replicas": []},
            {"topic": "good", "partition": 0, "replicas": [1, 1]},
        )
    },
    "a reassignment to an unregistered broker": {
        "/admin/reassign_partitions": partitions({"topic": "good", "partition": 0, "replicas": [88]})
    },
    "an election that is not JSON": {"/admin/preferred_replica_election": b"\xff\xfe"},
    "an election of a missing partition": {
        "/admin/preferred_replica_election": partitions({"topic": "never", "partition": 0})
    },
    "malformed features": {"/feature": b"{"},
    "a malformed producer id block": {"/latest_producer_id_block": b"{"},
}
_probes = count(1)


@pytest.fixture
async def world(shared_zookeeper: ZooKeeperServer) -> AsyncIterator[World]:
    made = World(shared_zookeeper)
    yield made
    await made.close()


async def write_znodes(client: ZooKeeperClient, znodes: dict[str, bytes | None]) -> None:
    for path, data in znodes.items():
        if (parent := path.rpartition("/")[0]) != "":
            await client.ensure_path(parent)
        try:
            await client.create(path, data)
        except NodeExists:
            await client.set(path, data)


async def create_brokers_and_topic(world: World) -> Store:
    """Two brokers, and a topic that must survive."""
    store = await world.store()
    await world.broker(1)
    await world.broker(2)
    await store.create_topic("good", {0: ReplicaAssignment((BrokerId(1), BrokerId(2)))}, None, {})
    return store


async def assert_controller_works(store: Store, controller: Controller) -> None:
    """A new topic gets a leader: no event before it was lost, and none stopped the controller."""
    name = f"probe-{next(_probes)}"
    await store.create_topic(name, {0: ReplicaAssignment((BrokerId(2), BrokerId(1)))}, None, {})
    path = state_path(TopicPartition(name, 0))
    async with asyncio.timeout(60):
        while await store.client.exists(path) is None:  # noqa: ASYNC110 - ZooKeeper is asked
            await asyncio.sleep(0.01)
    assert controller.is_active


def journal_entries(world: World, kind: str) -> list[Entry]:
    return [e for e in parse_lines(world.sinks[1].content) if e.kind == kind]


async def assert_no_event_failed(world: World, controller: Controller) -> None:
    await eventually(lambda: controller.queue_size == 0 and controller.state == 0)
    assert [e.facts for e in journal_entries(world, "failed")] == []
    assert controller.epoch == 1


@pytest.mark.parametrize("znodes", HOSTILE.values(), ids=HOSTILE)
async def test_a_controller_that_starts_with_malformed_znodes_keeps_working(
    world: World, znodes: dict[str, bytes | None]
) -> None:
    store = await create_brokers_and_topic(world)
    await write_znodes(store.client, znodes)

    controller = await world.controller(1)

    await assert_controller_works(store, controller)
    await assert_no_event_failed(world, controller)


@pytest.mark.parametrize("znodes", HOSTILE.values(), ids=HOSTILE)
async def test_an_active_controller_keeps_working_when_znodes_become_malformed(
    world: World, znodes: dict[str, bytes | None]
) -> None:
    store = await create_brokers_and_topic(world)
    controller = await world.controller(1)
    await assert_controller_works(store, controller)

    await write_znodes(store.client, znodes)

    await assert_controller_works(store, controller)
    await assert_no_event_failed(world, controller)


async def test_allocate_producer_ids_fails_when_the_producer_id_block_znode_is_malformed(world: World) -> None:
    store = await create_brokers_and_topic(world)
    await write_znodes(store.client, HOSTILE["a malformed producer id block"])
    controller = await world.controller(1)
    await assert_controller_works(store, controller)
    registered = await store.read_broker(BrokerId(1))
    assert registered is not None

    answer = await controller.allocate_producer_ids(BrokerId(1), registered.broker.epoch)

    assert answer.error is ErrorCode.UNKNOWN_SERVER_ERROR
    await assert_controller_works(store, controller)


async def test_a_partition_state_write_forbidden_by_an_acl_fails_for_that_partition_only(world: World) -> None:
    store = await create_brokers_and_topic(world)
    for name in ("locked", "open"):
        await store.create_topic(name, {0: ReplicaAssignment((BrokerId(1), BrokerId(2)))}, None, {})
        path = state_path(TopicPartition(name, 0))
        await store.client.ensure_path(path.rpartition("/")[0])
        state = text({**STATE, "leader": 2, "isr": [2, 1]})
        await store.client.create(path, state, acl=READ_ACL if name == "locked" else OPEN_ACL)
    controller = await world.controller(1)
    await assert_controller_works(store, controller)

    await world.brokers[1].stop()

    async def leads(name: str) -> int:
        data, _ = await store.client.get(state_path(TopicPartition(name, 0)))
        return int(json.loads(data or b"{}")["leader"])

    async with asyncio.timeout(60):
        while await leads("open") != 1:  # noqa: ASYNC110 - ZooKeeper is asked
            await asyncio.sleep(0.01)
    assert (await leads("open"), await leads("locked")) == (1, 2)
    await store.create_topic("after", {0: ReplicaAssignment((BrokerId(1),))}, None, {})
    await eventually(lambda: any("NO_AUTH" in str(e.facts.get("why")) for e in journal_entries(world, "refused")))
    assert controller.is_active
