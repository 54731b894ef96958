"""What brokers may be told to destroy, as the simulation sees it."""

from uuid import UUID

import pytest

from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.history.history import History
from klamm.sim.history.trace import (
    ControllerElected,
    LogsDestroyed,
    ReplicaRole,
    ReplicaRolesChanged,
    StateWritten,
    TopicWritten,
    TopicZnode,
    TransactionCommitted,
)
from klamm.sim.invariants.destroyed_logs import only_unneeded_logs_are_destroyed
from klamm.sim.zookeeper.tree import CreateChange
from klamm.zk.znodes import delete_topic_path, pending_deletion_path

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
P = TopicPartition("a", 0)
NOW, EARLIER = UUID(int=7), UUID(int=6)
STAYS, GOES = ReplicaAssignment((ONE, TWO)), ReplicaAssignment((ONE, THREE))
ADDED, MOVING = ReplicaAssignment((ONE, TWO), (TWO,)), ReplicaAssignment((ONE, TWO, THREE), (THREE,), (TWO,))


class Story:
    """What happens to broker 2 and its log, one zxid after the other."""

    def __init__(self) -> None:
        self.history = History()
        self._zxid = 0
        self._znode: TopicZnode | None = None
        self._state: LeaderAndIsr | None = None
        self.elected(1)

    def _commit(self, *changes: CreateChange) -> None:
        self._zxid += 1
        self.history.absorb(TransactionCommitted(self._zxid, 0, None, changes))

    def elected(self, epoch: int) -> "Story":
        self._commit()
        self.history.absorb(ControllerElected(epoch, epoch - 1, ONE, epoch))
        return self

    def assigned(self, assignment: ReplicaAssignment) -> "Story":
        self._commit()
        after = TopicZnode(NOW, {0: assignment}, 1)
        self.history.absorb(TopicWritten("a", self._znode, after, 0))
        self._znode = after
        return self

    def isr(self, leader_epoch: int, *members: int) -> "Story":
        self._commit()
        after = LeaderAndIsr(ONE, leader_epoch, tuple(map(BrokerId, members)), 1, 0)
        self.history.absorb(StateWritten(P, self._state, after, (), 0))
        self._state = after
        return self

    def told(self, leader_epoch: int) -> "Story":
        role = ReplicaRole(NOW, ONE, leader_epoch, frozenset(), False)
        self.history.absorb(ReplicaRolesChanged(TWO, 1, {P: role}))
        return self

    def deletion_requested(self) -> "Story":
        self._commit(CreateChange(delete_topic_path("a"), None, (), 0))
        return self

    def earlier_log_recorded(self) -> "Story":
        path = pending_deletion_path(TWO, EARLIER)
        self._commit(CreateChange(path, b'{"version":1,"topic":"a","partitions":[0]}', (), 0))
        return self

    def wrong(self, held: UUID = NOW, controller_epoch: int = 1) -> str | None:
        return only_unneeded_logs_are_destroyed(self.history, LogsDestroyed(TWO, 1, controller_epoch, {P: held}))


def replica() -> Story:
    return Story().assigned(STAYS).isr(3, 1, 2).told(3)


ALLOWED = {
    "its topic is to be deleted": replica().deletion_requested().wrong(),
    "it is an earlier topic's": replica().wrong(held=EARLIER),
    "a reassignment took it": replica().assigned(GOES).wrong(),
    "a reassignment took it, and brought it back before it was told": replica()
    .isr(4, 1)
    .assigned(GOES)
    .assigned(ADDED)
    .wrong(),
    "the target of the reassignment is in sync": replica().assigned(MOVING).isr(4, 1, 3).wrong(),
    "it was so for a controller that is deposed, and was cancelled since": replica()
    .assigned(MOVING)
    .isr(4, 1, 3)
    .elected(2)
    .assigned(STAYS)
    .wrong(),
    "it is out of sync, and may be an earlier topic's": replica().isr(4, 1).earlier_log_recorded().wrong(),
    "it was never told of this topic": Story().assigned(STAYS).isr(0, 1, 2).wrong(),
}
FORBIDDEN = {
    "it is a replica": replica().isr(4, 1).wrong(),
    "it is in sync": replica().wrong(),
    "it is in sync, although it may be an earlier topic's": replica().earlier_log_recorded().wrong(),
    "it is being added, and was told so": Story().assigned(ADDED).isr(3, 1).told(3).wrong(),
    "it was told again after it came back": replica()
    .isr(4, 1)
    .assigned(GOES)
    .assigned(ADDED)
    .isr(5, 1)
    .told(5)
    .wrong(),
    "the target of the reassignment is not in sync": replica().assigned(MOVING).isr(4, 1).wrong(),
    "a move that ended before this controller": replica()
    .assigned(MOVING)
    .assigned(STAYS)
    .isr(4, 1)
    .elected(2)
    .wrong(controller_epoch=2),
}


@pytest.mark.parametrize("wrong", ALLOWED.values(), ids=ALLOWED)
def test_deleting_a_log_that_no_assignment_needs_is_no_violation(wrong: str | None) -> None:
    assert wrong is None


@pytest.mark.parametrize("wrong", FORBIDDEN.values(), ids=FORBIDDEN)
def test_deleting_a_log_that_an_assignment_needs_is_a_violation(wrong: str | None) -> None:
    assert wrong is not None
