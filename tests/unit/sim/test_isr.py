"""In-sync replicas as the simulation sees them: dead members."""

import pytest
from tests.unit.sim.histories import history_of
from tests.unit.sim.test_registrations import BROKER

from klamm.controller.events import BrokerChange, Startup
from klamm.controller.settings import ControllerSettings, parse_ibp
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.history.trace import (
    Event,
    EventBegan,
    EventEnded,
    RegistrationChanged,
    RegistrationWritten,
    StateWritten,
    Term,
    TermBegan,
)
from klamm.sim.invariants.isr import dead_brokers_leave_isrs
from klamm.zk.registrations import encode_registration

ELECTED, BEGAN = 2, 5
OLD, NEW = "2.6-IV0", "3.9-IV0"
ONE, THREE = BrokerId(1), BrokerId(3)
P = TopicPartition("a", 0)
MEMBERS = {
    "it went": (OLD, 4, 3, True),
    "it went, and only controllers write ISRs": (NEW, 4, 3, True),
    "its leader took it in again after the controller had put it out": (OLD, 6, 3, False),
    "the controller may have read before it went": (OLD, 4, 6, False),
    "the controller may have heard before that it went": (OLD, 4, 2, False),
    "who only controllers could have let in": (NEW, 6, 3, True),
}


@pytest.mark.parametrize(("protocol", "entered", "went", "is_found"), MEMBERS.values(), ids=MEMBERS)
def test_an_unregistered_isr_member_is_a_violation_unless_added_by_the_leader(
    protocol: str, entered: int, went: int, is_found: bool
) -> None:
    """After a change of brokers; `entered` is the zxid at which it came into the ISR, `went` that of its end."""
    ended = EventEnded(ONE, 1, term_of(protocol), BrokerChange())

    assert is_left_behind(entered, went, ended) is is_found


@pytest.mark.parametrize(("entered", "is_found"), [(4, True), (6, False)])
def test_a_failover_that_keeps_isr_members_dead_at_its_start_is_a_violation(entered: int, is_found: bool) -> None:
    assert is_left_behind(entered, 1, EventEnded(ONE, 1, None, Startup())) is is_found


INTERRUPTED = {"the node stops": {"is_cut_short": True}, "ZooKeeper failed": {"has_failed": True}}


@pytest.mark.parametrize("how", INTERRUPTED.values(), ids=INTERRUPTED)
def test_a_dead_isr_member_is_no_violation_if_the_controller_event_was_interrupted(how: dict[str, bool]) -> None:
    assert not is_left_behind(4, 3, EventEnded(ONE, 1, term_of(NEW), BrokerChange(), **how))


@pytest.mark.parametrize("protocol", [OLD, NEW])
def test_a_dead_isr_member_is_no_violation_while_a_refused_write_is_not_repeated(protocol: str) -> None:
    assert not is_left_behind(4, 3, EventEnded(ONE, 1, term_of(protocol), BrokerChange()), is_refused=True)


def term_of(protocol: str) -> Term:
    return Term(ONE, 1, 1, ControllerSettings(ONE, ibp=parse_ibp(protocol)))


def is_left_behind(entered: int, went: int, ended: EventEnded, *, is_refused: bool = False) -> bool:
    """Broker 3 is in the ISR, and gone."""
    term = ended.term or term_of(OLD)
    history = history_of(
        controllers={"epoch": 1, "elected_at": {1: ELECTED}, "unretried": {ONE} if is_refused else set()},
        at={"leaders_write_isrs": not term.settings.controller_owns_partition_state},
    )
    before, after = LeaderAndIsr(ONE, 0, (ONE,), 1, 0), LeaderAndIsr(ONE, 0, (ONE, THREE), 1, 1)
    performed: list[tuple[int, Event]] = [
        (0, RegistrationChanged(ONE, 0, 6)),
        (0, RegistrationWritten(ONE, encode_registration(BROKER, 0))),
        (0, RegistrationChanged(THREE, 0, 7)),
        (0, RegistrationWritten(THREE, encode_registration(BROKER, 0))),
        (went, RegistrationChanged(THREE, -1, 7)),
        (ELECTED, TermBegan(term, None)),  # type: ignore[arg-type]
        (entered, StateWritten(P, before, after, (), 0)),
        (BEGAN, EventBegan(ONE, 1, ended.term, ended.event, (), BEGAN)),
    ]
    for zxid, event in sorted(performed, key=lambda each: each[0]):
        history.at.zxid = zxid
        history.absorb(event)
    return dead_brokers_leave_isrs(history, ended) is not None
