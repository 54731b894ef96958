"""Finalized features: which updates are accepted, and which brokers are ignored."""

import asyncio
import re

import pytest
from tests.support.controller_room import Room, broker

from klamm.controller.decisions.features import FeatureUpdate, UpgradeType, plan_feature_updates, supports
from klamm.controller.events import BrokerChange, UpdateFeatures
from klamm.controller.handlers.brokers import on_broker_change
from klamm.controller.handlers.cluster_services import on_update_features, set_up_features
from klamm.controller.settings import ControllerSettings
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId
from klamm.zk.admin_znodes import decode_features
from klamm.zk.operations import Create, Delete, Set
from klamm.zk.registrations import FeatureRange, encode_registration

UPGRADE, SAFE, UNSAFE = UpgradeType
SUPPORTED = {"f": FeatureRange(1, 5), "g": FeatureRange(2, 3)}
BROKERS = {BrokerId(1): {"f": FeatureRange(1, 5)}, BrokerId(2): {"f": FeatureRange(1, 4)}}

REFUSED = {
    "no name": (FeatureUpdate("", 1), "Feature name can not be empty"),
    "no such type": (FeatureUpdate("f", 1, 9), "unknown upgrade type"),
    "delete what is not there": (FeatureUpdate("g", 0, SAFE), "Can not delete non-existing"),
    "delete without saying so": (FeatureUpdate("f", 0), "less than 1"),
    "the same again": (FeatureUpdate("f", 3), "to the same value"),
    "lower without saying so": (FeatureUpdate("f", 2), "without the downgradeType SAFE"),
    "lower, unsafe": (FeatureUpdate("f", 2, UNSAFE), "without the downgradeType SAFE"),
    "higher as a downgrade": (FeatureUpdate("f", 4, SAFE), "can not be greater"),
    "not supported": (FeatureUpdate("h", 1), "not supported"),
    "below what is supported": (FeatureUpdate("g", 1), "minimum is 2"),
    "a broker is behind": (FeatureUpdate("f", 5), r"brokers \[2\]"),
}


