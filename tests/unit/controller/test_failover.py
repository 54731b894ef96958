"""Failover: what the new controller reads, deletes and sends, in which order."""

import pytest
from tests.support.controller_nodes import Nodes
from tests.support.controller_room import Room

from klamm.controller.control_requests import LeaderAndIsrItem
from klamm.controller.events import TopicDeletion
from klamm.controller.handlers.replicas import replicas_new
from klamm.controller.handlers.topic_deletion import on_topic_deletion
from klamm.controller.settings import ControllerSettings
from klamm.controller.states import PartitionState, ReplicaState
from klamm.controller.watches import EVENT_OF_CHILDREN, EVENT_OF_REQUEST
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, parse_topic_partition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.wire.messages import AlterPartitionRequest
from klamm.zk import znodes
from klamm.zk.acl import Acl, Permission
from klamm.zk.admin_znodes import decode_features
from klamm.zk.errors import ZkCode
from klamm.zk.operations import Create, Delete, Op, Set


async def take_over(room: Room) -> list[str]:
    """Begin another term; returns the requests of its failover."""
    room.channels.take()
    await room.become_controller()
    return room.channels.take()


async def test_controller_failover_sends_the_broker_list_before_any_leader_and_isr() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})

    requests = await take_over(room)

    assert requests == [
        "UMR -> 1,2,3",
        "LISR a-0=1/[1,2,3]/0/0 -> 1,2,3",
        "UMR a-0=1/[1,2,3]/0/0 -> 1,2,3",
    ]
    assert room.partition("a-0").state is PartitionState.ONLINE


async def test_controller_failover_takes_a_dead_brokers_replicas_offline_and_out_of_the_isrs() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)], "b": [(2, 3)]})
    room.kill(3)

    await take_over(room)

    assert room.now("a-0") == "1 / [1,2] / 1 / 1"
    assert room.now("b-0") == "2 / [2] / 1 / 1"
    assert room.term.context.replicas_on(BrokerId(3))[room.partition("a-0")] is ReplicaState.OFFLINE


async def test_a_new_controller_elects_leaders_before_it_takes_dead_followers_out_of_isrs() -> None:
    room = await Room.open(topics={"a": [(2, 1, 3)], "b": [(1, 2, 3)]})
    room.kill(1)
    room.ensemble.multis.clear()

    requests = await take_over(room)

    written = [
        (op.path.split("/")[3], znodes.decode_state(parse_topic_partition("a-0"), op.data, 0).leader)
        for ops in room.ensemble.multis
        for op in ops
        if isinstance(op, Set) and op.path.endswith("/state")
    ]
    assert written == [("b", -1), ("b", 2), ("a", 2)]
    told = [request for request in requests if request.startswith("LISR")]
    assert told == [
        "LISR a-0=2/[2,1,3]/0/0 b-0=1/[1,2,3]/0/0 -> 2,3",
        "LISR b-0=2/[2,3]/2/2 -> 2,3",
        "LISR a-0=2/[2,3]/1/1 -> 2,3",
    ]


async def test_failover_sends_unchanged_partition_states_with_the_new_controller_epoch_without_writing() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    room.write_state("a-0", LeaderAndIsr(BrokerId(1), 0, (BrokerId(1), BrokerId(2)), 1))
    room.kill(3)

    await room.become_controller()

    told = [
        item.states[p] for _, item in room.channels.items if isinstance(item, LeaderAndIsrItem) for p in item.states
    ]
    assert [state.controller_epoch for state in told] == [1, 1, 2, 2]
    assert room.stored("a-0").controller_epoch == 1


async def test_failover_removes_notification_znodes_left_from_the_previous_controller() -> None:
    room = await Room.open()
    parents = (znodes.LOG_DIR_EVENTS, znodes.ISR_CHANGES)
    for parent in parents:
        room.ensemble.apply([Create(f"{parent}/x", b"rubbish")])

    await take_over(room)

    assert not any(room.ensemble.nodes[parent].children for parent in parents)


async def test_controller_failover_sets_every_zookeeper_watch_of_a_controller() -> None:
    nodes = Nodes()
    await nodes.start(1)
    nodes.ensemble.apply([Create(f"{znodes.ISR_CHANGES}/x", b"rubbish")])
    await nodes.start(2)
    await nodes.topic("a", [(1, 2)])

    [active] = nodes.active
    client, other = nodes.clients[active], nodes.clients[3 - active]
    assert EVENT_OF_CHILDREN.keys() <= client.child_watches
    single = {znodes.CONTROLLER, "/brokers/ids/1", "/brokers/ids/2", "/brokers/topics/a"}
    assert EVENT_OF_REQUEST.keys() | single <= client.data_watches
    assert other.data_watches == frozenset({znodes.CONTROLLER})
    assert not other.child_watches
    await nodes.close()


async def test_controller_failover_sets_a_zookeeper_watch_on_every_topic() -> None:
    room = await Room.open(topics={f"t{n}": [(1,)] for n in range(120)})

    assert {znodes.topic_path(f"t{n}") for n in range(120)} <= room.client.data_watches


