"""Every transition of both state machines: valid ones happen, with their effects, and others change nothing.

Rows as in Kafka's ReplicaStateMachineTest and PartitionStateMachineTest.
"""

from collections.abc import Sequence
from itertools import product

import pytest
from tests.support.controller_room import Room

from klamm.controller.context import ControllerContext
from klamm.controller.decisions.elections import elect_offline
from klamm.controller.events import BrokerChange
from klamm.controller.handlers.brokers import on_broker_change
from klamm.controller.handlers.partitions import bring_online
from klamm.controller.handlers.replicas import replicas_new, replicas_offline, replicas_online
from klamm.controller.settings import ControllerSettings
from klamm.controller.states import PartitionState, ReplicaState
from klamm.controller.topic import Partition
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId
from klamm.zk import znodes
from klamm.zk.operations import Create, Delete, Op

FIVE = BrokerId(5)

KAFKAS_MOVES = """
    NonExistentPartition>NewPartition
    NewPartition>OnlinePartition  NewPartition>OfflinePartition
    OnlinePartition>OnlinePartition  OnlinePartition>OfflinePartition
    OfflinePartition>OnlinePartition  OfflinePartition>OfflinePartition  OfflinePartition>NonExistentPartition

    NonExistentReplica>NewReplica
    NewReplica>OnlineReplica  NewReplica>OfflineReplica
    OnlineReplica>OnlineReplica  OnlineReplica>OfflineReplica
    OfflineReplica>OnlineReplica  OfflineReplica>OfflineReplica  OfflineReplica>ReplicaDeletionStarted
    OfflineReplica>ReplicaDeletionIneligible
    ReplicaDeletionStarted>ReplicaDeletionSuccessful  ReplicaDeletionStarted>ReplicaDeletionIneligible
    ReplicaDeletionSuccessful>NonExistentReplica
    ReplicaDeletionIneligible>OnlineReplica  ReplicaDeletionIneligible>OfflineReplica
"""


def context_with_a_partition() -> tuple[ControllerContext, Partition]:
    context = ControllerContext(50)
    return context, context.add_partition(context.add_topic("t", None), 0, ReplicaAssignment((FIVE,)))


@pytest.mark.parametrize(("now", "target"), list(product(PartitionState, repeat=2)))
def test_a_partition_makes_only_the_state_transitions_that_kafka_allows(
    now: PartitionState, target: PartitionState
) -> None:
    context, partition = context_with_a_partition()
    context.start(partition, now)

    refused = context.move([partition], target)

    is_allowed = f"{now}>{target}" in KAFKAS_MOVES.split()
    assert (refused, partition.state) == (([], target) if is_allowed else ([partition], now))
    for state, listed in context.in_state.items():
        assert (partition in listed) == (partition.state is state)


@pytest.mark.parametrize(("now", "target"), list(product(ReplicaState, repeat=2)))
def test_a_replica_makes_only_the_state_transitions_that_kafka_allows(now: ReplicaState, target: ReplicaState) -> None:
    context, partition = context_with_a_partition()
    context.replica_states[FIVE][partition] = now

    refused = context.move_replicas(FIVE, [partition], target)

    is_allowed = f"{now}>{target}" in KAFKAS_MOVES.split()
    assert (refused, context.replicas_on(FIVE)[partition]) == (([], target) if is_allowed else ([partition], now))


# ---- what replicas are told


async def room_with(now: ReplicaState, broker: int, *, led: bool = True) -> tuple[Room, Partition]:
    """Partition `a-0` on 1 and 2, led by 1 unless `led` is false; one replica in state `now`."""
    room = await Room.open(topics={"a": [(1, 2)]} if led else {"a": [(8, 9)]})
    partition = room.partition("a-0")
    if not led:
        room.term.context.put_assignment(partition, ReplicaAssignment((BrokerId(1), BrokerId(2))))
    room.term.context.replica_states[BrokerId(broker)][partition] = now
    return room, partition


TOLD = ["LISR a-0=1/[1,2]/0/0 -> 2", "UMR a-0=1/[1,2]/0/0 -> 1,2,3"]

