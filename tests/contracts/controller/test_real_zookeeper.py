"""Controllers on a real ZooKeeper, with brokers that only record requests; kazoo reads what was written."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator

import pytest
from tests.support.controller_room import broker as broker_id_of
from tests.support.kazoo_clients import kazoo_client
from tests.support.real_controllers import World
from tests.support.recorder_broker import RecorderBroker
from tests.support.waiting import eventually

from klamm.embedded.zookeeper import ZooKeeperServer
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.model.topic_ids import id_to_text
from klamm.telemetry.journal_reader import controller_terms, leader_changes, parse_lines
from klamm.wire.messages import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from klamm.zk import znodes
from klamm.zk.controller_store import ControllerStore
from klamm.zk.election import register_controller
from klamm.zk.errors import ZkCode
from klamm.zk.fenced import ControllerMoved
from klamm.zk.operations import Create
from klamm.zk.registrar import BrokerIdTaken, BrokerRegistrar
from klamm.zk.store import TopicExists


@pytest.fixture
async def world(shared_zookeeper: ZooKeeperServer) -> AsyncIterator[World]:
    made = World(shared_zookeeper)
    yield made
    await made.close()


def assignment(*replicas: int) -> dict[int, ReplicaAssignment]:
    return {0: ReplicaAssignment(tuple(map(BrokerId, replicas)))}


def ids(*brokers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, brokers))


async def kazoo_reads(world: World, path: str) -> tuple[bytes, int]:
    def read() -> tuple[bytes, int]:
        with kazoo_client(world.hosts) as witness:
            data, stat = witness.get(path)
            return data, stat.version

    return await asyncio.to_thread(read)


async def test_two_brokers_started_together_elect_one_controller_and_increment_the_epoch_once(world: World) -> None:
    store = await world.store()
    await world.broker(1)
    await world.broker(2)
    first, second = await asyncio.gather(world.controller(1), world.controller(2))
    await eventually(lambda: first.is_active or second.is_active)
    await asyncio.sleep(0.1)

    assert first.is_active != second.is_active
    holder = await store.read_controller()
    assert holder is not None
    assert (holder.broker == 1) == first.is_active
    assert await kazoo_reads(world, "/controller_epoch") == (b"1", 1)
    content = json.loads((await kazoo_reads(world, "/controller"))[0])
    assert content.pop("timestamp").isdigit()
    assert content == {"version": 2, "brokerid": holder.broker, "kraftControllerEpoch": -1}


async def test_a_created_topic_gets_a_leader_and_a_new_leader_when_that_broker_dies(world: World) -> None:
    store = await world.store()
    brokers = {n: await world.broker(n) for n in (1, 2, 3)}
    controller = await world.controller(1)
    await eventually(lambda: controller.is_active)
    await store.create_topic("orders", assignment(3, 2, 1), uuid.uuid4(), {"retention.ms": "1000"})

    first = await brokers[3].wait_for_leader_and_isr("orders")
    assert (first.leader, first.isr, first.is_new, first.leader_epoch) == (3, (3, 2, 1), True, 0)
    state = "/brokers/topics/orders/partitions/0/state"
    content, version = await kazoo_reads(world, state)
    assert json.loads(content) == {
        "controller_epoch": 1,
        "leader": 3,
        "version": 1,
        "leader_epoch": 0,
        "isr": [3, 2, 1],
    }
    assert version == 0
    assert json.loads((await kazoo_reads(world, "/config/topics/orders"))[0])["config"] == {"retention.ms": "1000"}

    await brokers[3].stop()
    await eventually(lambda: controller.term is not None and len(controller.term.context.registered) == 2)
    await eventually(lambda: controller.state == 0)
    content, version = await kazoo_reads(world, state)
    assert json.loads(content) == {"controller_epoch": 1, "leader": 2, "version": 1, "leader_epoch": 1, "isr": [2, 1]}
    assert version == 1

    returned = await world.broker(3)
    again = await returned.wait_for_leader_and_isr("orders")
    assert (again.leader, again.leader_epoch, again.is_new) == (2, 1, False)
    assert [kind for kind, _, _ in returned.received][:2] == ["UpdateMetadata", "LeaderAndIsr"]

    [moved] = leader_changes(parse_lines(world.sinks[1].content))
    assert (moved.partition, moved.leader_from, moved.leader_to) == (TopicPartition("orders", 0), 3, 2)
    assert (moved.why, moved.rejected) == ("BrokerChange: dead [3]", ((3, "not live"),))
    [term] = controller_terms(parse_lines(world.sinks[1].content))
    assert term.ready_ms is not None
    assert term.ready_ms >= term.elected_ms


async def test_a_second_controller_takes_over_existing_topics_and_live_brokers(world: World) -> None:
    store = await world.store()
    brokers = {n: await world.broker(n) for n in (1, 2)}
    first = await world.controller(1)
    await eventually(lambda: first.is_active)
    await store.create_topic("orders", assignment(1, 2), uuid.uuid4(), {})
    await brokers[1].wait_for_leader_and_isr("orders")
    second = await world.controller(2)

    world.controllers.remove(first)
    await first.stop()
    await world.clients[1].close()
    await eventually(lambda: second.is_active)
    await eventually(lambda: any(r.controller_epoch == 2 for r in brokers[2].requests("LeaderAndIsr")))

    newest = brokers[2].requests("LeaderAndIsr")[-1].topic_states[0].partition_states[0]
    assert (newest.leader, newest.isr, newest.leader_epoch) == (1, (1, 2), 0)


async def test_a_reassignment_continues_under_the_next_controller(world: World) -> None:
    store = await world.store()
    brokers = {n: await world.broker(n) for n in (1, 2, 3)}
    first = await world.controller(1)
    await eventually(lambda: first.is_active)
    topic_id = uuid.uuid4()
    await store.create_topic("orders", assignment(1, 2), topic_id, {})
    await brokers[1].wait_for_leader_and_isr("orders")
    p = TopicPartition("orders", 0)

    answer = await first.alter_reassignments({p: ids(3, 2), TopicPartition("gone", 0): None})
    assert {str(q): r.error for q, r in answer.refused.items()} == {"gone-0": ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
    content = json.loads((await kazoo_reads(world, "/brokers/topics/orders"))[0])
    assert content == {
        "version": 3,
        "topic_id": id_to_text(topic_id),
        "partitions": {"0": [3, 2, 1]},
        "adding_replicas": {"0": [3]},
        "removing_replicas": {"0": [1]},
    }
    second = await world.controller(2)
    world.controllers.remove(first)
    await first.stop()
    await world.clients[1].close()
    await eventually(lambda: second.is_active)
    assert (await second.list_reassignments(None)).assignments == {
        p: ReplicaAssignment(ids(3, 2, 1), adding=ids(3), removing=ids(1))
    }

    state = json.loads((await kazoo_reads(world, "/brokers/topics/orders/partitions/0/state"))[0])
    assert (state["leader"], state["leader_epoch"]) == (1, 2)  # one epoch by each controller
    isr = [BrokerState(b) for b in (1, 2, 3)]
    data = AlterPartitionRequestPartitionData(0, 2, (), isr, 0, 2)
    request = AlterPartitionRequest(1, brokers[1].epoch, [AlterPartitionRequestTopicData("", topic_id, [data])])
    await second.alter_partition(request, 3)

    assert (
        await second.list_reassignments(None)
    ).assignments == {}  # asked behind it: the ISR change was the last step
    content = json.loads((await kazoo_reads(world, "/brokers/topics/orders"))[0])
    assert (content["partitions"], content["adding_replicas"], content["removing_replicas"]) == ({"0": [3, 2]}, {}, {})
    state = json.loads((await kazoo_reads(world, "/brokers/topics/orders/partitions/0/state"))[0])
    assert (state["leader"], state["isr"], state["controller_epoch"]) == (3, [2, 3], 2)


# ---- fences


async def test_every_zookeeper_write_of_a_replaced_controller_raises_controller_moved(world: World) -> None:
    store = await world.store()
    zombie_client = await world.client()
    zombie = ControllerStore(zombie_client, await register_controller(zombie_client, BrokerId(1), 0))
    await store.create_topic("a", assignment(1), None, {})
    partition = TopicPartition("a", 0)
    first = LeaderAndIsr(BrokerId(1), 0, (BrokerId(1),), 1)
    await zombie.create_states({partition: first}, ["a"])
    await store.client.delete(znodes.CONTROLLER)
    await register_controller(store.client, BrokerId(2), 0)

    for write in (
        zombie.write_states({partition: first._replace(leader_epoch=9)}),
        zombie.create_states({TopicPartition("a", 1): first}, []),
        zombie.write_topic("a", None, {}),
        zombie.delete_notifications(znodes.ISR_CHANGES, ["isr_change_0000000000"]),
        zombie.delete_controller(),
    ):
        with pytest.raises(ControllerMoved):
            await write

    assert (await zombie.read_states([partition])).found == {partition: first}
    assert await store.read_controller() is not None


async def test_partition_state_writes_with_a_stale_version_do_not_fail_others_of_the_batch(world: World) -> None:
    await world.store()
    client = await world.client()
    store = ControllerStore(client, await register_controller(client, BrokerId(1), 0))
    await client.ensure_path("/brokers/topics/a")
    states = {TopicPartition("a", n): LeaderAndIsr(BrokerId(1), 0, (BrokerId(1),), 1) for n in range(2_500)}
    created = await store.create_states(states, ["a"])
    assert len(created.written) == 2_500
    stale = [TopicPartition("a", n) for n in (0, 700, 701, 2_499)]
    for p in stale:
        await client.set(znodes.state_path(p), znodes.encode_state(states[p]))
    gone = TopicPartition("a", 1_500)
    await client.delete(znodes.state_path(gone))

    outcome = await store.write_states({p: s._replace(leader_epoch=1) for p, s in states.items()})

    assert outcome.conflicted == stale
    assert outcome.failed == {gone: "ZooKeeper answered NO_NODE"}
    assert len(outcome.written) == 2_495
    assert {s.partition_epoch for s in outcome.written.values()} == {1}
    read = await store.read_states(outcome.written)
    assert read.found == outcome.written


async def test_an_election_raises_controller_moved_if_the_brokers_earlier_session_holds_the_controller_znode(
    world: World,
) -> None:
    await world.store()
    earlier, later = await world.client(), await world.client()
    await register_controller(earlier, BrokerId(1), 0)

    with pytest.raises(ControllerMoved):
        await register_controller(later, BrokerId(1), 0)


# ---- registrations


async def test_registering_a_broker_id_that_another_live_session_holds_fails_after_a_wait(world: World) -> None:
    await world.store()
    first, second = await world.client(), await world.client()
    broker = RecorderBroker(5, world.hosts)
    await broker.start()
    registrar = BrokerRegistrar(broker.broker)
    other = BrokerRegistrar(broker.broker)

    with pytest.raises(BrokerIdTaken, match="/brokers/ids/5"):
        await registrar.register(first, 1)
    with pytest.raises(BrokerIdTaken):
        await other.register_when_free(second, 2, timeout_s=0.3)

    waiting = asyncio.ensure_future(other.register_when_free(second, 2, timeout_s=10))
    await broker.stop()
    epoch = await waiting
    stat = await second.exists("/brokers/ids/5")
    assert stat is not None
    assert (stat.czxid, stat.version, stat.ephemeral_owner) == (epoch, 1, second.session_id)


async def test_a_broker_replaces_the_registration_left_by_its_earlier_session(world: World) -> None:
    await world.store()
    first, second, third = await world.client(), await world.client(), await world.client()
    registrar = BrokerRegistrar(broker_id_of(5))

    epochs = [await registrar.register(c, 1) for c in (first, second, second)]
    assert epochs[0] < epochs[1] == epochs[2]

    # a session granted without our learning of it wrote the same payload
    content, _ = await second.get("/brokers/ids/5")
    await second.delete("/brokers/ids/5")
    await third.multi([Create("/brokers/ids/5", content, ephemeral=True)])
    assert await registrar.register(first, 1) > epochs[2]


async def test_a_broker_registration_znode_is_kafkas_json_version_5(world: World) -> None:
    await world.store()
    broker = await world.broker(7)

    content = json.loads((await kazoo_reads(world, "/brokers/ids/7"))[0])

    port = broker.broker.endpoints[0].port
    assert content == {
        "features": {},
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "endpoints": [f"PLAINTEXT://127.0.0.1:{port}"],
        "jmx_port": -1,
        "port": port,
        "host": "127.0.0.1",
        "version": 5,
        "timestamp": "1700000000000",
    }


# ---- the store


async def test_topics_are_written_with_id_and_configs_and_existing_topic_names_are_rejected(world: World) -> None:
    store = await world.store()
    candidate = uuid.uuid4()
    assert await store.read_or_create_cluster_id(candidate) == await store.read_or_create_cluster_id(uuid.uuid4())
    topic_id = uuid.uuid4()
    await store.create_topic("a", assignment(1, 2), topic_id, {"cleanup.policy": "compact"})

    with pytest.raises(TopicExists):
        await store.create_topic("a", assignment(1, 2), uuid.uuid4(), {})
    await store.client.create("/admin/delete_topics/b", None)
    with pytest.raises(TopicExists, match="deletion"):
        await store.create_topic("b", assignment(1), uuid.uuid4(), {})

    found, unreadable = await store.read_topics(["a", "nobody"])
    assert (found["a"].topic_id, found["a"].partitions, unreadable) == (topic_id, assignment(1, 2), {})
    assert await store.read_topic_configs(["a", "nobody"]) == ({"a": {"cleanup.policy": "compact"}, "nobody": {}}, {})
    await store.write_config("users", "anna/clients/app", {"x": "1"})
    assert await store.read_config("users", "anna/clients/app") == {"x": "1"}
    assert await store.read_config("users", "nobody") == {}
    assert await store.list_topics() == ["a"]


async def test_concurrent_producer_id_allocations_get_consecutive_blocks(world: World) -> None:
    store, other = await world.store(), await world.store()

    blocks = await asyncio.gather(*(s.allocate_producer_ids(BrokerId(n)) for n, s in enumerate([store, other] * 5)))

    assert sorted(b.first for b in blocks) == [1_000 * n for n in range(10)]
    assert {b.last - b.first for b in blocks} == {999}


async def test_broker_ids_generated_by_zookeeper_are_above_reserved_broker_max_id(world: World) -> None:
    store = await world.store()

    assert [await store.generate_broker_id(1_000) for _ in range(3)] == [1_001, 1_002, 1_003]


async def test_the_feature_znode_is_created_or_disabled_as_the_inter_broker_protocol_requires(world: World) -> None:
    await world.store()
    client = await world.client()
    store = ControllerStore(client, await register_controller(client, BrokerId(1), 0))

    await store.set_up_features(2, enabled=True)
    assert json.loads((await kazoo_reads(world, "/feature"))[0]) == {"version": 2, "status": 1, "features": {}}
    await client.set("/feature", b'{"version":2,"status":1,"features":{"f":{"max_version_level":3}}}')
    await store.set_up_features(2, enabled=True)
    assert (await kazoo_reads(world, "/feature"))[1] == 1  # nothing to change
    await store.set_up_features(1, enabled=False)
    assert json.loads((await kazoo_reads(world, "/feature"))[0]) == {"version": 1, "status": 0, "features": {}}


async def test_a_zookeeper_multi_over_the_packet_limit_is_split(world: World) -> None:
    await world.store()
    client = await world.client()
    store = ControllerStore(client, await register_controller(client, BrokerId(1), 0))

    results = await store.write([Create(f"/big-{n}", b"x" * 150_000) for n in range(10)])

    assert {r.code for r in results} == {ZkCode.OK}
