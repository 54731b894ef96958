"""Controller elections with races and lost answers, registrations, and other methods of the store."""

import asyncio
import uuid
from collections.abc import Callable

import pytest
from tests.support.controller_room import broker
from tests.support.memory_zookeeper import MemoryEnsemble, MemoryZooKeeper

from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.zk.admin_znodes import ProducerIdBlock, encode_producer_id_block
from klamm.zk.controller_store import ControllerStore
from klamm.zk.election import ControllerEpoch, register_controller, replace_controller
from klamm.zk.errors import ZkCode, ZkError
from klamm.zk.fenced import ControllerMoved
from klamm.zk.jute import Stat
from klamm.zk.operations import Create, Delete, Op, Set
from klamm.zk.registrar import BrokerIdTaken, BrokerRegistrar
from klamm.zk.store import Store, TopicExists
from klamm.zk.znodes import CONTROLLER, CONTROLLER_EPOCH, PRODUCER_ID_BLOCK, encode_controller


@pytest.fixture
def ensemble() -> MemoryEnsemble:
    return MemoryEnsemble()


async def elect(client: MemoryZooKeeper, number: int = 1) -> ControllerEpoch:
    return await register_controller(client, BrokerId(number), 0)


def once(ensemble: MemoryEnsemble, act: Callable[[], object]) -> None:
    """Call `act` just before the next multi."""

    def before(_: object) -> None:
        ensemble.before_multi = lambda ops: None
        act()

    ensemble.before_multi = before


async def test_the_first_controller_epoch_is_1_and_each_election_adds_1(ensemble: MemoryEnsemble) -> None:
    assert await elect(ensemble.client()) == (1, 1)
    ensemble.apply([Delete(CONTROLLER)])
    assert await elect(ensemble.client()) == (2, 2)


async def test_a_controller_election_does_not_replace_a_live_controller(ensemble: MemoryEnsemble) -> None:
    await elect(ensemble.client(), 1)

    with pytest.raises(ControllerMoved, match="broker 1"):
        await elect(ensemble.client(), 2)
    assert ensemble.nodes[CONTROLLER_EPOCH].data == b"1"


async def take(client: MemoryZooKeeper, number: int, epoch: int) -> ControllerEpoch:
    """Replace the controller of this epoch."""
    return await replace_controller(client, BrokerId(number), 0, epoch)


async def test_replacing_the_controller_changes_the_controller_znode_without_a_gap(ensemble: MemoryEnsemble) -> None:
    await elect(ensemble.client(), 1)
    zxid = ensemble.zxid

    assert await take(ensemble.client(), 2, 1) == (2, 2)
    assert ensemble.zxid == zxid + 1
    assert b'"brokerid":2' in (ensemble.nodes[CONTROLLER].data or b"")


async def test_replacing_the_controller_fails_if_the_controller_epoch_changed_meanwhile(
    ensemble: MemoryEnsemble,
) -> None:
    await elect(ensemble.client(), 1)
    with pytest.raises(ControllerMoved, match="epoch changed from 5"):
        await take(ensemble.client(), 2, 5)

    third = ensemble.client()
    once(ensemble, lambda: ensemble.apply([Delete(CONTROLLER), Create(CONTROLLER, encode_controller(BrokerId(3), 0)),
                                           Set(CONTROLLER_EPOCH, b"2")], third.session_id))  # fmt: skip
    with pytest.raises(ControllerMoved, match="broker 3"):
        await take(ensemble.client(), 2, 1)


async def test_a_controller_election_whose_zookeeper_reply_was_lost_counts_as_won(ensemble: MemoryEnsemble) -> None:
    client = ensemble.client()

    def apply_unseen() -> None:
        ops: list[Op] = [
            Create(CONTROLLER, encode_controller(BrokerId(1), 0), ephemeral=True),
            Set(CONTROLLER_EPOCH, b"1", 0),
        ]
        ensemble.apply(ops, client.session_id)

    once(ensemble, apply_unseen)
    assert await elect(client) == (1, 1)


async def test_an_election_is_lost_if_another_session_with_the_same_broker_id_won(
    ensemble: MemoryEnsemble,
) -> None:
    other = ensemble.client()

    def other_session_wins() -> None:
        ops: list[Op] = [
            Create(CONTROLLER, encode_controller(BrokerId(1), 0), ephemeral=True),
            Set(CONTROLLER_EPOCH, b"1", 0),
        ]
        ensemble.apply(ops, other.session_id)

    once(ensemble, other_session_wins)
    with pytest.raises(ControllerMoved):
        await elect(ensemble.client())


