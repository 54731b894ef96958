"""server.properties becomes a frozen NodeConfig, or one sentence that names the wrong line."""

from dataclasses import fields

import pytest

from klamm.config.broker_keys import BROKER_KEYS, parse_value
from klamm.config.dynamic_keys import QUOTA_KEYS
from klamm.config.meanings import BROKER_MEANINGS
from klamm.config.node_config import NodeConfig, WrongConfig, parse_node_config
from klamm.config.topic_config import TopicConfig
from klamm.model.brokers import Endpoint, SecurityProtocol


def read(text: str) -> NodeConfig:
    return parse_node_config(f"zookeeper.connect=z1:2181\n{text}".encode(), "server.properties")


def refusal(text: str) -> str:
    with pytest.raises(WrongConfig) as refused:
        read(text)
    return str(refused.value)


def test_unset_config_keys_take_kafkas_defaults() -> None:
    config = read("")

    assert config.broker_id == -1
    assert config.endpoints == (Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "", 9092),)
    assert config.advertised_endpoints == config.endpoints
    assert config.log_directories == ("/tmp/kafka-logs",)
    assert config.zookeeper_connection_timeout_ms == config.zookeeper_session_timeout_ms == 18_000
    assert (config.zookeeper_hosts, config.zookeeper_chroot) == ("z1:2181", "")
    assert config.warnings == ()


def test_the_config_klamm_controller_only_brokers_is_parsed_as_broker_ids() -> None:
    assert read("").klamm_controller_only_brokers == frozenset()
    assert read("klamm.controller.only.brokers=100, 101").klamm_controller_only_brokers == {100, 101}
    assert "'x' is no broker.id" in refusal("klamm.controller.only.brokers=x")


def test_every_default_in_the_table_of_config_keys_is_valid_for_its_type() -> None:
    assert len(BROKER_KEYS) > 300
    for key in BROKER_KEYS.values():
        if key.default is not None:
            parse_value(key, key.default)


def test_every_broker_config_that_a_node_uses_has_an_explanation() -> None:
    used = {field.name.replace("_", ".") for field in fields(NodeConfig)} & BROKER_KEYS.keys()

    assert not used - BROKER_MEANINGS.keys()
    assert not BROKER_MEANINGS.keys() - BROKER_KEYS.keys() - QUOTA_KEYS.keys()


def test_every_config_key_that_begins_with_klamm_is_a_field_of_node_or_topic_config() -> None:
    parsed = {field.name.replace("_", ".") for kind in (NodeConfig, TopicConfig) for field in fields(kind)}

    assert not {name for name in BROKER_KEYS if name.startswith("klamm.")} - parsed


def test_custom_listener_names_are_parsed_with_their_security_protocols() -> None:
    config = read(
        "listeners=CLIENT://:9092,REPL://[::1]:9093\n"
        "advertised.listeners=client://h1:19092,REPL://h1:9093\n"
        "listener.security.protocol.map=CLIENT:PLAINTEXT,REPL:plaintext\n"
        "inter.broker.listener.name=REPL\n"
    )

    assert [str(e) for e in config.endpoints] == ["CLIENT://:9092", "REPL://[::1]:9093"]
    assert [str(e) for e in config.advertised_endpoints] == ["CLIENT://h1:19092", "REPL://h1:9093"]
    assert config.inter_broker_listener == "REPL"


def test_the_config_zookeeper_connect_is_split_into_hosts_and_chroot() -> None:
    config = parse_node_config(b"zookeeper.connect=z1:2181, z2:2182/kafka/a/", "x")

    assert (config.zookeeper_hosts, config.zookeeper_chroot) == ("z1:2181,z2:2182", "/kafka/a")


def test_the_last_line_of_a_repeated_config_key_is_used() -> None:
    assert read("broker.id=1\nbroker.id=2").broker_id == 2


def test_an_unknown_config_key_logs_a_warning_with_the_nearest_known_key() -> None:
    (warning,) = read("log.retention.minuts=3\nlistener.name.plaintext.max.connections=3").warnings

    assert "server.properties, line 2: log.retention.minuts" in warning
    assert "log.retention.minutes?" in warning


