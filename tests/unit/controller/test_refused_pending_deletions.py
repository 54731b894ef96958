"""An ACL on `/klamm` or below: work that needs a pending deletion waits and is journalled, other work goes on."""

import pytest
from tests.support.controller_room import Room
from tests.unit.controller.deleting import NO_WAITING, Deleting

from klamm.controller.events import ApiPartitionReassignment, ResumeAfterFailure, TopicDeletion
from klamm.controller.handlers.failover import on_resume_after_failure
from klamm.controller.handlers.pending_deletions import on_replicas_deleted, schedule_deletion_of_moved
from klamm.controller.handlers.reassignment_requests import on_api_reassignment
from klamm.controller.handlers.topic_deletion import on_topic_deletion
from klamm.controller.states import PartitionState
from klamm.controller.topic import Partition
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, parse_topic_partition
from klamm.zk import znodes
from klamm.zk.acl import READ_ACL, Acl, Permission
from klamm.zk.operations import Create, Delete

RECORDS = znodes.PENDING_DELETIONS
ONE, TWO = BrokerId(1), BrokerId(2)


def forbid(room: Room, *paths: str) -> None:
    """Set ACLs so that nobody may create a znode below the last of these paths."""
    room.ensemble.apply([*(Create(p) for p in paths[:-1]), Create(paths[-1], acl=READ_ACL)])


def allow(room: Room, *paths: str) -> None:
    room.ensemble.apply([Delete(paths[-1])])


FORBIDDEN = [("/klamm",), ("/klamm", RECORDS), ("/klamm", RECORDS, f"{RECORDS}/1")]


@pytest.mark.parametrize("paths", FORBIDDEN, ids=lambda paths: paths[-1])
async def test_a_reassignment_waits_until_its_pending_deletion_znode_can_be_written(
    paths: tuple[str, ...],
) -> None:
    room = await Room.open(topics={"a": [(1,)], "b": [(3,)]})
    forbid(room, *paths)
    moves = {"a-0": 2, "b-0": 2} if paths[-1].endswith("/1") else {"a-0": 2}
    targets = {parse_topic_partition(name): [BrokerId(to)] for name, to in moves.items()}
    await room.handle(on_api_reassignment, ApiPartitionReassignment(targets))
    for name in moves:
        old = room.stored(name)
        room.write_state(name, old._replace(isr=(*old.isr, TWO)))

    await room.become_controller()

    assert room.partition("a-0").replicas == (2, 1)
    assert room.partition("b-0").replicas == ((2,) if "b-0" in moves else (3,))
    assert room.partition("a-0").state is PartitionState.ONLINE
    [told] = [e for e in room.entries("refused") if "NO_AUTH" in e.facts["why"]]
    assert told.facts["partitions"] == {"a": [0]}
    assert "setAcl" in told.facts["why"]
    assert not any("+delete -> 1" in request for request in room.channels.take())
    assert room.term.store.writer.pop_refused_paths()  # it is tried again

    allow(room, *paths)
    requests = await room.handle(on_resume_after_failure, ResumeAfterFailure())
    assert room.partition("a-0").replicas == (2,)
    assert any("+delete -> 1" in request for request in requests)


async def test_a_replaced_reassignment_keeps_its_replica_if_zookeeper_refuses_to_record_the_deletion() -> None:
    room = await Room.open(topics={"a": [(1,)]})
    await room.handle(on_api_reassignment, ApiPartitionReassignment({parse_topic_partition("a-0"): [TWO]}))
    forbid(room, "/klamm")
    override = ApiPartitionReassignment({parse_topic_partition("a-0"): [BrokerId(3)]})
    await room.handle(on_api_reassignment, override)

    [refusal] = override.reply.result().refused.values()
    assert refusal.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert refusal.why.startswith(f"{RECORDS} cannot be made: NO_AUTH; an ACL forbids it: ")
    assert room.partition("a-0").assignment.adding == (2,)