async def test_a_controller_election_is_lost_if_another_broker_won_and_vanished_meanwhile(
    ensemble: MemoryEnsemble,
) -> None:
    await elect(ensemble.client())
    ensemble.apply([Delete(CONTROLLER)])
    once(ensemble, lambda: ensemble.apply([Set(CONTROLLER_EPOCH, b"2")]))

    with pytest.raises(ControllerMoved, match="is deleted again"):
        await elect(ensemble.client())


async def test_an_unexpected_zookeeper_error_in_a_controller_election_is_raised(ensemble: MemoryEnsemble) -> None:
    await elect(ensemble.client())
    ensemble.apply([Delete(CONTROLLER)])
    once(ensemble, lambda: ensemble.apply([Delete(CONTROLLER_EPOCH)]))

    with pytest.raises(ZkError) as caught:
        await elect(ensemble.client())
    assert caught.value.code is ZkCode.NO_NODE


async def test_a_controller_znode_written_by_a_kraft_controller_is_recognized(ensemble: MemoryEnsemble) -> None:
    ensemble.apply([Create(CONTROLLER, b'{"version":2,"brokerid":3000,"timestamp":"0","kraftControllerEpoch":7}')])

    found = await Store(ensemble.client()).read_controller()

    assert found is not None
    assert (found.broker, found.owner_session, found.is_kraft) == (3000, 0, True)


async def test_a_missing_or_malformed_controller_znode_is_read_as_no_controller(ensemble: MemoryEnsemble) -> None:
    store = Store(ensemble.client())
    assert await store.read_controller(watch=True) is None
    ensemble.apply([Create(CONTROLLER, b"rubbish")])
    assert await store.read_controller() is None


