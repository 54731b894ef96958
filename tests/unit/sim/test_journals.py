"""Journals of controllers as the simulation reads them: what must be in them, and what may not."""

from typing import Any

import pytest
from tests.unit.sim.test_registrations import BROKER

from klamm.controller.decisions.plans import Refusal
from klamm.controller.events import ApiPartitionReassignment, ReassignmentAnswer, TopicChange
from klamm.controller.settings import ControllerSettings
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.history.history import History
from klamm.sim.history.trace import (
    EventBegan,
    EventEnded,
    JournalWritten,
    RegistrationChanged,
    RegistrationWritten,
    RequestAnswered,
    RequestSent,
    StateWritten,
    Term,
    TermBegan,
    TermEnded,
    TopicWritten,
    TopicZnode,
)
from klamm.sim.invariants.journals import (
    decisions_tell_what_they_were_made_from,
    journal_lines_are_true,
    requests_are_journalled,
    what_happened_is_journalled,
)
from klamm.wire.messages import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from klamm.zk.registrations import encode_registration

ONE, TWO = BrokerId(1), BrokerId(2)
P = TopicPartition("a", 0)
TERM = Term(ONE, 1, 1, ControllerSettings(ONE))
SESSION = 7
BEFORE, AFTER = LeaderAndIsr(ONE, 0, (ONE, TWO), 1, 0), LeaderAndIsr(TWO, 1, (TWO,), 1, 1)
ALONE, MOVING, MOVED = (
    ReplicaAssignment((ONE,)),
    ReplicaAssignment((TWO, ONE), (TWO,), (ONE,)),
    ReplicaAssignment((TWO,)),
)
BEGAN = EventBegan(ONE, 1, TERM, TopicChange(), ())


def read_history(is_read: bool = True) -> History:
    """Broker 1 acts in epoch 1, and its journal has its election."""
    history = History()
    history.controllers.epoch = 1
    history.controllers.winners[1] = ONE, SESSION
    if is_read:
        history.journals.read.add((ONE, 1))
    history.absorb(TermBegan(TERM, None))  # type: ignore[arg-type]
    history.journals.missing.clear()
    return history


def line(**facts: Any) -> dict[str, Any]:
    return {"seq": 1, "node": 1, "controller_epoch": 1, "cause": "1.1.1", **facts}


def decision(**facts: Any) -> dict[str, Any]:
    told = {"leader_from": 1, "leader_to": 2, "leader_epoch": 1, "partition_epoch": 1, "isr_from": [1, 2], "isr": [2]}
    return line(kind="decision", decision="offline", topic="a", partition=0, chosen=2, rejected=[]) | told | facts


def step(**facts: Any) -> dict[str, Any]:
    return line(kind="reassignment", topic="a", partition=0, replicas=[2]) | facts


def znode(assignment: ReplicaAssignment) -> TopicZnode:
    return TopicZnode(None, {0: assignment}, 1)


HAPPENED: dict[str, tuple[Any, dict[str, Any]]] = {
    "a state": (StateWritten(P, BEFORE, AFTER, (ONE, TWO), SESSION), decision()),
    "a reassignment begins": (
        TopicWritten("a", znode(ALONE), znode(MOVING), SESSION),
        step(step="begun", replicas=[2, 1]),
    ),
    "a reassignment ends": (TopicWritten("a", znode(MOVING), znode(MOVED), SESSION), step(step="complete")),
    "a topic is deleted": (
        TopicWritten("a", znode(ALONE), None, SESSION),
        line(kind="deletion", step="completed", partitions={"a": [0]}),
    ),
    "an election": (TermBegan(TERM, None), line(kind="elected")),  # type: ignore[arg-type]
    "a response": (
        RequestAnswered(
            ONE, TWO, UpdateMetadataRequest(1, controller_epoch=1), UpdateMetadataResponse(error_code=0), 1
        ),
        line(kind="response", broker=2, api="UPDATE_METADATA", error=0),
    ),
    "an event": (EventEnded(ONE, 1, TERM, TopicChange()), line(kind="done", event="TopicChange")),
}


@pytest.mark.parametrize(("happened", "told"), HAPPENED.values(), ids=HAPPENED)
def test_what_a_controller_did_is_missing_until_its_journal_has_it(happened: Any, told: dict[str, Any]) -> None:
    history, unread = read_history(), read_history(is_read=False)
    for each in (history, unread):
        each.absorb(happened)

    assert what_happened_is_journalled(history, BEGAN) is not None
    assert what_happened_is_journalled(unread, BEGAN) is None

    history.absorb(JournalWritten(ONE, 1, [told]))

    assert what_happened_is_journalled(history, BEGAN) is None


