"""Znode payloads: decoding of Kafka's, encoding as Kafka's, and refusal of malformed ones with their path."""

import json
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.model.assignment import ReplicaAssignment
from klamm.model.brokers import Broker, Endpoint, SecurityProtocol
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr, LeaderRecoveryState
from klamm.model.topic_ids import id_from_text
from klamm.zk import admin_znodes as admin
from klamm.zk import znodes
from klamm.zk.configs import change_number
from klamm.zk.registrations import FeatureRange, Registration, decode_registration, encode_registration
from klamm.zk.znodes import MalformedZnode

A0 = TopicPartition("a", 0)


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def test_znode_paths_equal_those_of_kafka() -> None:
    assert znodes.state_path(TopicPartition("a", 3)) == "/brokers/topics/a/partitions/3/state"
    assert znodes.partition_path(A0) == znodes.partitions_path("a") + "/0"
    assert znodes.broker_path(0) == "/brokers/ids/0"
    assert znodes.config_path("topics", "a") == znodes.topic_config_path("a")
    assert znodes.delete_topic_path("a") == "/admin/delete_topics/a"


# ---- /controller


CONTROLLERS = {
    "today's": (b'{"version":2,"brokerid":4,"timestamp":"1","kraftControllerEpoch":-1}', (4, False)),
    "before 3.4": (b'{"version":1,"brokerid":4,"timestamp":"1700000000001"}', (4, False)),
    "KRaft's": (b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":7}', (3000, True)),
    "rubbish": (b"4", None),
    "without an id": (b'{"version":1}', None),
    "empty": (None, None),
}


@pytest.mark.parametrize(("payload", "expected"), CONTROLLERS.values(), ids=CONTROLLERS)
def test_the_broker_id_is_read_from_a_controller_znode_unless_malformed(
    payload: bytes | None, expected: tuple[int, bool] | None
) -> None:
    read = znodes.decode_controller(payload)

    assert ((read.broker, read.is_kraft) if read else None) == expected


def test_the_controller_znode_is_encoded_as_by_kafka() -> None:
    assert znodes.encode_controller(BrokerId(4), 1700000000001) == (
        b'{"version":2,"brokerid":4,"timestamp":"1700000000001","kraftControllerEpoch":-1}'
    )


def test_the_controller_epoch_znode_contains_only_a_number() -> None:
    assert znodes.decode_controller_epoch(znodes.encode_controller_epoch(17)) == 17
    for payload in (b"", None, b"x", b"-1", b"2147483648", b"9" * 5_000):
        with pytest.raises(MalformedZnode, match="/controller_epoch"):
            znodes.decode_controller_epoch(payload)


# ---- topics


def test_a_topic_znode_written_by_kafka_is_decoded() -> None:
    payload = (
        b'{"removing_replicas":{"0":[1]},"partitions":{"1":[2,3],"0":[2,1]},'
        b'"topic_id":"3Qd5mJ5sQj2Vx1kYb8c0Vg","adding_replicas":{"0":[2]},"version":3,"new":{}}'
    )

    read = znodes.decode_topic("a", payload)

    assert list(read.partitions) == [0, 1]
    assert read.partitions[0] == ReplicaAssignment(ids(2, 1), ids(2), ids(1))
    assert read.topic_id == id_from_text("3Qd5mJ5sQj2Vx1kYb8c0Vg")
    written = json.loads(znodes.encode_topic(read.topic_id, read.partitions))
    assert written == {k: v for k, v in json.loads(payload).items() if k != "new"}


def test_a_topic_znode_without_a_topic_id_is_decoded() -> None:
    read = znodes.decode_topic("a", b'{"version":1,"partitions":{"0":[1,2]}}')

    assert (read.topic_id, read.partitions) == (None, {0: ReplicaAssignment(ids(1, 2))})
    assert b"topic_id" not in znodes.encode_topic(None, read.partitions)


def test_missing_keys_of_a_topic_znode_get_default_values() -> None:
    assert znodes.decode_topic("a", b"{}") == (None, {}, 0, 0)
    assert znodes.decode_topic("a", b'{"topic_id":"AAAAAAAAAAAAAAAAAAAAAA"}').topic_id is None


BAD_TOPICS = [
    b'{"partitions":{"x":[1]}}',
    b'{"partitions":{"0":["1"]}}',
    b'{"partitions":{"0":[2147483648]}}',
    b'{"partitions":{"2147483648":[1]}}',
    b'{"partitions":{"0":[1]},"adding_replicas":{"0":[-2147483649]}}',
    b'{"topic_id":"short"}',
    b'{"x":' + b"[" * 100_000,
    b"\xff",
    b"",
    None,
]


@pytest.mark.parametrize("payload", BAD_TOPICS)
def test_a_malformed_topic_znode_is_refused_with_its_path(payload: bytes | None) -> None:
    with pytest.raises(MalformedZnode, match="/brokers/topics/a"):
        znodes.decode_topic("a", payload)


# ---- states


def test_decoding_equal_partition_states_returns_the_same_object_to_save_memory() -> None:
    payload = znodes.encode_state(LeaderAndIsr(BrokerId(1), 4, (BrokerId(1), BrokerId(2)), 7))
    first, again = (znodes.decode_state(p, bytes(bytearray(payload)), 3) for p in (A0, TopicPartition("b", 1)))

    assert first is again
    assert znodes.decode_state(A0, payload, 4).partition_epoch == 4


def test_partition_states_written_by_kafka_are_decoded() -> None:
    recovered = b'{"controller_epoch":17,"leader":2,"version":1,"leader_epoch":5,"isr":[2,3]}'
    recovering = b'{"controller_epoch":17,"leader":3,"version":1,"leader_epoch":6,"isr":[3],"leader_recovery_state":1}'

    first = znodes.decode_state(A0, recovered, 9)
    second = znodes.decode_state(A0, recovering, 10)

    assert first == LeaderAndIsr(BrokerId(2), 5, ids(2, 3), 17, 9)
    assert second == LeaderAndIsr(BrokerId(3), 6, ids(3), 17, 10, LeaderRecoveryState.RECOVERING)
    assert znodes.encode_state(first) == recovered
    assert znodes.encode_state(second) == recovering


states = st.builds(
    LeaderAndIsr,
    st.integers(-1, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple),
    st.integers(0, 2**31 - 1),
    st.just(3),
    st.sampled_from(LeaderRecoveryState),
)


@given(states)
def test_any_encoded_partition_state_is_valid_json_and_decodes_to_itself(state: LeaderAndIsr) -> None:
    payload = znodes.encode_state(state)

    assert znodes.decode_state(A0, payload, 3) == state
    assert json.loads(payload)["isr"] == list(state.isr)


BAD_STATES = [
    b'{"leader":1,"leader_epoch":1,"isr":[1]}',
    b'{"leader":"1","leader_epoch":1,"isr":[1],"controller_epoch":1}',
    b'{"leader":1,"leader_epoch":1,"isr":[1],"controller_epoch":1,"leader_recovery_state":2}',
    b'{"leader":2147483648,"leader_epoch":1,"isr":[1],"controller_epoch":1}',
    b'{"leader":1,"leader_epoch":2147483648,"isr":[1],"controller_epoch":1}',
    b'{"leader":1,"leader_epoch":1,"isr":[2147483648],"controller_epoch":1}',
    b'{"x":' + b"[" * 100_000,
    b"{",
    b"",
    None,
]


@pytest.mark.parametrize("payload", BAD_STATES)
def test_a_malformed_partition_state_znode_is_refused_with_its_path(payload: bytes | None) -> None:
    with pytest.raises(MalformedZnode, match="/brokers/topics/a/partitions/0/state"):
        znodes.decode_state(A0, payload, 0)


# ---- registrations

TWO = (
    Endpoint("INTERNAL", SecurityProtocol.PLAINTEXT, "b7.example", 19092),
    Endpoint("CLIENTS", SecurityProtocol.SSL, "::1", 9093),
)


def test_a_broker_registration_is_encoded_as_by_kafka() -> None:
    payload = (
        b'{"features":{},"listener_security_protocol_map":{"INTERNAL":"PLAINTEXT","CLIENTS":"SSL"},'
        b'"endpoints":["INTERNAL://b7.example:19092","CLIENTS://[::1]:9093"],'
        b'"rack":"row-a","jmx_port":-1,"port":19092,"host":"b7.example","version":5,"timestamp":"1700000000123"}'
    )

    read = decode_registration(BrokerId(7), payload, 42)

    assert read == Registration(Broker(BrokerId(7), TWO, "row-a", 42), {})
    assert encode_registration(read.broker, 1700000000123) == payload


def test_a_broker_registration_without_a_plaintext_listener_has_no_host_and_port() -> None:
    content = json.loads(encode_registration(Broker(BrokerId(7), TWO[1:]), 0))

    assert (content["host"], content["port"], "rack" in content) == (None, -1, False)


@pytest.mark.parametrize("version", [2, 4, 5])
def test_older_versions_of_a_broker_registration_omit_newer_keys(version: int) -> None:
    content = json.loads(encode_registration(Broker(BrokerId(7), TWO[:1], "r"), 0, version=version))

    assert ("features" in content) == (version >= 5)
    assert ("listener_security_protocol_map" in content) == (version >= 4)
    assert ("rack" in content) == (version >= 4)


REGISTRATIONS: dict[str, tuple[dict[str, Any], tuple[Endpoint, ...]]] = {
    "version 1": (
        {"version": 1, "jmx_port": -1, "host": "h", "port": 1},
        (Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "h", 1),),
    ),
    "version 2: the listener's name is the protocol": (
        {"version": 2, "jmx_port": 9, "endpoints": ["ssl://h:1"]},
        (Endpoint("SSL", SecurityProtocol.SSL, "h", 1),),
    ),
    "names in lower case": (
        {"version": 4, "jmx_port": 9, "endpoints": ["in://h:1"], "listener_security_protocol_map": {"in": "SASL_SSL"}},
        (Endpoint("IN", SecurityProtocol.SASL_SSL, "h", 1),),
    ),
}