async def test_a_controller_elected_between_two_looks_is_read(
    ensemble: MemoryEnsemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = ensemble.client()
    look = client.exists

    async def exists(path: str, watch: bool = False) -> Stat | None:
        ensemble.apply([Create(CONTROLLER, encode_controller(BrokerId(2), 0))])
        return await look(path, watch)

    monkeypatch.setattr(client, "exists", exists)

    found = await Store(client).read_controller(watch=True)

    assert found is not None
    assert found.broker == 2


# ---- registration


@pytest.fixture
def registered(ensemble: MemoryEnsemble) -> MemoryEnsemble:
    ensemble.apply([Create("/brokers")])
    ensemble.apply([Create("/brokers/ids")])
    return ensemble


async def register(registrar: BrokerRegistrar, client: MemoryZooKeeper) -> int:
    return await registrar.register(client, 0)


async def test_the_broker_epoch_is_the_czxid_of_the_registration_znode(registered: MemoryEnsemble) -> None:
    epoch = await register(BrokerRegistrar(broker(5)), registered.client())

    node = registered.nodes["/brokers/ids/5"]
    assert (node.czxid, node.version) == (epoch, 1)


async def test_a_broker_registration_whose_reply_was_lost_is_recognized_by_its_session(
    registered: MemoryEnsemble,
) -> None:
    client = registered.client()
    registrar = BrokerRegistrar(broker(5))

    assert await register(registrar, client) == await register(registrar, client)


async def test_broker_registration_removes_only_a_znode_of_the_brokers_own_earlier_session(
    registered: MemoryEnsemble,
) -> None:
    ours, earlier, later = BrokerRegistrar(broker(5)), registered.client(), registered.client()
    first = await register(ours, earlier)
    assert await register(ours, later) > first

    with pytest.raises(BrokerIdTaken, match="/brokers/ids/5"):
        await register(BrokerRegistrar(broker(5, "elsewhere")), registered.client())


async def test_refused_broker_registrations_leave_nothing_in_memory(registered: MemoryEnsemble) -> None:
    registrar, client = BrokerRegistrar(broker(5)), registered.client()
    await registrar.register(client, 0)
    registered.expire(client)
    await register(BrokerRegistrar(broker(5, "elsewhere")), registered.client())

    for now_ms in range(1, 10):
        with pytest.raises(BrokerIdTaken):
            await registrar.register(registered.client(), now_ms)

    assert len(registrar._payloads) == 1


async def test_broker_registration_succeeds_if_an_existing_registration_vanishes_meanwhile(
    registered: MemoryEnsemble,
) -> None:
    other, client = registered.client(), registered.client()
    await register(BrokerRegistrar(broker(5, "elsewhere")), other)
    original = registered.apply

    def gone_after_the_refusal(ops: list[object], session: int = 0) -> list[object]:
        results = original(ops, session)  # type: ignore[arg-type]
        if results[0].code is ZkCode.NODE_EXISTS:
            registered.apply = original  # type: ignore[method-assign]
            registered.expire(other)
        return results  # type: ignore[return-value]

    registered.apply = gone_after_the_refusal  # type: ignore[method-assign, assignment]
    assert await register(BrokerRegistrar(broker(5)), client) > 0


async def test_an_unexpected_zookeeper_error_in_a_broker_registration_is_raised(ensemble: MemoryEnsemble) -> None:
    with pytest.raises(ZkError) as caught:
        await register(BrokerRegistrar(broker(5)), ensemble.client())
    assert caught.value.code is ZkCode.NO_NODE


# ---- the store


async def test_an_existing_cluster_id_is_returned_instead_of_a_new_one(ensemble: MemoryEnsemble) -> None:
    store = Store(ensemble.client())
    mine, theirs = uuid.uuid4(), uuid.uuid4()
    first = await store.read_or_create_cluster_id(theirs)

    assert await store.read_or_create_cluster_id(mine) == first


async def test_two_nodes_that_create_the_cluster_id_at_once_get_the_same_id(ensemble: MemoryEnsemble) -> None:
    stores = [Store(ensemble.client()) for _ in range(2)]
    await stores[0].client.ensure_path("/cluster")

    found = await asyncio.gather(*(store.read_or_create_cluster_id(uuid.uuid4()) for store in stores))

    assert found[0] == found[1] == await stores[0].read_or_create_cluster_id(uuid.uuid4())


async def test_allocating_a_block_beyond_the_last_producer_id_raises_an_error(ensemble: MemoryEnsemble) -> None:
    store = Store(ensemble.client())
    last = 2**63 - 1
    ensemble.apply([Create(PRODUCER_ID_BLOCK, encode_producer_id_block(ProducerIdBlock(BrokerId(1), 0, last - 1_000)))])

    assert (await store.allocate_producer_ids(BrokerId(1))).last == last
    with pytest.raises(KlammError, match="used up"):
        await store.allocate_producer_ids(BrokerId(1))


async def test_creating_a_topic_that_another_client_created_meanwhile_raises_topic_exists(
    ensemble: MemoryEnsemble,
) -> None:
    store = Store(ensemble.client())
    await store.create_top_level_paths()
    original = store.write_config

    async def and_another_creates_it(*config: object) -> None:
        await original(*config)  # type: ignore[arg-type]
        ensemble.apply([Create("/brokers/topics/a")])

    store.write_config = and_another_creates_it  # type: ignore[method-assign, assignment]
    with pytest.raises(TopicExists):
        await store.create_topic("a", {}, None, {})


async def test_malformed_topic_config_and_state_znodes_are_returned_as_unreadable(ensemble: MemoryEnsemble) -> None:
    client = ensemble.client()
    plain = Store(client)
    await plain.create_top_level_paths()
    store = ControllerStore(client, await elect(client))
    ensemble.apply([Create("/brokers/topics/a", b"x"), Create("/config/topics/a", b"x")])
    ensemble.apply([Create("/brokers/topics/a/partitions"), Create("/brokers/topics/a/partitions/0")])
    ensemble.apply([Create("/brokers/topics/a/partitions/0/state", b"x")])

    assert list((await store.read_topics(["a", "b"]))[1]) == ["a"]
    assert list((await store.read_topic_configs(["a", "b"]))[1]) == ["a"]
    read = await store.read_states([TopicPartition("a", 0), TopicPartition("a", 1)])
    assert read.found == {}
    assert "/brokers/topics/a/partitions/0/state" in read.unreadable[TopicPartition("a", 0)]
    assert read.unreadable[TopicPartition("a", 1)] == "no state znode"


async def test_writing_a_topic_znode_that_was_removed_raises_an_error_with_its_path(ensemble: MemoryEnsemble) -> None:
    client = ensemble.client()
    store = ControllerStore(client, await elect(client))

    with pytest.raises(ZkError, match="/brokers/topics/a"):
        await store.write_topic("a", None, {})
