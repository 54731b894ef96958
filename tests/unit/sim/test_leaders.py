"""Leaders as the simulation sees them: who may be chosen, and which unclean elections were allowed when decided."""

from uuid import UUID

import pytest
from tests.unit.sim.histories import history_of

from klamm.controller.events import UncleanLeaderElectionEnable
from klamm.controller.settings import ControllerSettings
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.history.history import History
from klamm.sim.history.trace import (
    EventBegan,
    EventEnded,
    RegistrationChanged,
    StateWritten,
    Term,
    TopicZnode,
    UncleanDefaultChanged,
)
from klamm.sim.invariants.leaders import (
    elections_are_clean,
    is_first,
    is_kept,
    new_partitions_begin_at_epoch_zero,
    one_leader_per_epoch,
)
from klamm.zk.pending_deletions import PendingDeletion

ONE, TWO = BrokerId(1), BrokerId(2)
TERM = Term(ONE, 1, 1, ControllerSettings(ONE))
EVENT = UncleanLeaderElectionEnable()


@pytest.mark.parametrize(("was_allowed", "is_found"), [(True, False), (False, True)])
def test_an_unclean_election_begun_before_its_config_was_disabled_is_no_violation(
    was_allowed: bool, is_found: bool
) -> None:
    history = begun(was_allowed)

    history.absorb(UncleanDefaultChanged(ONE, 1, False))

    assert is_unclean(history) is is_found
    history.absorb(EventEnded(ONE, 1, TERM, EVENT))
    assert is_unclean(history)


def test_an_unclean_election_forbidden_by_the_topic_config_is_a_violation() -> None:
    history = begun(True)
    history.topics.unclean["a"] = False

    history.absorb(UncleanDefaultChanged(ONE, 1, False))

    assert is_unclean(history)


@pytest.mark.parametrize(("seen_zxid", "is_found"), [(3, False), (8, True)])
def test_an_unclean_election_is_no_violation_if_a_lagging_server_returned_the_old_config(
    seen_zxid: int, is_found: bool
) -> None:
    history = begun(False, seen_zxid)
    history.topics.unclean["a"] = False
    history.topics.unclean_before["a"] = [(5, True), (7, False)]

    assert is_unclean(history) is is_found


@pytest.mark.parametrize(("is_recreated", "is_found"), [(True, False), (False, True)])
def test_a_recreated_topic_without_an_id_may_have_another_leader_in_an_epoch_of_the_earlier_topic(
    is_recreated: bool, is_found: bool
) -> None:
    p, state = TopicPartition("a", 0), LeaderAndIsr(ONE, 0, (ONE,), 1, 0)
    history = history_of(topics={"znodes": {"a": TopicZnode(None, {}, 5)}})
    history.absorb(StateWritten(p, None, state, (), 0))

    if is_recreated:
        history.topics.znodes["a"] = TopicZnode(None, {}, 9)

    written = StateWritten(p, None, state._replace(leader=TWO, isr=(TWO,)), (), 0)
    assert (one_leader_per_epoch(history, written) is not None) is is_found


def begun(is_allowed: bool, seen_zxid: int = 0) -> History:
    """A controller is amid an event."""
    history = history_of(controllers={"epoch": 1, "terms": {1: TERM}})
    history.absorb(UncleanDefaultChanged(ONE, 1, is_allowed))
    history.absorb(EventBegan(ONE, 1, TERM, EVENT, (), seen_zxid))
    history.absorb(RegistrationChanged(TWO, 1, 7))
    return history


def is_unclean(history: History) -> bool:
    """Broker 2 comes to lead from outside the ISR."""
    before = LeaderAndIsr(BrokerId(-1), 1, (ONE,), 1, 1)
    after = before._replace(leader=TWO, isr=(TWO,))
    return elections_are_clean(history, StateWritten(TopicPartition("a", 0), before, after, (), 0)) is not None


CHOICES = {
    "the first that is live": (1, {1: True, 2: True}, True),
    "another, although the first is live": (2, {1: True, 2: True}, False),
    "another, where the first may be gone": (2, {1: None, 2: True}, True),
    "the first, which may be gone": (1, {1: None, 2: True}, True),
    "one that is gone": (2, {1: False, 2: False}, False),
}


@pytest.mark.parametrize(("leader", "live", "is_first_live"), CHOICES.values(), ids=CHOICES)
def test_the_simulation_requires_the_first_live_candidate_as_leader(
    leader: int, live: dict[int, bool | None], is_first_live: bool
) -> None:
    assert is_first(BrokerId(leader), (ONE, TWO), lambda b: live[b]) is is_first_live


KEPT = {
    "all who stay": ((1, 2), {1: True, 2: True}, True),
    "one who stays is missing": ((1,), {1: True, 2: True}, False),
    "one who may be gone is missing": ((1,), {1: True, 2: None}, True),
    "one who is gone": ((1, 2), {1: True, 2: False}, False),
    "in another order": ((2, 1), {1: True, 2: True}, False),
}


@pytest.mark.parametrize(("isr", "stays", "is_right"), KEPT.values(), ids=KEPT)
def test_the_simulation_requires_an_isr_with_exactly_the_staying_members_in_order(
    isr: tuple[int, ...], stays: dict[int, bool | None], is_right: bool
) -> None:
    assert is_kept(tuple(map(BrokerId, isr)), (ONE, TWO), lambda b: stays[b]) is is_right


@pytest.mark.parametrize(("recorded", "is_found"), [((), True), ((TWO,), False)])
def test_a_first_isr_may_lack_a_live_broker_that_may_have_an_earlier_topics_log(
    recorded: tuple[BrokerId, ...], is_found: bool
) -> None:
    history = history_of(controllers={"epoch": 1, "terms": {1: TERM}})
    for session, broker in enumerate((ONE, TWO)):
        history.absorb(RegistrationChanged(broker, session + 1, 7))
    for broker in recorded:
        history.topics.pending_deletions[broker]["record"] = PendingDeletion(broker, "a", UUID(int=6), (0,))
    first = LeaderAndIsr(ONE, 0, (ONE,), 1, 0)

    found = new_partitions_begin_at_epoch_zero(
        history, StateWritten(TopicPartition("a", 0), None, first, (ONE, TWO), 0)
    )

    assert (found is not None) is is_found
