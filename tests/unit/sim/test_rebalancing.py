"""How the simulation judges automatic and requested elections of preferred replicas."""

import pytest
from tests.unit.sim.test_registrations import GOOD

from klamm.controller.decisions.plans import Refusal
from klamm.controller.events import AutoPreferredReplicaLeaderElection, ElectionAnswer, ReplicaLeaderElection
from klamm.controller.settings import ControllerSettings
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.history.history import History
from klamm.sim.history.trace import (
    ControllerElected,
    EventBegan,
    EventEnded,
    ImbalanceUnchecked,
    RegistrationChanged,
    RegistrationWritten,
    StateWritten,
    Term,
    TermBegan,
    TopicWritten,
    TopicZnode,
)
from klamm.sim.invariants.answers import election_answers_match_zookeeper
from klamm.sim.invariants.rebalancing import imbalance_is_checked_in_time, rebalancing_elects_preferred_replicas

ONE, TWO = BrokerId(1), BrokerId(2)
P = TopicPartition("a", 0)
TERM = Term(ONE, 1, 1, ControllerSettings(ONE, leader_imbalance_check_s=10))
NOT_AVAILABLE = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
UNCHECKED = {
    "the first check is due": (True, 9.0, False),
    "the first check did not come": (True, 11.0, True),
    "the next check is due": (False, 14.0, False),
    "the next check did not come": (False, 16.0, True),
}


@pytest.mark.parametrize(("is_first", "undisturbed_s", "is_violation"), UNCHECKED.values(), ids=UNCHECKED)
def test_the_simulation_reports_a_controller_that_does_not_check_imbalance_in_time(
    is_first: bool, undisturbed_s: float, is_violation: bool
) -> None:
    wrong = imbalance_is_checked_in_time(History(), ImbalanceUnchecked(TERM, is_first, undisturbed_s))

    assert (wrong is not None) is is_violation


ELECTABLE = {
    "the preferred replica is live and in sync": (1, (ONE, TWO), True, "before", True),
    "it leads": (2, (ONE, TWO), True, "before", False),
    "it is not in sync": (1, (ONE,), True, "before", False),
    "it is not registered": (1, (ONE, TWO), False, "before", False),
    "the ISR changed during the event": (1, (ONE, TWO), True, "during", False),
}


@pytest.mark.parametrize(("leader", "isr", "is_live", "written", "is_violation"), ELECTABLE.values(), ids=ELECTABLE)
async def test_the_simulation_reports_preferred_replicas_that_could_be_elected_and_are_not(
    leader: int, isr: tuple[BrokerId, ...], is_live: bool, written: str, is_violation: bool
) -> None:
    """The partition's replicas are 2 and 1."""
    history = _history(is_live)
    state = LeaderAndIsr(BrokerId(leader), 0, isr, 1, 0)
    check, asked = AutoPreferredReplicaLeaderElection(), ReplicaLeaderElection([P], False)
    asked.answer(ElectionAnswer({}, {P: Refusal(NOT_AVAILABLE, "")}))
    if written == "before":
        _write(history, state)
    history.absorb(EventBegan(ONE, 1, TERM, check, ()))
    if written == "during":
        _write(history, state)

    unbalanced = rebalancing_elects_preferred_replicas(history, EventEnded(ONE, 1, TERM, check))
    refused = election_answers_match_zookeeper(history, EventEnded(ONE, 1, TERM, asked))

    assert (unbalanced is not None) is is_violation
    assert (refused is not None) is (is_violation or leader == TWO)  # the leader is there, so it is available


@pytest.mark.parametrize(
    ("leaders_write_isrs", "seen_zxid", "is_violation"),
    [(False, 1, True), (True, 1, False), (True, 2, True)],
    ids=["only controllers write ISRs", "the controller's server lags", "the controller's server has the ISR"],
)
async def test_an_election_may_be_refused_for_an_isr_of_an_old_leader_that_the_zookeeper_server_lacks(
    leaders_write_isrs: bool, seen_zxid: int, is_violation: bool
) -> None:
    history = _history(is_live=True)
    history.at.leaders_write_isrs = leaders_write_isrs
    asked = ReplicaLeaderElection([P], False)
    asked.answer(ElectionAnswer({}, {P: Refusal(NOT_AVAILABLE, "")}))
    _write(history, LeaderAndIsr(ONE, 0, (ONE, TWO), 1, 0))
    history.absorb(EventBegan(ONE, 1, TERM, asked, (), seen_zxid))

    refused = election_answers_match_zookeeper(history, EventEnded(ONE, 1, TERM, asked))

    assert (refused is not None) is is_violation


def _history(is_live: bool) -> History:
    """Broker 1 is controller; there is topic a with one partition, whose replicas are 2 and 1."""
    history = History()
    history.at.zxid = 1
    if is_live:
        history.absorb(RegistrationChanged(TWO, 1, 8))
        history.absorb(RegistrationWritten(TWO, GOOD))
    history.absorb(ControllerElected(1, 0, ONE, 7))
    history.absorb(TermBegan(TERM, None))  # type: ignore[arg-type]
    history.absorb(TopicWritten("a", None, TopicZnode(None, {0: ReplicaAssignment((TWO, ONE))}, 1), 7))
    return history


def _write(history: History, state: LeaderAndIsr) -> None:
    """The state of the partition is written."""
    history.at.zxid += 1
    history.absorb(StateWritten(P, None, state, (TWO, ONE), 7))
