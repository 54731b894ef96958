"""Reassignments as the simulation sees them: what was in sync when replicas were let go."""

import uuid
from types import SimpleNamespace

import pytest
from tests.unit.sim.histories import history_of

from klamm.controller.settings import ControllerSettings, parse_ibp
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.history.trace import Term, TopicWritten, TopicZnode
from klamm.sim.invariants.liveness import brokers_have_the_assignment
from klamm.sim.invariants.reassignment import replicas_leave_after_targets_are_in_sync
from klamm.sim.nodes.settings import writes_isrs_itself

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
STATES = [
    LeaderAndIsr(TWO, 0, (TWO, ONE), 1, 0),
    LeaderAndIsr(TWO, 1, (TWO, ONE, THREE), 1, 1),  # the move raised the epoch
    LeaderAndIsr(TWO, 1, (TWO, THREE), 1, 2),  # the leader put 1 out
    LeaderAndIsr(TWO, 2, (TWO,), 1, 3),  # what goes leaves the ISR, which raises the epoch again
]
MOVES = {
    "the target was in sync when the move raised the epoch": ("2.6-IV0", STATES, False),
    "it was so too long ago": ("2.6-IV0", [STATES[0], LeaderAndIsr(TWO, 1, (TWO,), 1, 1), *STATES[3:]], True),
    "only the controller writes ISRs, and sees what is": ("3.9-IV0", STATES, True),
}


@pytest.mark.parametrize(("protocol", "states", "is_found"), MOVES.values(), ids=MOVES)
def test_removing_a_replica_before_the_reassignment_target_is_in_sync_is_a_violation(
    protocol: str, states: list[LeaderAndIsr], is_found: bool
) -> None:
    term = Term(ONE, 1, 1, ControllerSettings(ONE, ibp=parse_ibp(protocol)))
    history = history_of(
        controllers={"epoch": 1, "terms": {1: term}},
        states={"versions": {TopicPartition("a", 0): states}},
        at={"leaders_write_isrs": writes_isrs_itself(protocol)},
    )
    before, after = ReplicaAssignment((TWO, ONE, THREE), (), (THREE,)), ReplicaAssignment((TWO, ONE))

    written = TopicWritten("a", seen(before), seen(after), session=0)

    assert (replicas_leave_after_targets_are_in_sync(history, written) is not None) is is_found


def seen(assignment: ReplicaAssignment) -> TopicZnode:
    """The topic znode with this assignment."""
    return TopicZnode(uuid.UUID(int=1), {0: assignment}, czxid=1)


ADDED, BARE = ReplicaAssignment((TWO, ONE), (TWO,), (ONE,)), ReplicaAssignment((ONE,))
IGNORED = {
    "it was cancelled, and the controller replaced": (ADDED, 6, 9, False),
    "the controller was not replaced": (ADDED, 6, 7, True),
    "a new leader epoch was written": (ADDED, 8, 9, True),
    "it completed": (ReplicaAssignment((ONE, TWO), (), (TWO,)), 6, 9, True),
}


@pytest.mark.parametrize(("before", "epoch_at", "elected_at", "is_found"), IGNORED.values(), ids=IGNORED)
def test_a_leader_may_keep_the_assignment_of_a_cancelled_reassignment_until_a_new_leader_epoch(
    before: ReplicaAssignment, epoch_at: int, elected_at: int, is_found: bool
) -> None:
    p = TopicPartition("a", 0)
    history = history_of(
        controllers={"epoch": 2, "elected_at": {2: elected_at}},
        states={"versions": {p: [LeaderAndIsr(ONE, 0, (ONE,), 1, 0)]}, "written_at": {p: [epoch_at]}},
        assignments={"in_force": {p: [(5, before), (7, BARE)]}},
        topics={"znodes": {"a": seen(BARE)}},
    )
    hosted = {p: SimpleNamespace(replicas=before.replicas)}
    cache = SimpleNamespace(state=lambda partition: None)
    broker = SimpleNamespace(number=ONE, replicas=SimpleNamespace(hosted=hosted), cache=cache)

    wrong = brokers_have_the_assignment(SimpleNamespace(history=history, running=[broker]))

    assert (wrong is not None) is is_found
