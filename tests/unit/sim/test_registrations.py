"""Whom a controller may do without: brokers whose registration tells nothing, or that lack what is finalized."""

import pytest
from tests.unit.sim.histories import history_of

from klamm.controller.events import BrokerChange
from klamm.controller.settings import ControllerSettings
from klamm.model.brokers import Broker, Endpoint, SecurityProtocol
from klamm.model.ids import BrokerId
from klamm.sim.history.trace import (
    EventBegan,
    EventEnded,
    RegistrationChanged,
    RegistrationWritten,
    Term,
    TermBegan,
)
from klamm.zk.admin_znodes import FinalizedFeatures, encode_features
from klamm.zk.registrations import FeatureRange, encode_registration

BROKER = Broker(BrokerId(8), (Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "nowhere", 9092),))
GOOD = encode_registration(BROKER, 0)
ABLE = encode_registration(BROKER, 0, features={"f": FeatureRange(1, 3)})
TOLD = {
    "it was good": ([(1, GOOD)], {}, False),
    "it is scrap": ([(1, GOOD), (3, b"{")], {}, True),
    "it was scrap, and was repaired before": ([(1, b"{"), (2, GOOD)], {}, False),
    "it lacks a feature": ([(1, GOOD)], {"f": 2}, True),
    "it has the feature": ([(1, ABLE)], {"f": 2}, False),
    "its feature is too old": ([(1, ABLE)], {"f": 4}, True),
    "it is written in two steps": ([(2, None), (2, GOOD)], {}, False),
}


@pytest.mark.parametrize(("told", "finalized", "unusable"), TOLD.values(), ids=TOLD)
def test_the_simulation_accepts_controllers_that_ignore_an_unreadable_or_incompatible_broker_registration(
    told: list[tuple[int, bytes | None]], finalized: dict[str, int], unusable: bool
) -> None:
    history = history_of(controllers={"elected_at": {1: 2}})
    term = Term(BrokerId(1), 1, 1, ControllerSettings(BrokerId(1)))
    history.absorb(RegistrationChanged(BROKER.id, 1, 7))
    for zxid, data in told:
        history.at.zxid = zxid
        history.absorb(RegistrationWritten(BROKER.id, data))
    if finalized:
        history.registrations.features[2] = encode_features(FinalizedFeatures(2, True, finalized))
    history.absorb(TermBegan(term, None))  # type: ignore[arg-type]

    assert (history.broker_views.is_registered(term, BROKER.id) is None) is unusable


SEEN = {
    "it was there before": ([(1, 1)], True),
    "it was not there": ([], False),
    "it went since": ([(1, 1), (3, -1)], None),
    "it came since": ([(3, 3)], None),
    "it went before": ([(1, 1), (2, -1)], False),
}


@pytest.mark.parametrize(("changes", "registered"), SEEN.values(), ids=SEEN)
def test_the_simulation_allows_controllers_to_know_any_registration_since_their_last_read(
    changes: list[tuple[int, int]], registered: bool | None
) -> None:
    history = history_of(controllers={"elected_at": {1: 2}})
    term = Term(BrokerId(1), 1, 1, ControllerSettings(BrokerId(1)))
    history.absorb(TermBegan(term, None))  # type: ignore[arg-type]
    history.absorb(RegistrationWritten(BROKER.id, GOOD))
    for zxid, epoch in changes:
        history.at.zxid = zxid
        history.absorb(RegistrationChanged(BROKER.id, epoch, 7))

    assert history.broker_views.is_registered(term, BROKER.id) is registered


def test_the_simulation_expects_known_registrations_only_after_a_successful_broker_change_event() -> None:
    history = history_of(controllers={"elected_at": {1: 2}})
    term = Term(BrokerId(1), 1, 1, ControllerSettings(BrokerId(1)))
    history.absorb(TermBegan(term, None))  # type: ignore[arg-type]
    history.absorb(RegistrationWritten(BROKER.id, GOOD))
    history.at.zxid = 3
    history.absorb(RegistrationChanged(BROKER.id, 3, 7))
    known = []

    for has_failed in (True, False):
        history.absorb(EventBegan(BrokerId(1), 1, term, BrokerChange(), (), 3))
        history.absorb(EventEnded(BrokerId(1), 1, term, BrokerChange(), has_failed=has_failed))
        known.append(history.broker_views.is_registered(term, BROKER.id))

    assert known == [None, True]
