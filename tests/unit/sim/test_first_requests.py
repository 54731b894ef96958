"""What a broker is told first, as the simulation sees it."""

import pytest
from tests.unit.sim.assignments import write_assignments
from tests.unit.sim.histories import history_of

from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.sim.history.trace import RequestReceived
from klamm.sim.invariants.control_requests import first_leader_and_isr_is_complete
from klamm.wire.messages import LeaderAndIsrRequest, UpdateMetadataRequest

P = TopicPartition("a", 0)
HERS, HIS = ReplicaAssignment((BrokerId(1),)), ReplicaAssignment((BrokerId(2),))
REPLICAS = {
    "it held the partition before": ([(3, HIS)], True),
    "the partition came there since, and is all there": ([(3, HERS), (12, HIS)], False),
    "the partition is on its way there": ([(3, ReplicaAssignment((BrokerId(2), BrokerId(1)), (BrokerId(2),)))], False),
    "it went and came since": ([(3, HIS), (12, HERS), (13, HIS)], False),
}


@pytest.mark.parametrize(("written", "is_wrong"), REPLICAS.values(), ids=REPLICAS)
def test_an_incomplete_first_leader_and_isr_to_a_new_broker_is_a_violation(
    written: list[tuple[int, ReplicaAssignment]], is_wrong: bool
) -> None:
    """An order of a reassignment waits behind the first one, which comes seconds later to a slow broker."""
    broker_epoch = 10
    history = history_of(controllers={"elected_at": {1: 9}})
    history.states.created_at[P] = 3
    write_assignments(history, P, written)
    history.requests.accepted[BrokerId(2), broker_epoch, 1] = {UpdateMetadataRequest.__name__}
    order = LeaderAndIsrRequest(controller_epoch=1, broker_epoch=broker_epoch)

    wrong = first_leader_and_isr_is_complete(
        history, RequestReceived(BrokerId(2), 1, broker_epoch, order, ErrorCode.NONE)
    )

    assert (wrong is not None) is is_wrong