def test_the_journal_needs_neither_what_failed_nor_what_another_session_wrote() -> None:
    history = read_history()
    history.absorb(StateWritten(P, BEFORE, AFTER, (ONE, TWO), SESSION + 1))
    assert what_happened_is_journalled(history, BEGAN) is None

    history.absorb(StateWritten(P, BEFORE, AFTER, (ONE, TWO), SESSION))
    history.absorb(EventEnded(ONE, 1, TERM, TopicChange(), has_failed=True))

    assert what_happened_is_journalled(history, BEGAN) is None


FOUND = line(kind="found", to_be_deleted=["a"])
STEPS = {"it begins": "begins", "it waits": "waits", "it is held back": "held back"}


@pytest.mark.parametrize("next_step", STEPS.values(), ids=STEPS)
def test_the_journal_must_say_how_a_deletion_that_was_found_begins_or_why_it_waits(next_step: str) -> None:
    history = read_history()
    history.absorb(BEGAN)
    history.journals.missing.clear()
    history.absorb(JournalWritten(ONE, 1, [FOUND]))
    assert "why it waits" in str(what_happened_is_journalled(history, BEGAN))

    history.absorb(JournalWritten(ONE, 1, [line(kind="deletion", step=next_step, partitions={"a": [0]})]))

    assert what_happened_is_journalled(history, BEGAN) is None


ENDS = {
    "the event fails": EventEnded(ONE, 1, TERM, TopicChange(), has_failed=True),
    "the term ends": TermEnded(TERM, None),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_the_journal_needs_no_next_step_of_a_deletion_that_was_found_before_the_event_broke_off(end: Any) -> None:
    history = read_history()
    history.absorb(BEGAN)
    history.absorb(end)
    history.journals.missing.clear()

    history.absorb(JournalWritten(ONE, 1, [FOUND]))

    assert what_happened_is_journalled(history, BEGAN) is None


@pytest.mark.parametrize("is_replaced", [False, True])
def test_the_journal_of_a_replaced_controller_may_lack_its_last_writes(is_replaced: bool) -> None:
    history = read_history()
    history.absorb(StateWritten(P, BEFORE, AFTER, (ONE, TWO), SESSION))
    history.controllers.epoch += is_replaced

    history.absorb(TermEnded(TERM, None))  # type: ignore[arg-type]

    assert ("the decision" in str(what_happened_is_journalled(history, BEGAN))) is not is_replaced


def test_the_journal_may_lack_a_state_whose_write_was_refused_after_an_answer_was_lost() -> None:
    history = read_history()
    history.absorb(StateWritten(P, BEFORE, AFTER, (ONE, TWO), SESSION))
    assert what_happened_is_journalled(history, BEGAN) is not None

    history.journals.on_refused(["/brokers/topics/a/partitions/0/state"])

    assert what_happened_is_journalled(history, BEGAN) is None


LINES = {
    "true": (decision(), False),
    "another leader": (decision(leader_to=1, chosen=1), True),
    "another choice": (decision(chosen=1), True),
    "another epoch": (decision(leader_epoch=2), True),
    "another ISR": (decision(isr=[1, 2]), True),
    "a version that does not exist": (decision(partition_epoch=2), True),
    "not the first state": (decision(decision="initial"), True),
    "a number left out": (decision(seq=2), True),
    "another node": (decision(node=2), True),
}


@pytest.mark.parametrize(("told", "is_found"), LINES.values(), ids=LINES)
def test_a_journal_line_that_differs_from_zookeeper_is_a_violation(told: dict[str, Any], is_found: bool) -> None:
    history = read_history()
    history.states.versions[P] = [BEFORE, AFTER]

    assert (journal_lines_are_true(history, JournalWritten(ONE, 1, [told])) is not None) is is_found


def test_a_line_in_the_term_of_another_controller_is_a_violation() -> None:
    history = read_history()
    history.absorb(TermBegan(Term(TWO, 1, 2, ControllerSettings(TWO)), None))  # type: ignore[arg-type]
    told = line(kind="done", event="TopicChange", controller_epoch=2)

    assert "in the term of broker 2" in str(journal_lines_are_true(history, JournalWritten(ONE, 1, [told])))


def request(**facts: Any) -> dict[str, Any]:
    told = {"api": "UPDATE_METADATA", "partitions": {"a": [0]}, "count": 1, "version": 8, "broker_list": 3}
    return line(kind="request", broker=2) | told | facts


REQUESTS = {
    "true": (request(), False),
    "another receiver": (request(broker=1), True),
    "another kind": (request(api="STOP_REPLICA"), True),
    "another version": (request(version=7), True),
    "another epoch": (request(controller_epoch=2), True),
    "another partition": (request(partitions={"a": [1]}), True),
    "one more, which is gone": (request(partitions={"a": [0, 1], "b": [0]}, count=3), False),
    "one more, which is there": (request(partitions={"a": [0], "there": [0]}, count=2), True),
    "another count": (request(count=0), True),
    "no broker list": ({name: fact for name, fact in request().items() if name != "broker_list"}, True),
}


@pytest.mark.parametrize(("told", "is_found"), REQUESTS.values(), ids=REQUESTS)
def test_a_request_that_the_journal_does_not_have_as_it_is_sent_is_a_violation(
    told: dict[str, Any], is_found: bool
) -> None:
    history = read_history()
    history.absorb(JournalWritten(ONE, 1, [told]))
    history.topics.znodes["there"] = TopicZnode(None, {0: ALONE}, 0)
    state = UpdateMetadataPartitionState("", 0, 1, 2, 1, (2,), 1, (1, 2), ())
    message = UpdateMetadataRequest(
        1, controller_epoch=1, topic_states=[UpdateMetadataTopicState("a", partition_states=[state])]
    )

    assert (requests_are_journalled(history, RequestSent(ONE, 1, TWO, message, False, 0, 8)) is not None) is is_found
    assert requests_are_journalled(history, RequestSent(ONE, 1, TWO, message, True, 0, 8)) is None


REASONS = {
    "not live, and it is": (decision(rejected=[[1, "not live"]]), True),
    "shutting down": (decision(rejected=[[1, "shutting down"]]), False),
    "not in the ISR, and it is": (decision(rejected=[[1, "not in the ISR"]]), True),
    "nobody rejected": (decision(rejected=[]), True),
    "a replica that is not before it": (decision(rejected=[[3, "shutting down"]]), True),
    "unclean": (decision(rejected=[[1, "shutting down"]], unclean=True), True),
    "another leader before": (decision(rejected=[[1, "shutting down"]], leader_from=2), True),
    "another ISR before": (decision(rejected=[[1, "shutting down"]], isr_from=[1]), True),
    "of a state that is not there": (decision(rejected=[], partition_epoch=7), False),
    "no election": (decision(decision="isr-removal", rejected=[[1, "replica went offline"]]), False),
}


@pytest.mark.parametrize(("told", "is_wrong"), REASONS.values(), ids=REASONS)
def test_a_decision_whose_reasons_do_not_hold_is_a_violation(told: dict[str, Any], is_wrong: bool) -> None:
    history = read_history()
    history.states.versions[P] = [BEFORE, AFTER]
    history.assignments.written[P] = {ReplicaAssignment((ONE, TWO))}
    history.absorb(RegistrationChanged(ONE, 1, SESSION))
    history.absorb(RegistrationWritten(ONE, encode_registration(BROKER, 0)))

    wrong = decisions_tell_what_they_were_made_from(history, JournalWritten(ONE, 1, [told]))

    assert (wrong is not None) is is_wrong


def refused_move() -> EventEnded:
    """A request to move the partition to nobody, which the controller has refused."""
    event = ApiPartitionReassignment({P: ()})
    event.answer(ReassignmentAnswer(ErrorCode.NONE, {P: Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "nobody")}))
    return EventEnded(ONE, 1, TERM, event)