@pytest.mark.parametrize(("content", "endpoints"), REGISTRATIONS.values(), ids=REGISTRATIONS)
def test_broker_registrations_of_old_versions_are_decoded(
    content: dict[str, Any], endpoints: tuple[Endpoint, ...]
) -> None:
    assert decode_registration(BrokerId(1), json.dumps(content).encode(), 1).broker.endpoints == endpoints


def test_features_in_a_broker_registration_are_decoded() -> None:
    content = {"version": 5, "jmx_port": 1, "endpoints": [], "features": {"f": {"min_version": 1, "max_version": 3}}}

    assert decode_registration(BrokerId(1), json.dumps(content).encode(), 1).features == {"f": FeatureRange(1, 3)}


GOOD = {"version": 5, "jmx_port": -1, "endpoints": ["A://h:1"], "listener_security_protocol_map": {"A": "PLAINTEXT"}}
BAD_REGISTRATIONS: dict[str, dict[str, Any]] = {
    "no jmx_port": {k: v for k, v in GOOD.items() if k != "jmx_port"},
    "version 0": GOOD | {"version": 0},
    "no endpoints": {k: v for k, v in GOOD.items() if k != "endpoints"},
    "version 1 without a host": {"version": 1, "jmx_port": 1},
    "not an endpoint": GOOD | {"endpoints": ["h:1"]},
    "a listener without a protocol": GOOD | {"listener_security_protocol_map": {}},
    "an unknown protocol": GOOD | {"listener_security_protocol_map": {"A": "TLS"}},
    "a listener twice": GOOD | {"endpoints": ["A://h:1", "A://h:2"]},
    "a feature beyond its field": GOOD | {"features": {"f": {"min_version": 1, "max_version": 32_768}}},
    "no such port": GOOD | {"endpoints": ["A://h:65536"]},
    "a very long port": GOOD | {"endpoints": ["A://h:" + "9" * 5_000]},
    "half a feature": GOOD | {"features": {"f": {"min_version": 1}}},
}