@pytest.mark.parametrize(("update", "words"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_feature_update_is_refused(update: FeatureUpdate, words: str) -> None:
    plan = plan_feature_updates({"f": 3}, [update], SUPPORTED, BROKERS)

    assert plan.levels == {"f": 3}
    assert re.search(words, plan.refused[update.feature])


@pytest.mark.parametrize(
    ("update", "levels"),
    [
        (FeatureUpdate("f", 4), {"f": 4}),
        (FeatureUpdate("f", 2, SAFE), {"f": 2}),
        (FeatureUpdate("f", 0, SAFE), {}),
        (FeatureUpdate("f", -1, SAFE), {}),
    ],
)
def test_a_valid_feature_update_is_accepted(update: FeatureUpdate, levels: dict[str, int]) -> None:
    assert plan_feature_updates({"f": 3}, [update], SUPPORTED, BROKERS).levels == levels


def test_a_refused_feature_update_does_not_stop_other_updates_of_the_request() -> None:
    plan = plan_feature_updates({"f": 3}, [FeatureUpdate("h", 1), FeatureUpdate("f", 4)], SUPPORTED, BROKERS)

    assert (plan.levels, plan.accepted, list(plan.refused)) == ({"f": 4}, ["f"], ["h"])


def test_a_broker_is_compatible_only_if_it_supports_every_finalized_feature() -> None:
    assert supports({}, {})
    assert supports({"f": FeatureRange(1, 3)}, {"f": 3})
    assert not supports({"f": FeatureRange(1, 2)}, {"f": 3})
    assert not supports({"f": FeatureRange(4, 5)}, {"f": 3})
    assert not supports({}, {"f": 1})


async def finalize(room: Room, levels: str) -> None:
    room.ensemble.apply([Set("/feature", f'{{"version":2,"status":1,"features":{levels}}}'.encode())])


async def ask(room: Room, *updates: FeatureUpdate, validate_only: bool = False) -> dict[str, ErrorCode]:
    event = UpdateFeatures(updates, validate_only)
    await room.handle(on_update_features, event)
    answer = event.reply.result()
    assert answer.error is ErrorCode.NONE
    return {feature: error for feature, (error, _) in answer.results.items()}


async def test_an_unsupported_finalized_feature_can_be_deleted_but_unsupported_features_cannot_be_added() -> None:
    room = await Room.open()
    await finalize(room, '{"f":{"max_version_level":3}}')

    assert await ask(room, FeatureUpdate("f", 0, SAFE), validate_only=True) == {"f": ErrorCode.NONE}
    assert decode_features(room.ensemble.nodes["/feature"].data).levels == {"f": 3}

    answers = await ask(room, FeatureUpdate("f", 0, SAFE), FeatureUpdate("g", 1))

    assert answers == {"f": ErrorCode.NONE, "g": ErrorCode.INVALID_REQUEST}
    assert decode_features(room.ensemble.nodes["/feature"].data) == (2, True, {})


async def test_controllers_with_an_old_inter_broker_protocol_refuse_feature_updates() -> None:
    room = await Room.open(settings=ControllerSettings(BrokerId(1), ibp=(2, 6, 0)))
    event = UpdateFeatures([FeatureUpdate("f", 1)])
    await room.handle(on_update_features, event)

    assert event.reply.result().error is ErrorCode.INVALID_REQUEST


async def test_the_controller_ignores_a_broker_that_does_not_support_a_finalized_feature() -> None:
    room = await Room.open()
    await finalize(room, '{"f":{"max_version_level":3}}')
    await set_up_features(room.term)
    new_enough = b'"features":{"f":{"min_version":1,"max_version":3}}'
    known = encode_registration(broker(1), 0).replace(b'"features":{}', new_enough)
    room.ensemble.apply([Set("/brokers/ids/1", known)])
    await room.register(9)

    await room.handle(on_broker_change, BrokerChange())

    assert 9 not in room.term.context.registered
    refused = [e.facts for e in room.entries("refused") if e.facts.get("broker") == 9]
    assert "finalized features" in refused[-1]["why"]
    assert room.settings.supported_features == {}


async def test_becoming_controller_waits_until_the_nodes_feature_cache_is_up_to_date() -> None:
    room = await Room.open()
    asked: list[tuple[int, float]] = []

    async def never(epoch: int, timeout_s: float) -> bool:
        asked.append((epoch, timeout_s))
        await asyncio.sleep(0)
        return False

    room.term.wait_for_features = never

    with pytest.raises(KlammError, match="did not read version 0 of /feature"):
        await set_up_features(room.term)
    assert asked == [(0, 18.0)]


FOUND = {
    "enabled stays": ((2, 7, 0), b'{"version":1,"status":1,"features":{}}', (1, True), 0),
    "disabled is enabled": ((2, 7, 0), b'{"version":1,"status":0,"features":{}}', (1, True), 1),
    "enabled is disabled": ((2, 6, 0), b'{"version":1,"status":1,"features":{}}', (1, False), 1),
    "disabled stays": ((2, 6, 0), b'{"version":1,"status":0,"features":{}}', (1, False), 0),
    "nothing was there": ((2, 7, 0), None, (1, True), 0),
    "nothing was there, and none are wanted": ((2, 6, 0), None, (1, False), 0),
}


@pytest.mark.parametrize(("ibp", "found", "wanted", "version"), FOUND.values(), ids=FOUND)
async def test_failover_writes_the_feature_znode_only_if_its_content_must_change(
    ibp: tuple[int, int, int], found: bytes | None, wanted: tuple[int, bool], version: int
) -> None:
    room = await Room.open()
    room.ensemble.apply([Delete("/feature")])
    if found is not None:
        room.ensemble.apply([Create("/feature", found)])
    room.settings = ControllerSettings(BrokerId(1), ibp=ibp)

    await room.become_controller()

    znode = room.ensemble.nodes["/feature"]
    assert (decode_features(znode.data), znode.version) == ((*wanted, {}), version)


async def test_an_unreadable_feature_znode_does_not_stop_a_controller_failover() -> None:
    room = await Room.open()
    room.ensemble.apply([Set("/feature", b"{nonsense")])

    await set_up_features(room.term)

    assert room.ensemble.nodes["/feature"].data == b"{nonsense"
    assert "no feature counts as finalized" in room.entries("refused")[-1].facts["why"]
