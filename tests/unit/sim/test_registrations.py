"""Whom a controller may do without: brokers whose registration tells nothing, or that lack what is finalized."""

import pytest

from klamm.model.brokers import Broker, Endpoint, SecurityProtocol
from klamm.model.ids import BrokerId
from klamm.sim.history.history import History
from klamm.sim.history.trace import RegistrationWritten
from klamm.sim.invariants.registrations import is_unusable_since
from klamm.zk.registrations import FeatureRange, encode_registration

BROKER = Broker(BrokerId(8), (Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "nowhere", 9092),))
GOOD = encode_registration(BROKER, 0)
ABLE = encode_registration(BROKER, 0, features={"f": FeatureRange(1, 3)})
TOLD = {
    "it was good": ([(1, GOOD)], {}, False),
    "it is scrap": ([(1, GOOD), (3, b"{")], {}, True),
    "it was scrap, and was mended before": ([(1, b"{"), (2, GOOD)], {}, False),
    "it lacks a feature": ([(1, GOOD)], {"f": 2}, True),
    "it has the feature": ([(1, ABLE)], {"f": 2}, False),
    "its feature is too old": ([(1, ABLE)], {"f": 4}, True),
    "it is written in two steps": ([(2, None), (2, GOOD)], {}, False),
}


@pytest.mark.parametrize(("told", "finalized", "unusable"), TOLD.values(), ids=TOLD)
def test_broker_is_unusable_if_any_registration_since_then_was_unreadable_or_incompatible(
    told: list[tuple[int, bytes | None]], finalized: dict[str, int], unusable: bool
) -> None:
    history = History()
    for zxid, data in told:
        history.at.zxid = zxid
        history.absorb(RegistrationWritten(BROKER.id, data))

    assert is_unusable_since(history, BROKER.id, 2, finalized) is unusable