@pytest.mark.parametrize("content", BAD_REGISTRATIONS.values(), ids=BAD_REGISTRATIONS)
def test_a_malformed_broker_registration_is_refused_with_its_path(content: dict[str, Any]) -> None:
    with pytest.raises(MalformedZnode, match="/brokers/ids/1"):
        decode_registration(BrokerId(1), json.dumps(content).encode(), 1)


# ---- what operators and tools write


def test_a_reassign_partitions_znode_with_unknown_keys_is_refused() -> None:
    payload = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,3]}]}'
    t0 = TopicPartition("t", 0)

    assert admin.decode_reassignment(payload) == {t0: ids(2, 3)}
    assert admin.encode_reassignment({t0: ids(2, 3)}) == payload
    with pytest.raises(MalformedZnode, match="/admin/reassign_partitions"):
        admin.decode_reassignment(payload.replace(b'"version":1', b'"version":1,"x":1'))


BEYOND_THE_WIRE = [
    b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2147483648]}]}',
    b'{"version":1,"partitions":[{"topic":"t","partition":2147483648,"replicas":[1]}]}',
]


@pytest.mark.parametrize("payload", BEYOND_THE_WIRE)
def test_numbers_in_znodes_beyond_the_wire_protocols_range_are_refused_as_malformed(payload: bytes) -> None:
    with pytest.raises(MalformedZnode, match="2147483647"):
        admin.decode_reassignment(payload)


def test_broker_ids_in_znodes_are_read_as_kafka_writes_them() -> None:
    children = ["0", "7", "2147483647", "2147483648", "07", "-1", "\u00b2", "\u0663", "x", "", "9" * 5_000]

    assert [b for b in map(znodes.broker_id_of, children) if b is not None] == [0, 7, 2147483647]


