"""What brokers may be told to destroy, as the simulation sees it."""

from collections import deque

import pytest
from tests.unit.sim.assignments import write_assignments
from tests.unit.sim.histories import history_of

from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.history.requests import Queued, queue_of
from klamm.sim.history.trace import RequestSent, StateWritten
from klamm.sim.invariants.topics import only_replicas_pending_deletion_are_deleted
from klamm.wire.messages import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState

P = TopicPartition("a", 0)
THERE, ELSEWHERE = ReplicaAssignment((BrokerId(2),)), ReplicaAssignment((BrokerId(3),))
BEGINS_ANEW = Queued(False, 5, 5)
WRITTEN = {
    "it went and came back in this term": ([(3, THERE), (11, ELSEWHERE), (12, THERE)], [BEGINS_ANEW], False),
    "no order to begin anew follows": ([(3, THERE), (11, ELSEWHERE), (12, THERE)], [], True),
    "it came back before this term": ([(3, ELSEWHERE), (8, THERE)], [BEGINS_ANEW], True),
    "it went": ([(3, THERE), (11, ELSEWHERE)], [], False),
}


@pytest.mark.parametrize(("written", "waiting", "is_wrong"), WRITTEN.values(), ids=WRITTEN)
def test_late_stop_replica_for_a_returned_replica_is_allowed_if_leader_and_isr_follows(
    written: list[tuple[int, ReplicaAssignment]], waiting: list[Queued], is_wrong: bool
) -> None:
    """A slow broker; before it heard of anything it was elected uncleanly, and the move that brought it back ended."""
    history = history_of(controllers={"epoch": 1, "elected_at": {1: 10}})
    write_assignments(history, P, written)
    state = LeaderAndIsr(BrokerId(2), 5, (BrokerId(2),), 1, 0)
    history.absorb(StateWritten(P, None, state, (BrokerId(2),), 0))
    history.requests.announced.add((P, BrokerId(2), 9))
    stop = StopReplicaPartitionState(0, 4, delete_partition=True)
    message = StopReplicaRequest(controller_epoch=1, broker_epoch=9, topic_states=[StopReplicaTopicState("a", [stop])])
    event = RequestSent(BrokerId(1), 1, BrokerId(2), message, False, 0)
    history.requests.waiting[queue_of(event, P)] = deque(waiting)

    wrong = only_replicas_pending_deletion_are_deleted(history, event)

    assert (wrong is not None) is is_wrong