REFUSED = {
    "not a number": ("broker.id=one", "line 2: broker.id=one is not valid: write a whole number"),
    "too large": ("num.partitions=99999999999", "32 bits"),
    "below the range": ("num.partitions=0", "at least 1"),
    "not an allowed choice": ("log.cleanup.policy=delete,keep", "compact, delete"),
    "not a boolean": ("auto.create.topics.enable=yes", "true or false"),
    "reserved broker id": ("broker.id=1001", "reserved.broker.max.id"),
    "no broker id and generation disabled": (
        "broker.id.generation.enable=false",
        '"broker.id" is not set: write 0 or more',
    ),
    "no listener syntax": ("listeners=localhost:9092", "PLAINTEXT://localhost:9092"),
    "listener without protocol": ("listeners=FAST://:9092", "listener.security.protocol.map"),
    "TLS": ("listeners=SSL://:9093", "does not offer yet"),
    "port": ("listeners=PLAINTEXT://:70000", "0 to 65535"),
    "same port": (
        "listeners=A://:9092,B://:9092\nlistener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT",
        "9092 is listed twice",
    ),
    "same name": ("listeners=PLAINTEXT://:1,PLAINTEXT://:2", "a name of its own"),
    "unknown protocol": ("listener.security.protocol.map=A:TLS", "PLAINTEXT, SSL"),
    "advertised wildcard address": ("listeners=PLAINTEXT://0.0.0.0:9092", "advertised.listeners"),
    "advertised listener that is not a listener": (
        "listeners=PLAINTEXT://:1\nadvertised.listeners=B://h:2\nlistener.security.protocol.map=PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
        "not among the listeners",
    ),
    "inter-broker listener": ("inter.broker.listener.name=REPL", "write one of PLAINTEXT"),
    "inter-broker listener by name and by protocol": (
        "inter.broker.listener.name=PLAINTEXT\nsecurity.inter.broker.protocol=PLAINTEXT",
        "not both",
    ),
    "no listener for brokers": ("security.inter.broker.protocol=SSL", "no listener uses SSL"),
    "control plane": ("control.plane.listener.name=PLAINTEXT", "must differ"),
    "zookeeper port": ("zookeeper.connect=z1:abc", "is not host:port"),
    "directory twice": ("log.dirs=/a,/a", "twice"),
    "no directory": ("log.dirs=,", "at least one directory"),
    "empty directories": ("log.dirs=", "at least one directory"),
    "no retention": ("log.retention.ms=0", "log.retention.ms=0: write at least 1, or -1 for no limit"),
    "no retention in hours": ("log.retention.hours=0", "log.retention.hours=0: write at least 1"),
    "little memory for compaction": (
        "log.cleaner.threads=100\nlog.cleaner.dedupe.buffer.size=104857600",
        "write more than 1048576 for each of log.cleaner.threads",
    ),
    "no cleaner thread": ("log.cleaner.threads=0", "write at least 1"),
    "sign twice": ("num.partitions=-+5", "write a whole number"),
    "number as Python writes it": ("log.cleaner.io.buffer.load.factor=0_0.5", "write a number"),
    "two broker ids": ("broker.id=1\nnode.id=2", "node.id=2: write the same as broker.id"),
    "no ensemble": ("zookeeper.connect=,/kafka", "write host:port of the ensemble"),
    "connection override without a count": ("max.connections.per.ip.overrides=h1", "host:count"),
    "nobody may connect": ("max.connections.per.ip=0", "no client can connect"),
    "KRaft": ("process.roles=broker", "ZooKeeper mode"),
    "own replica selector": ("replica.selector.class=x.Y", "common.replica.RackAwareReplicaSelector, or remove it"),
    "authorizer": ("authorizer.class.name=x.Y", "ACLs are not offered"),
    "old protocol": ("inter.broker.protocol.version=1.1", "2.0 to 3.9"),
    "fetch wait longer than the replica lag": ("replica.lag.time.max.ms=100", "replica.lag.time.max.ms"),
    "invalid escape": ("log.dir=\\u00", "line 2"),
}


@pytest.mark.parametrize(("text", "expected"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_config_value_is_refused_with_the_allowed_values(text: str, expected: str) -> None:
    message = refusal(text)

    assert message.startswith("server.properties")
    assert expected in message


def test_a_finer_retention_of_zero_counts_and_a_coarser_one_does_not() -> None:
    assert read("log.retention.ms=5\nlog.retention.hours=0").given["log.retention.ms"] == "5"
    assert "log.retention.minutes=0" in refusal("log.retention.minutes=0\nlog.retention.hours=5")


@pytest.mark.parametrize("version", ["2.8", "2.8.1", "3.9.0", "3.9-IV0", "2.0.1"])
def test_an_inter_broker_protocol_version_may_have_a_third_part_as_in_kafka(version: str) -> None:
    assert read(f"inter.broker.protocol.version={version}").inter_broker_protocol_version == version


def test_empty_entries_of_config_lists_are_ignored_as_in_kafka() -> None:
    config = read(
        "log.dirs=/a,,/b,\nlisteners=PLAINTEXT://:9092,\nlistener.security.protocol.map=PLAINTEXT : PLAINTEXT"
    )

    assert config.log_directories == ("/a", "/b")
    assert [str(e) for e in config.endpoints] == ["PLAINTEXT://:9092"]
    connect = parse_node_config(b"zookeeper.connect=z1:2181, z2:2181,/kafka", "x")
    assert (connect.zookeeper_hosts, connect.zookeeper_chroot) == ("z1:2181,z2:2181", "/kafka")


def test_node_id_is_another_name_of_broker_id() -> None:
    assert (read("node.id=7").broker_id, read("node.id=7\nbroker.id=7").broker_id) == (7, 7)


def test_a_config_without_zookeeper_connect_is_refused() -> None:
    with pytest.raises(WrongConfig, match=r"\"zookeeper.connect\" is not set: .*localhost:2181"):
        parse_node_config(b"broker.id=1", "server.properties")


def test_command_line_overrides_take_precedence_over_the_config_file() -> None:
    config = parse_node_config(b"zookeeper.connect=z:1\nbroker.id=1", "x", {"broker.id": "7"})

    assert config.broker_id == 7
    assert config.given["broker.id"] == "7"
    with pytest.raises(WrongConfig, match=r"--override: broker.id=seven is not valid: write a whole number"):
        parse_node_config(b"zookeeper.connect=z:1", "x", {"broker.id": "seven"})