@pytest.mark.parametrize("is_flushed_before", [False, True])
async def test_a_refused_request_that_the_journal_does_not_have_is_a_violation(is_flushed_before: bool) -> None:
    told = JournalWritten(ONE, 1, [line(kind="refused", what="reassignment", why="nobody", partitions={"a": [0]})])
    done = JournalWritten(ONE, 1, [line(kind="done", event="ApiPartitionReassignment")])
    history = read_history()
    for event in (told, refused_move(), done) if is_flushed_before else (refused_move(), told, done):
        history.absorb(event)
    assert what_happened_is_journalled(history, BEGAN) is None

    history = read_history()
    history.absorb(refused_move())
    history.absorb(done)

    assert "was refused for a-0 with INVALID_REPLICA_ASSIGNMENT" in str(what_happened_is_journalled(history, BEGAN))


@pytest.mark.parametrize("then", ["waiting", "complete", "refused"])
def test_a_move_that_began_and_of_which_no_more_is_said_is_a_violation(then: str) -> None:
    history = read_history()
    history.absorb(JournalWritten(ONE, 1, [step(step="begun", adding=[2], removing=[1])]))
    assert "what the move of a-0 waits for" in str(what_happened_is_journalled(history, BEGAN))

    told = line(kind="refused", partitions={"a": [0]}) if then == "refused" else step(step=then)
    history.absorb(JournalWritten(ONE, 1, [told]))

    assert what_happened_is_journalled(history, BEGAN) is None