def test_encoded_znodes_that_list_partitions_decode_to_the_same_partitions() -> None:
    payload = b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
    listed = [TopicPartition("t", 0)]

    assert admin.encode_preferred_election(listed) == admin.encode_isr_change(listed) == payload
    assert admin.decode_preferred_election(payload) == admin.decode_isr_change("c", payload) == listed
    with pytest.raises(MalformedZnode, match="/isr_change_notification/c"):
        admin.decode_isr_change("c", b"{}")


def test_log_dir_event_notification_znodes_decode_to_their_broker_id() -> None:
    payload = b'{"version":1,"broker":7,"event":1}'

    assert admin.encode_log_dir_event(BrokerId(7)) == payload
    assert admin.decode_log_dir_event("e", payload) == 7


def test_a_config_znode_must_have_string_values_and_may_lack_the_config_key() -> None:
    payload = b'{"version":1,"config":{"retention.ms":"1000"}}'

    assert admin.encode_config({"retention.ms": "1000"}) == payload
    assert admin.decode_config("topics", "t", payload) == {"retention.ms": "1000"}
    for empty in (None, b"", b"{}", b'{"config":null}'):
        assert admin.decode_config("topics", "t", empty) == {}
    with pytest.raises(MalformedZnode, match="/config/topics/t"):
        admin.decode_config("topics", "t", b'{"config":{"retention.ms":1000}}')


CHANGES = {
    b'{"version":2,"entity_path":"users/a/clients/b"}': "users/a/clients/b",
    b'{"version":1,"entity_type":"topics","entity_name":"t"}': "topics/t",
    b'{"version":1,"entity_type":"users","entity_name":"t"}': None,
    b'{"version":2,"entity_path":"/topics/t"}': None,
    b'{"version":3,"entity_path":"topics/t"}': None,
    b"{}": None,
}


@pytest.mark.parametrize(("payload", "entity"), CHANGES.items())
def test_config_change_notification_znodes_decode_to_their_entity(payload: bytes, entity: str | None) -> None:
    if entity is not None:
        assert admin.decode_config_change("c", payload) == entity
        return
    with pytest.raises(MalformedZnode, match="/config/changes/c"):
        admin.decode_config_change("c", payload)


def test_the_number_of_a_config_change_notification_is_read_from_its_name() -> None:
    assert change_number("config_change_0000000012") == 12
    for name in ("config_change_", "config_change_x", "change_1", "config_change_" + "9" * 5_000):
        assert change_number(name) == -1


def test_a_config_change_notification_znode_has_the_path_of_its_entity() -> None:
    assert admin.encode_config_change("topics/t") == b'{"version":2,"entity_path":"topics/t"}'


def test_the_cluster_id_znode_holds_the_id_and_a_version_written_as_string() -> None:
    payload = b'{"version":"1","id":"kJ8m0Y3mQ5q0k3h3yQmD1A"}'

    assert admin.encode_cluster_id("kJ8m0Y3mQ5q0k3h3yQmD1A") == payload
    assert admin.decode_cluster_id(payload) == "kJ8m0Y3mQ5q0k3h3yQmD1A"


def test_the_feature_znode_is_decoded_in_payload_versions_1_and_2() -> None:
    new = b'{"version":2,"status":1,"features":{"f":{"max_version_level":3}}}'
    old = b'{"version":1,"status":0,"features":{"f":{"min_version_level":1,"max_version_level":3}}}'

    assert admin.decode_features(new) == admin.FinalizedFeatures(2, True, {"f": 3})
    assert admin.encode_features(admin.decode_features(new)) == new
    assert admin.encode_features(admin.decode_features(old)) == old
    for bad in (
        new.replace(b":2,", b":3,"),
        new.replace(b":3}", b":0}"),
        new.replace(b":3}", b":32768}"),
        b'{"version":2,"status":7,"features":{}}',
    ):
        with pytest.raises(MalformedZnode, match="/feature"):
            admin.decode_features(bad)


def test_an_encoded_producer_id_block_znode_decodes_to_the_same_block() -> None:
    payload = b'{"version":1,"broker":4,"block_start":"3000","block_end":"3999"}'
    block = admin.ProducerIdBlock(BrokerId(4), 3000, 3999)

    assert admin.encode_producer_id_block(block) == payload
    assert admin.decode_producer_id_block(payload) == block
    assert admin.decode_producer_id_block(None) is None
    for no_id in (b"x", b"-1", b"4000", b"9" * 20):
        with pytest.raises(MalformedZnode, match="/latest_producer_id_block"):
            admin.decode_producer_id_block(payload.replace(b"3000", no_id))


def test_a_new_topic_id_is_unchanged_after_encoding_and_decoding() -> None:
    topic_id = uuid.UUID(int=2**100 + 5)

    assert znodes.decode_topic("a", znodes.encode_topic(topic_id, {})).topic_id == topic_id
