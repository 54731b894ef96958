"""What depends on the protocol version of the controller: versions of requests, and features of the protocol."""

import pytest
from tests.unit.controller.request_scene import KAFKA_REQUEST_VERSIONS

from klamm.controller.settings import FIRST_WITH_PRODUCER_IDS, ControllerSettings, parse_ibp, request_versions
from klamm.model.ids import BrokerId

LAST_OF_VERSION = {
    "3.9": (3, 9, 9),
    "2.8-IV1": (2, 8, 1),
    "0.10.2-IV0": (0, 10, 20),
    "0.10.2": (0, 10, 29),
    "0.11": (0, 11, 9),
    "0.8.0": (0, 8, 9),
    "2.8.1": (2, 8, 9),
    "2.8.1-IV0": (2, 8, 9),
}
FIRST_VERSIONS = {
    "versions_features": ("2.7-IV0", "2.6-IV0"),
    "controller_owns_partition_state": ("2.7-IV2", "2.7-IV1"),
    "uses_topic_ids": ("2.8-IV0", "2.7-IV2"),
    "requests_carry_topic_ids": ("2.8-IV1", "2.8-IV0"),
    "writes_recovery_state": ("3.2-IV0", "3.1-IV0"),
}


def settings(version: str) -> ControllerSettings:
    return ControllerSettings(BrokerId(1), ibp=parse_ibp(version))


@pytest.mark.parametrize(("version", "versions"), KAFKA_REQUEST_VERSIONS.items())
def test_each_inter_broker_protocol_version_selects_the_control_request_versions_of_kafka(
    version: str, versions: tuple[int, int, int]
) -> None:
    assert request_versions(parse_ibp(version)) == versions
    assert settings(version).versions == versions


@pytest.mark.parametrize(("text", "ibp"), LAST_OF_VERSION.items())
def test_an_inter_broker_protocol_version_without_iv_suffix_means_the_last_iv_of_that_release(
    text: str, ibp: tuple[int, int, int]
) -> None:
    assert parse_ibp(text) == ibp


@pytest.mark.parametrize("text", ["", "3", "0.10.2.1.0", "3.9-IVx", "three.nine", "3.9-IV1.5"])
def test_text_that_is_no_inter_broker_protocol_version_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"invalid literal|inter.broker.protocol.version=.* is not valid"):
        parse_ibp(text)


@pytest.mark.parametrize(("feature", "first", "before"), [(f, *versions) for f, versions in FIRST_VERSIONS.items()])
def test_each_protocol_feature_is_enabled_from_the_version_that_introduced_that_feature(
    feature: str, first: str, before: str
) -> None:
    assert getattr(settings(first), feature) is True
    assert getattr(settings(before), feature) is False


def test_brokers_request_producer_ids_from_the_controller_since_protocol_version_3_0() -> None:
    assert parse_ibp("2.8-IV1") < FIRST_WITH_PRODUCER_IDS == parse_ibp("3.0-IV0")


def test_the_feature_znode_has_payload_version_2_since_protocol_version_3_3() -> None:
    assert settings("3.3-IV0").features_payload_version == 2
    assert settings("3.2-IV0").features_payload_version == 1


def test_the_controllers_default_settings_equal_kafkas() -> None:
    defaults = ControllerSettings(BrokerId(1))

    assert (defaults.ibp, defaults.unclean_leader_election, defaults.auto_leader_rebalance) == ((3, 9, 0), False, True)
    assert (defaults.delete_topic_enable, defaults.leader_imbalance_percentage) == (True, 10)
    assert defaults.control_listener == "PLAINTEXT"
    assert ControllerSettings(BrokerId(1), control_plane_listener="CONTROL").control_listener == "CONTROL"