async def test_a_topic_deletion_waits_until_its_pending_deletion_znode_can_be_written() -> None:
    cluster = await Deleting.open({"a": [(2,)], "b": [(1,)], "c": [(2,)]}, settings=NO_WAITING)
    forbid(cluster.room, "/klamm")
    await cluster.kill(2)
    await cluster.delete("a", "b")
    await cluster.answer(1)

    assert cluster.znodes_of("b") == []
    assert "NO_AUTH" in cluster.why("a")
    assert "setAcl" in cluster.why("a")
    assert znodes.delete_topic_path("a") in cluster.znodes_of("a")
    assert cluster.room.term.store.writer.pop_refused_paths()

    await cluster.room.become_controller()
    await cluster.do(on_topic_deletion, TopicDeletion())
    assert "NO_AUTH" in cluster.why("a")

    allow(cluster.room, "/klamm")
    await cluster.do(on_resume_after_failure, ResumeAfterFailure())
    assert cluster.znodes_of("a") == []
    assert len(cluster.pending_deletions()) == 1


@pytest.mark.parametrize("hidden", ["the list", "a broker's list", "a record"])
async def test_unreadable_pending_deletion_znodes_are_journalled_and_do_not_end_the_term(hidden: str) -> None:
    room = await Room.open(topics={"a": [(1,), (1,)]})
    first, second = room.partition("a-0"), room.partition("a-1")
    await schedule_deletion_of_moved(room.term, {ONE: [first]})
    topic_id = room.term.context.topics["a"].id
    assert topic_id is not None
    path = znodes.pending_deletion_path(1, topic_id)
    forbidden = {"the list": RECORDS, "a broker's list": f"{RECORDS}/1", "a record": path}[hidden]
    room.ensemble.unreadable.add(forbidden)

    await room.become_controller()

    [told] = [e for e in room.entries("refused") if e.facts["what"] == forbidden]
    assert told.facts["why"].startswith(f"{forbidden} cannot be read: NO_AUTH; an ACL forbids it: ")
    if forbidden != path:
        room.ensemble.unreadable.clear()  # by the time it is written
    found = room.term.context.partition("a", 1)
    assert found is not None
    refused = await schedule_deletion_of_moved(room.term, {ONE: [found]})
    assert list(refused) == ([found] if forbidden == path else [])
    data = room.ensemble.nodes[path].data
    assert data is not None
    assert b'"partitions":[0]' in data if refused else b'"partitions":[0,1]' in data
    assert _named(room) == ([] if refused else [0, 1])
    assert second.key == found.key


def _named(room: Room) -> list[int]:
    records = room.term.context.pending_deletions.get(ONE, {}).values()
    named: list[Partition] = [p for record in records for p in record.partitions.values()]
    return sorted(p.partition for p in named)


async def test_a_pending_deletion_znode_protected_by_an_acl_is_journalled_with_a_remedy() -> None:
    cluster = await Deleting.open({"a": [(2,)]}, settings=NO_WAITING)
    no_deletion = (Acl(Permission.READ | Permission.CREATE, "world", "anyone"),)
    made = [Create("/klamm"), Create(RECORDS), Create(f"{RECORDS}/2", acl=no_deletion)]
    cluster.room.ensemble.apply(list(made))
    await cluster.kill(2)
    await cluster.delete("a")
    [path] = cluster.pending_deletions()

    await cluster.start(2)
    await cluster.answer(2)

    assert cluster.room.term.context.pending_deletions == {}
    [told] = [e.facts["why"] for e in cluster.room.entries("refused") if e.facts["what"] == path]
    assert told.startswith(f"{path} cannot be removed: NO_AUTH; an ACL forbids it: ")


async def test_a_pending_deletion_recorded_again_is_not_removed_because_an_earlier_removal_was_refused() -> None:
    room = await Room.open(topics={"a": [(1,)]})
    moved = {TWO: [room.partition("a-0")]}
    await schedule_deletion_of_moved(room.term, moved)
    [record] = room.term.context.pending_deletions[TWO].values()
    path = znodes.pending_deletion_path(TWO, record.topic_id)
    room.ensemble.unwritable.add(path)
    await on_replicas_deleted(room.term, TWO, list(record.partitions.values()))
    assert path in room.ensemble.nodes

    room.ensemble.unwritable.clear()
    await schedule_deletion_of_moved(room.term, moved)  # the replica came back and is moved away again
    await room.handle(on_resume_after_failure, ResumeAfterFailure())

    assert path in room.ensemble.nodes
    assert [r.partitions.keys() for r in room.term.context.pending_deletions[TWO].values()] == [{0}]