async def test_a_controller_becomes_active_although_all_registered_brokers_are_dead() -> None:
    room = await Room.open(topics={"a": [(1, 2)]})
    for number in (1, 2, 3):
        room.kill(number)

    assert await take_over(room) == []
    assert room.now("a-0") == "-1 / [2] / 2 / 2"


async def test_an_unreadable_partition_state_does_not_stop_the_failover_of_other_partitions() -> None:
    room = await Room.open(topics={"a": [(1, 2)], "b": [(1, 2)]})
    path = znodes.state_path(room.partition("a-0"))
    room.ensemble.apply([Set(path, b"rubbish")])

    await take_over(room)

    assert room.partition("a-0").leadership is None
    assert room.now("b-0") == "1 / [1,2] / 0 / 0"


@pytest.mark.parametrize(
    ("ibp", "version", "enabled"), [((3, 9, 0), 2, True), ((3, 2, 0), 1, True), ((2, 6, 0), 1, False)]
)
async def test_controller_failover_writes_the_feature_znode_of_its_inter_broker_protocol_version(
    ibp: tuple[int, int, int], version: int, enabled: bool
) -> None:
    room = await Room.open(settings=ControllerSettings(BrokerId(1), ibp=ibp))

    assert decode_features(room.ensemble.nodes["/feature"].data) == (version, enabled, {})


async def test_failover_reads_the_feature_znode_again_after_a_concurrent_write() -> None:
    room = await Room.open()
    room.ensemble.apply([Delete("/feature")])
    original = room.client.create

    async def beaten(path: str, data: bytes | None, **options: object) -> object:
        room.ensemble.apply([Create("/feature", b'{"version":1,"status":1,"features":{"f":{"max_version_level":3}}}')])
        return await original(path, data, **options)  # type: ignore[arg-type]

    room.client.create = beaten  # type: ignore[method-assign, assignment]
    await room.term.store.set_up_features(2, enabled=True)

    assert decode_features(room.ensemble.nodes["/feature"].data) == (2, True, {"f": 3})


async def test_the_first_state_of_a_partition_is_created_after_its_parent_znodes() -> None:
    room = await Room.open()
    await room.write_topic("a", [(1,), (2,)])
    room.ensemble.multis.clear()
    await take_over(room)

    paths = [op.path for ops in room.ensemble.multis for op in ops if op.path.startswith("/brokers/topics/a")]
    assert paths == [
        "/brokers/topics/a/partitions",
        "/brokers/topics/a/partitions/0",
        "/brokers/topics/a/partitions/1",
        "/brokers/topics/a/partitions/0/state",
        "/brokers/topics/a/partitions/1/state",
    ]
    assert all(isinstance(op, Op) for ops in room.ensemble.multis for op in ops)


async def test_a_new_controller_writes_partition_states_that_the_previous_controller_left_unwritten() -> None:
    room = await Room.open(brokers=(), topics={name: [(1,)] for name in "abcd"})
    begun = [(znodes.partitions_path(name), f"{znodes.partitions_path(name)}/0") for name in "abc"]
    room.ensemble.apply([Create(path) for paths in begun for path in paths])
    await room.register(1)

    await room.become_controller()

    assert [room.now(f"{name}-0") for name in "abcd"] == ["1 / [1] / 0 / 0"] * 4


async def test_a_new_replica_gets_leader_and_isr_with_is_new_unless_named_as_leader() -> None:
    room = await Room.open(topics={"a": [(1, 2)]})
    p = room.partition("a-0")
    for broker in (1, 3):
        room.term.context.replica_states.setdefault(BrokerId(broker), {})[p] = ReplicaState.NON_EXISTENT

    await replicas_new(room.term, {BrokerId(1): [p], BrokerId(3): [p]})

    assert room.channels.take() == ["LISR a-0=1/[1,2]/0/0+new -> 3", "UMR a-0=1/[1,2]/0/0 -> 1,2,3"]
    assert room.term.context.replicas_on(BrokerId(3))[p] is ReplicaState.NEW
    assert room.term.context.replicas_on(BrokerId(1))[p] is ReplicaState.NON_EXISTENT
    [refused] = [e for e in room.entries("refused") if e.facts["what"] == "new replica"]
    assert refused.facts["why"] == "a new replica cannot be the leader already"


async def test_an_invalid_partition_state_transition_is_refused_and_other_partitions_proceed() -> None:
    room = await Room.open(topics={"a": [(1, 2), (1, 2)]})
    first, second = room.partition("a-0"), room.partition("a-1")
    room.term.context.replica_states[BrokerId(2)][first] = ReplicaState.NON_EXISTENT

    await replicas_new(room.term, {BrokerId(2): [first, second]})

    assert room.term.context.replicas_on(BrokerId(2))[second] is ReplicaState.ONLINE
    assert room.entries("refused")[-1].facts["partitions"] == {"a": [1]}


