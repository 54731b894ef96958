"""`klamm replicas verify` where brokers stop meanwhile: each is waited for once, however many partitions it has."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from tests.support.scripted_brokers import ScriptedConnection, ScriptedWorld
from tests.unit.spark.scripts import log, scripted

from klamm.audit.replicas.brokers import NOT_RUNNING, ReplicaBrokers
from klamm.audit.replicas.fetched import MAX_REFUSED_S, FetchedReplicaLog
from klamm.audit.replicas.verification import Verified, verify_partition
from klamm.cli.commands.replicas import _print_unavailable
from klamm.client.blocking import BlockingClient, BlockingSettings
from klamm.model.cluster import Address
from klamm.model.ids import BrokerId, TopicPartition
from klamm.wire.messages import ListOffsetsRequest, MetadataRequest

TIMEOUT_S = 30.0
STOPPED, LIVE = BrokerId(1), BrokerId(2)
ORDERS = [TopicPartition("orders", n) for n in range(10)]


def cluster(leader: int) -> ScriptedWorld:
    """The partitions of orders, all led by one broker; broker 1 has stopped and is still registered."""
    world = scripted(**{f"orders_{p.partition}": log(0, 10, leader) for p in ORDERS})
    world.down.add(STOPPED)
    return world


@contextmanager
def brokers(world: ScriptedWorld) -> Iterator[ReplicaBrokers]:
    """The brokers as the metadata had them at the beginning."""
    addresses = [Address(*address) for address in world.cluster.brokers.values()]
    with BlockingClient(world, addresses, BlockingSettings("test", 5.0, TIMEOUT_S)) as client:
        client.run(client.cluster.refresh(None))
        yield ReplicaBrokers(client, TIMEOUT_S)


def verify_all(found: ReplicaBrokers, replicas: Sequence[BrokerId] = (STOPPED, LIVE)) -> list[Verified]:
    """Verify each partition."""
    return [
        verify_partition(p, [FetchedReplicaLog(found, b, p, None, is_compacted=False) for b in replicas])
        for p in ORDERS
    ]


def test_a_registered_broker_that_refuses_connections_is_waited_for_once() -> None:
    world = cluster(leader=LIVE)
    with brokers(world) as found:
        results = verify_all(found)

    assert world.now <= MAX_REFUSED_S
    (reason,) = {r.unavailable for r in results}
    assert "one:9092: connection refused. Check that the brokers run" in reason[0]
    assert {r.end for r in results} == {10}  # the other replica was read


def test_a_broker_that_stops_meanwhile_is_not_waited_for_once_it_is_not_registered() -> None:
    world = cluster(leader=LIVE)

    def unregister(_: int, request: Any) -> None:
        if isinstance(request, MetadataRequest):
            world.cluster.brokers.pop(STOPPED, None)

    with brokers(world) as found:
        world.cluster.on_request = unregister
        results = verify_all(found)

    assert world.now < 1
    assert {r.unavailable for r in results} == {(f"broker 1: {NOT_RUNNING}",)}


def test_leaders_elected_after_a_broker_stopped_are_looked_up() -> None:
    world = cluster(leader=STOPPED)

    def elect(_: int, request: Any) -> None:
        if isinstance(request, MetadataRequest) and world.now > 1:
            world.cluster.brokers.pop(STOPPED, None)
            for each in world.cluster.logs.values():
                each.leader = LIVE

    with brokers(world) as found:
        world.cluster.on_request = elect
        results = verify_all(found, [LIVE])

    assert world.now < 3
    assert [(r.end, r.unavailable) for r in results] == [(10, ())] * len(ORDERS)


@pytest.mark.parametrize("leader", [STOPPED, -1])
def test_partitions_without_a_leader_wait_together_for_an_election(leader: int) -> None:
    world = cluster(leader)
    with brokers(world) as found:
        results = verify_all(found)

    assert world.now < TIMEOUT_S + MAX_REFUSED_S + len(ORDERS)
    assert all(len(r.unavailable) == 2 for r in results)


def test_a_leader_whose_machine_does_not_answer_is_waited_for_once() -> None:
    world = cluster(leader=STOPPED)

    def connect(host: str, port: int, connect_timeout_s: float, answer_timeout_s: float) -> ScriptedConnection:
        if host == world.cluster.brokers[STOPPED][0]:
            world.sleep(connect_timeout_s)
            raise TimeoutError("timed out")
        return ScriptedWorld.connect(world, host, port, connect_timeout_s, answer_timeout_s)

    with brokers(world) as found, patch.object(world, "connect", connect):
        results = verify_all(found)

    assert world.now < 2 * TIMEOUT_S
    assert "one:9092: timed out. Check that the broker runs" in results[-1].unavailable[1]


def test_a_broker_that_does_not_have_its_replicas_is_waited_for_once() -> None:
    world = cluster(leader=LIVE)
    world.down.clear()
    with brokers(world) as found:
        results = verify_all(found)

    assert world.now < TIMEOUT_S + len(ORDERS)
    assert all("NOT_LEADER_OR_FOLLOWER" in r.unavailable[0] for r in results)


def test_a_topic_that_is_deleted_meanwhile_is_not_compared() -> None:
    world = cluster(LIVE)

    def delete(_: int, request: Any) -> None:
        if isinstance(request, ListOffsetsRequest):
            world.cluster.delete_topic("orders")

    with brokers(world) as found:
        world.cluster.on_request = delete
        results = verify_all(found, [LIVE])

    assert {r.unavailable for r in results} == {("broker 2: topic orders does not exist",)}


def test_a_broker_that_cannot_be_read_is_named_once_with_its_partitions(capsys: pytest.CaptureFixture[str]) -> None:
    _print_unavailable([Verified(p, 0, 0, (), (f"broker 1: {NOT_RUNNING}",)) for p in ORDERS])

    assert capsys.readouterr().out == (
        "broker 1: it is not running. Start it, and verify again. "
        "Not compared: orders-0, orders-1, orders-2, orders-3, orders-4 and 5 more.\n"
    )