ONLINE = {
    "NewReplica": [],  # it was told when its partition came online
    "OnlineReplica": TOLD,
    "OfflineReplica": TOLD,
    "ReplicaDeletionIneligible": TOLD,
}


@pytest.mark.parametrize(("now", "requests"), ONLINE.items(), ids=ONLINE)
async def test_an_existing_replica_that_comes_online_gets_leader_and_isr_without_is_new(
    now: str, requests: list[str]
) -> None:
    room, partition = await room_with(ReplicaState(now), 2)

    await replicas_online(room.term, {BrokerId(2): [partition]})

    assert room.term.context.replicas_on(BrokerId(2))[partition] is ReplicaState.ONLINE
    assert room.channels.take() == requests


async def test_a_new_replica_of_a_never_led_partition_gets_stop_replica_when_going_offline() -> None:
    room, partition = await room_with(ReplicaState.NEW, 2, led=False)

    await replicas_offline(room.term, {BrokerId(2): [partition]})

    assert room.term.context.replicas_on(BrokerId(2))[partition] is ReplicaState.OFFLINE
    assert room.channels.take() == ["UMR -> 1,2,3", "SR a-0@-1 -> 2"]


async def test_a_leader_replica_that_goes_offline_leaves_the_partition_without_leader() -> None:
    room, partition = await room_with(ReplicaState.ONLINE, 1)

    await replicas_offline(room.term, {BrokerId(1): [partition]})

    assert room.term.context.replicas_on(BrokerId(1))[partition] is ReplicaState.OFFLINE
    assert room.now("a-0") == "-1 / [2] / 1 / 1"
    assert room.channels.take() == ["LISR a-0=-1/[2]/1/1 -> 2", "UMR a-0=-1/[2]/1/1 -> 1,2,3", "SR a-0@0 -> 1"]


@pytest.mark.parametrize("target", [ReplicaState.ONLINE, ReplicaState.OFFLINE])
async def test_a_replica_in_state_nonexistent_gets_no_control_request(target: ReplicaState) -> None:
    room, partition = await room_with(ReplicaState.NON_EXISTENT, 2)
    step = replicas_online if target is ReplicaState.ONLINE else replicas_offline

    await step(room.term, {BrokerId(2): [partition]})

    assert room.term.context.replicas_on(BrokerId(2))[partition] is ReplicaState.NON_EXISTENT
    assert (room.channels.take(), room.now("a-0")) == ([], "1 / [1,2] / 0 / 0")


@pytest.mark.parametrize("now", [s for s in ReplicaState if s is not ReplicaState.NON_EXISTENT], ids=str)
async def test_a_replica_that_exists_does_not_make_the_transition_to_new(now: ReplicaState) -> None:
    room, partition = await room_with(now, 2)

    await replicas_new(room.term, {BrokerId(2): [partition]})

    assert room.term.context.replicas_on(BrokerId(2))[partition] is now
    assert room.channels.take() == []


async def test_controller_failover_starts_replicas_online_only_on_live_brokers() -> None:
    room = await Room.open(topics={"a": [(1, 2)], "b": [(9,)]})
    room.kill(2)
    await room.become_controller()

    context = room.term.context
    assert context.replicas_on(BrokerId(1))[room.partition("a-0")] is ReplicaState.ONLINE
    assert context.replicas_on(BrokerId(2))[room.partition("a-0")] is ReplicaState.OFFLINE
    assert context.replicas_on(BrokerId(9))[room.partition("b-0")] is ReplicaState.OFFLINE
    assert room.partition("b-0").leadership is None


# ---- partitions that come online, or cannot


async def waiting_partition() -> tuple[Room, Partition]:
    """`a-0` on broker 3, which registered after the topic was created: New, and able to get a leader."""
    room = await Room.open(brokers=(1, 2), topics={"a": [(3,)]})
    await room.register(3)
    return room, room.partition("a-0")


