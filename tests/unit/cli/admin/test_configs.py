"""Changing configs where brokers do not answer."""

import pytest
from tests.unit.cli.admin.scripted_brokers import Brokers, run

from klamm.cli.admin.client import CannotAsk
from klamm.cli.admin.configs import change_configs
from klamm.config.entities import BROKER, TOPIC, Entity
from klamm.wire.api import ApiKey


@pytest.mark.parametrize("entity", [Entity(TOPIC, "t"), Entity(BROKER, "2")])
def test_an_unanswered_change_is_reported_as_possibly_done(entity: Entity) -> None:
    brokers = Brokers(1, 2)
    brokers.answers[ApiKey.INCREMENTAL_ALTER_CONFIGS] = lambda _v, _m: None

    with pytest.raises(CannotAsk, match="The change may still happen: check before you repeat it"):
        run(brokers, lambda admin: change_configs(admin, {entity: {"retention.ms": "1"}}))


def test_a_change_that_was_not_sent_is_not_reported_as_possibly_done() -> None:
    with pytest.raises(CannotAsk, match=r"broker 9 is not alive \(BROKER_NOT_AVAILABLE\); alive are 1, 2$"):
        run(Brokers(1, 2), lambda admin: change_configs(admin, {Entity(BROKER, "9"): {"retention.ms": "1"}}))
