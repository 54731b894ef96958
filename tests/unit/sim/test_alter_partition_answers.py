"""What the simulation accepts as an answer to AlterPartition."""

import uuid

import pytest
from tests.unit.sim.test_registrations import GOOD

from klamm.controller.events import AlterPartitionReceived
from klamm.controller.settings import ControllerSettings
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.sim.history.history import History
from klamm.sim.history.trace import (
    ControllerElected,
    EventBegan,
    EventEnded,
    RegistrationChanged,
    RegistrationWritten,
    Term,
    TermBegan,
    TransactionCommitted,
)
from klamm.sim.invariants.alter_partition import alter_partition_follows_the_table
from klamm.sim.zookeeper.tree import DeleteChange
from klamm.wire.messages import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from klamm.zk import znodes

ONE, TWO = BrokerId(1), BrokerId(2)
SESSION, BROKER_EPOCH = 7, 1
TERM = Term(ONE, 1, 1, ControllerSettings(ONE))
DELETED_TOPIC = uuid.UUID(int=5)
UNKNOWN, FENCED = ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.FENCED_LEADER_EPOCH
ANSWERS = {
    "ZooKeeper does not have the topic": (True, UNKNOWN, False),
    "the controller still has the topic": (True, FENCED, True),
    "its session ended, maybe before it learned that its deletion of the topic was written": (False, FENCED, False),
}


@pytest.mark.parametrize(("has_session", "error", "is_violation"), ANSWERS.values(), ids=ANSWERS)
async def test_alter_partition_is_answered_from_zookeepers_state_until_the_controllers_session_ends(
    has_session: bool, error: ErrorCode, is_violation: bool
) -> None:
    history = History()
    history.at.zxid = BROKER_EPOCH
    history.absorb(RegistrationChanged(TWO, BROKER_EPOCH, SESSION + 1))
    history.absorb(RegistrationWritten(TWO, GOOD))
    history.absorb(ControllerElected(1, 0, ONE, SESSION))
    history.absorb(TermBegan(TERM, None))  # type: ignore[arg-type]
    if not has_session:
        history.absorb(TransactionCommitted(2, SESSION, None, [DeleteChange(znodes.CONTROLLER)]))
    asked = AlterPartitionReceived(_request(), 3)
    history.absorb(EventBegan(ONE, 1, TERM, asked, (), 2))
    asked.answer(_response(error))

    violation = alter_partition_follows_the_table(history, EventEnded(ONE, 1, TERM, asked))

    assert (violation is not None) is is_violation


def _request() -> AlterPartitionRequest:
    """An AlterPartition of broker 2 for partition 0 of the deleted topic."""
    partition = AlterPartitionRequestPartitionData(0, 2, (), [], 0, 2)
    return AlterPartitionRequest(TWO, BROKER_EPOCH, [AlterPartitionRequestTopicData("", DELETED_TOPIC, [partition])])


def _response(error: ErrorCode) -> AlterPartitionResponse:
    """The response with this error for the partition."""
    partition = AlterPartitionResponsePartitionData(0, error, 0, 0, (), 0, 0)
    return AlterPartitionResponse(0, ErrorCode.NONE, [AlterPartitionResponseTopicData("", DELETED_TOPIC, [partition])])
