"""The mirror that the simulation reads from scratch, to compare a standby's with it."""

from tests.support.controller_room import Room

from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId
from klamm.sim.invariants.contexts import _mirror_from_scratch
from klamm.zk import znodes
from klamm.zk.operations import Create


async def test_a_mirror_read_from_scratch_leaves_out_topics_without_a_topic_id() -> None:
    room = await Room.open(topics={"a": [(1,)]})
    partitions = {number: ReplicaAssignment((BrokerId(1),)) for number in range(3)}
    room.ensemble.apply([Create(znodes.topic_path("old"), znodes.encode_topic(None, partitions))])

    scratch = _mirror_from_scratch(room.ensemble.tree, room.term.context, room.term.settings)

    assert list(scratch.topics) == ["a"]
