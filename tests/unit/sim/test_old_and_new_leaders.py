"""When `old_and_new_leaders_get_requests` does not apply: an event that failed and is retried, a bounced broker."""

import pytest
from tests.unit.sim.histories import history_of

from klamm.controller.events import UncleanLeaderElectionEnable
from klamm.controller.settings import ControllerSettings
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.sim.history.trace import EventEnded, RegistrationChanged, Term, TermBegan, TopicZnode
from klamm.sim.invariants.control_requests import old_and_new_leaders_get_requests

ONE, TWO = BrokerId(1), BrokerId(2)
TERM = Term(ONE, 1, 1, ControllerSettings(ONE))
ENDED = EventEnded(ONE, 1, TERM, UncleanLeaderElectionEnable())
EXCUSES = {
    "none": (ENDED, [], True, True),
    "ZooKeeper failed in the event, which is retried": (ENDED._replace(has_failed=True), [], True, False),
    "the node stopped": (ENDED._replace(is_cut_short=True), [], True, False),
    "the controller's session ended in an earlier event": (ENDED, [], False, False),
    "broker 2 went": (ENDED, [-1], True, False),
    "broker 2 came again, and is told of all": (ENDED, [-1, 9], True, False),
}


@pytest.mark.parametrize(("ended", "registered_since", "has_session", "is_found"), EXCUSES.values(), ids=EXCUSES)
def test_a_new_leader_that_gets_no_leader_and_isr_is_a_violation_unless_the_event_was_interrupted(
    ended: EventEnded, registered_since: list[int], has_session: bool, is_found: bool
) -> None:
    history = history_of(
        controllers={"epoch": 1, "elected_at": {1: 5}, "has_controller_znode": has_session},
        requests={"unannounced": {TWO: {TopicPartition("a", 0): 3}}},
    )
    history.topics.znodes["a"] = TopicZnode(None, {0: ReplicaAssignment((TWO, ONE))}, 1)
    for zxid, epoch in enumerate([4, *registered_since], start=4):
        history.at.zxid = zxid
        history.absorb(RegistrationChanged(TWO, epoch, 7))
        if zxid == 4:
            history.absorb(TermBegan(TERM, None))  # type: ignore[arg-type]

    wrong = old_and_new_leaders_get_requests(history, ended)

    assert ("broker 2 is not sent" in (wrong or "")) is is_found


@pytest.mark.parametrize("has_failed", [True, False])
def test_an_old_leader_whose_log_directory_failed_needs_no_leader_and_isr(has_failed: bool) -> None:
    p = TopicPartition("a", 0)
    history = history_of(
        controllers={"epoch": 1, "elected_at": {1: 5}, "has_controller_znode": True},
        requests={"unannounced": {TWO: {p: 3}}},
        broker_views={"_failed": {1: {(TWO, 4): {p: has_failed}}}},
    )
    history.topics.znodes["a"] = TopicZnode(None, {0: ReplicaAssignment((TWO, ONE))}, 1)
    history.at.zxid = 4
    history.absorb(RegistrationChanged(TWO, 4, 7))
    history.absorb(TermBegan(TERM, None))  # type: ignore[arg-type]

    assert (old_and_new_leaders_get_requests(history, ENDED) is None) is has_failed