async def test_replicas_of_a_new_partition_get_leader_and_isr_with_is_new() -> None:
    room, partition = await waiting_partition()
    assert partition.state is PartitionState.NEW

    requests = await room.handle(on_broker_change, BrokerChange())

    assert room.partition("a-0").state is PartitionState.ONLINE
    assert room.now("a-0") == "3 / [3] / 0 / 0"
    assert requests[-2:] == ["LISR a-0=3/[3]/0/0+new -> 3", "UMR a-0=3/[3]/0/0 -> 1,2,3"]


async def test_a_partition_in_state_nonexistent_does_not_come_online() -> None:
    room = await Room.open()
    context = room.term.context
    partition = context.add_partition(context.add_topic("a", None), 0, ReplicaAssignment((BrokerId(1),)))

    await bring_online(room.term, [partition], elect_offline)

    assert (partition.state, partition.leadership) == (PartitionState.NON_EXISTENT, None)
    assert room.channels.take() == []


def lost_connection(ops: Sequence[Op]) -> None:
    if any(op.path.endswith("/state") for op in ops):
        raise KlammError("the connection is lost")


async def test_a_partition_stays_new_if_its_first_state_cannot_be_written() -> None:
    room, partition = await waiting_partition()
    room.ensemble.before_multi = lost_connection

    with pytest.raises(KlammError):
        await room.handle(on_broker_change, BrokerChange())

    assert (partition.state, partition.leadership) == (PartitionState.NEW, None)
    assert not any("a-0" in r for r in room.channels.take())

    room.ensemble.before_multi = lambda ops: None
    await room.become_controller()
    assert room.now("a-0") == "3 / [3] / 0 / 0"


async def test_a_new_partition_adopts_a_first_state_written_by_another_controller() -> None:
    """Kafka leaves the partition New until the next failover."""
    room, partition = await waiting_partition()
    above: list[Op] = [Create(znodes.partitions_path("a")), Create(znodes.partition_path(partition))]
    state = b'{"controller_epoch":1,"leader":9,"version":1,"leader_epoch":4,"isr":[3,9]}'
    room.ensemble.apply([*above, Create(znodes.state_path(partition), state)])

    await room.handle(on_broker_change, BrokerChange())

    assert (partition.state, room.now("a-0")) == (PartitionState.ONLINE, "3 / [3] / 5 / 1")


async def led_by_a_dead_broker(settings: ControllerSettings | None = None) -> tuple[Room, Partition]:
    room = await Room.open(topics={"a": [(1, 2)]}, settings=settings)
    room.kill(1)
    return room, room.partition("a-0")


async def test_a_partition_stays_offline_if_its_election_cannot_be_written_to_zookeeper() -> None:
    room, partition = await led_by_a_dead_broker()
    room.ensemble.before_multi = lost_connection

    with pytest.raises(KlammError):
        await room.handle(on_broker_change, BrokerChange())

    assert (partition.state, partition.leader) == (PartitionState.OFFLINE, 1)
    assert room.channels.take() == []


async def test_a_partition_with_an_unreadable_state_znode_stays_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only with leaders of an old protocol an election begins with reading."""
    room, partition = await led_by_a_dead_broker(ControllerSettings(BrokerId(1), ibp=(2, 6, 0)))

    async def lost(_: object) -> None:
        raise KlammError("the connection is lost")

    monkeypatch.setattr(room.term.store, "read_states", lost)
    with pytest.raises(KlammError):
        await room.handle(on_broker_change, BrokerChange())

    assert (partition.state, partition.leader) == (PartitionState.OFFLINE, 1)
    assert room.channels.take() == []


@pytest.mark.parametrize(("ibp", "why"), [((3, 9, 0), "ZooKeeper answered NO_NODE"), ((2, 6, 0), "no state znode")])
async def test_a_partition_with_a_deleted_state_znode_stays_offline(ibp: tuple[int, int, int], why: str) -> None:
    room, partition = await led_by_a_dead_broker(ControllerSettings(BrokerId(1), ibp=ibp))
    room.ensemble.apply([Delete(znodes.state_path(partition))])

    requests = await room.handle(on_broker_change, BrokerChange())

    assert (partition.state, partition.leader) == (PartitionState.OFFLINE, 1)
    assert not any(r.startswith("LISR") for r in requests)
    assert why in [e.facts["why"] for e in room.entries("refused")]