async def test_the_caller_of_a_failed_controller_event_gets_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes()
    controller = await nodes.start(1)
    await nodes.settle()
    epoch = nodes.ensemble.nodes["/brokers/ids/1"].czxid
    nodes.ensemble.apply([Set(znodes.PRODUCER_ID_BLOCK, b"rubbish")])

    assert (await controller.allocate_producer_ids(BrokerId(1), epoch)).error is ErrorCode.UNKNOWN_SERVER_ERROR
    monkeypatch.setattr("klamm.controller.handlers.isr.check_sender", lambda *a: 1 / 0)
    answer = await controller.alter_partition(AlterPartitionRequest(), 3)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    await nodes.settle()
    assert nodes.active == [1]
    await nodes.close()


T0 = b'{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[1,2,3]}]}'
NO_WRITES = (Acl(Permission.READ | Permission.CREATE, "world", "anyone"),)
KEPT: dict[str, tuple[list[Op], str]] = {
    "a deletion asked for": (
        [Create("/admin/delete_topics/gone", b""), Create("/admin/delete_topics/gone/x", b"")],
        "/admin/delete_topics/gone: it cannot be removed: NOT_EMPTY",
    ),
    "a list of elections": (
        [Create(znodes.PREFERRED_ELECTION, T0), Create(f"{znodes.PREFERRED_ELECTION}/x", b"")],
        "/admin/preferred_replica_election: /admin/preferred_replica_election cannot be removed: NOT_EMPTY",
    ),
    "an unreadable list of reassignments": (
        [Create(znodes.REASSIGN_PARTITIONS, b"rubbish"), Create(f"{znodes.REASSIGN_PARTITIONS}/x", b"")],
        "/admin/reassign_partitions: /admin/reassign_partitions cannot be removed: NOT_EMPTY",
    ),
    "a list of reassignments": (
        [Create(znodes.REASSIGN_PARTITIONS, T0), Create(f"{znodes.REASSIGN_PARTITIONS}/x", b"")],
        "/admin/reassign_partitions: /admin/reassign_partitions cannot be removed: NOT_EMPTY",
    ),
    "a topic without an id": (
        [Create("/brokers/topics/old", b'{"version":1,"partitions":{"0":[1]}}', acl=NO_WRITES)],
        "topic id: ZooKeeper answered NO_AUTH; the topic is used without a topic id",
    ),
}


@pytest.mark.parametrize(("made", "told"), KEPT.values(), ids=KEPT)
async def test_request_znodes_that_cannot_be_removed_do_not_end_the_controllers_term(made: list[Op], told: str) -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)], "b": [(1, 2, 3)]})
    assert all(r.code is ZkCode.OK for r in room.ensemble.apply(made))

    await room.become_controller()

    assert told in [f"{e.facts['what']}: {e.facts['why']}" for e in room.entries("refused")]
    assert all(p.state is PartitionState.ONLINE for p in room.term.context.partitions())


async def test_a_topic_deletion_request_znode_that_cannot_be_removed_does_not_block_other_topics() -> None:
    room = await Room.open(topics={"a": [(1,)]})
    asked = ("/admin/delete_topics/0-gone", "/admin/delete_topics/0-gone/x", "/admin/delete_topics/a")
    room.ensemble.apply([Create(path, b"") for path in asked])

    requests = await room.handle(on_topic_deletion, TopicDeletion())

    assert [request for request in requests if "+delete" in request] == ["SR a-0@-2+delete -> 1"]


async def test_a_pending_deletion_znode_that_cannot_be_removed_is_journalled() -> None:
    room = await Room.open(topics={"a": [(1,)]})
    topic_id = room.term.context.topics["a"].id
    assert topic_id is not None
    path = znodes.pending_deletion_path(1, topic_id)
    record = b'{"version":1,"topic":"a","partitions":[0]}'
    made = [Create("/klamm", b""), Create("/klamm/pending_deletions", b""), Create("/klamm/pending_deletions/1", b"")]
    room.ensemble.apply([*made, Create(path, record), Create(f"{path}/x", b"")])

    await room.become_controller()

    assert [e.facts["why"] for e in room.entries("refused") if e.facts["what"] == path] == [
        f"{path} cannot be removed: NOT_EMPTY"
    ]


async def test_controller_failover_creates_persistent_znodes_missing_after_a_partial_zookeeper_restore(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("klamm.controller.controller_election.ELECTION_BACKOFF_S", 0)
    nodes = Nodes()
    await nodes.start(1)
    await nodes.settle()
    nodes.ensemble.apply([Delete(znodes.LOG_DIR_EVENTS), Delete(znodes.CONTROLLER)])

    await nodes.eventually(lambda: bool(nodes.journal(1, "failed")))
    await nodes.eventually(lambda: nodes.active == [1] and znodes.LOG_DIR_EVENTS in nodes.ensemble.nodes)
    await nodes.settle()

    assert len(nodes.journal(1, "failed")) == 1
    assert nodes.active == [1]
    await nodes.close()
