"""Shared by tests of reassignments: requests, ISR changes, and the assignment in the znodes."""

from tests.support.controller_room import Room, alter_partition

from klamm.controller.events import (
    ApiPartitionReassignment,
    ReassignmentAnswer,
)
from klamm.controller.handlers.isr import on_alter_partition
from klamm.controller.handlers.reassignment_requests import (
    on_api_reassignment,
)
from klamm.model.ids import BrokerId, parse_topic_partition
from klamm.zk import znodes
from klamm.zk.admin_znodes import encode_reassignment
from klamm.zk.operations import Create


def ids(*brokers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, brokers))


async def room_with(*replicas: int, brokers: tuple[int, ...] = (1, 2, 3)) -> Room:
    """A controller with partition a-0 on these replicas."""
    return await Room.open(brokers, topics={"a": [replicas or (1, 2, 3)]})


async def ask(room: Room, **targets: list[int] | None) -> tuple[ReassignmentAnswer, list[str]]:
    """Request reassignments: `a_0=[2]` moves a-0 to broker 2, None cancels; returns answer and requests sent."""
    wanted = {
        parse_topic_partition(name.replace("_", "-")): None if t is None else ids(*t) for name, t in targets.items()
    }
    event = ApiPartitionReassignment(wanted)
    requests = await room.handle(on_api_reassignment, event)
    return event.reply.result(), requests


async def join(room: Room, *isr: int, name: str = "a-0") -> list[str]:
    """The leader reports this ISR by AlterPartition; returns the requests sent."""
    state = room.stored(name)
    event = alter_partition(room, state.leader, state.leader_epoch, state.partition_epoch, isr, name)
    requests = await room.handle(on_alter_partition, event)
    assert event.reply.result().topics[0].partitions[0].error_code == 0
    return requests


def leave_request(room: Room, **targets: list[int]) -> None:
    """Write a request to the znode of the old reassignment tool."""
    wanted = {parse_topic_partition(name.replace("_", "-")): ids(*t) for name, t in targets.items()}
    room.ensemble.apply([Create(znodes.REASSIGN_PARTITIONS, encode_reassignment(wanted))])


def assigned(room: Room, name: str = "a-0") -> str:
    """The assignment in the topic's znode, as replicas + adding - removing; checks that memory agrees."""
    p = parse_topic_partition(name)
    znode = znodes.decode_topic(p.topic, room.ensemble.nodes[znodes.topic_path(p.topic)].data)
    stored = znode.partitions[p.partition]
    assert room.partition(name).assignment == stored
    assert (room.partition(name) in room.term.context.reassigning) == stored.is_being_reassigned
    return f"{list(stored.replicas)} + {list(stored.adding)} - {list(stored.removing)}"
