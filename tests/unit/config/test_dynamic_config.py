"""Which configs may change while a node runs, and what counts then."""

from collections.abc import Mapping

import pytest

from klamm.config.dynamic_config import DynamicConfig
from klamm.config.dynamic_keys import DYNAMIC_KEYS, is_dynamic, is_per_broker, synonyms
from klamm.config.node_config import NodeConfig, parse_node_config
from klamm.model.errors import KlammError


def dynamic(**given: str) -> DynamicConfig:
    properties = {name.replace("_", "."): value for name, value in given.items()}
    return DynamicConfig(parse_node_config(b"zookeeper.connect=z:2181", "server.properties", properties))


def _max_bytes(config: NodeConfig) -> int:
    """Return message.max.bytes of the config; 1 MiB, Kafka's default, where it is not set."""
    return int(config.given.get("message.max.bytes", "1048588"))


def refusal(configs: Mapping[str, str], *, per_broker: bool = True) -> str:
    with pytest.raises(KlammError) as refused:
        dynamic().check(configs, per_broker=per_broker)
    return str(refused.value)


def test_the_number_of_dynamic_config_keys_equals_kafkas() -> None:
    assert len([key for key in DYNAMIC_KEYS if not key.startswith("klamm.")]) == 89
    assert is_dynamic("log.retention.ms")
    assert is_dynamic("a.plugins.own.key")
    assert not any(map(is_dynamic, ("log.retention.hours", "broker.id", "log.message.format.version")))


def test_synonyms_of_a_config_key_are_listed_in_descending_precedence() -> None:
    assert synonyms("log.retention.hours") == ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
    assert synonyms("listener.name.a.max.connections") == ("listener.name.a.max.connections", "max.connections")


def test_config_keys_with_a_listener_prefix_are_per_broker_configs() -> None:
    assert is_per_broker("advertised.listeners")
    assert is_per_broker("listener.name.a.ssl.keystore.type")
    assert not is_per_broker("listener.name.a.max.connections")


def test_dynamic_broker_configs_override_cluster_defaults_and_these_override_the_file() -> None:
    config = dynamic(message_max_bytes="1")
    config.apply({"message.max.bytes": "2", "min.insync.replicas": "2"}, {"message.max.bytes": "3"})

    assert (_max_bytes(config.current), config.current.min_insync_replicas) == (3, 2)

    config.apply({"message.max.bytes": "2"}, {})

    assert (_max_bytes(config.current), config.current.min_insync_replicas) == (2, 1)


def test_a_dynamic_config_overrides_its_synonym_in_the_config_file() -> None:
    config = dynamic(log_retention_hours="5")
    config.apply({}, {"log.retention.ms": "7"})

    assert "log.retention.hours" not in config.current.given


def test_the_change_callback_is_called_once_per_change_of_dynamic_configs() -> None:
    heard: list[tuple[NodeConfig, NodeConfig]] = []
    config = dynamic()
    config.on_change = lambda before, now: heard.append((before, now))
    for _ in range(2):
        config.apply({"message.max.bytes": "2"}, {})

    assert [(_max_bytes(before), _max_bytes(now)) for before, now in heard] == [(1_048_588, 2)]


def test_invalid_dynamic_configs_in_zookeeper_are_ignored() -> None:
    config = dynamic()
    config.apply({"message.max.bytes": "many", "listeners": "A://:1"}, {"broker.id": "9", "num.io.threads": "9"})

    assert (dict(config.cluster), dict(config.broker)) == ({}, {"num.io.threads": "9"})


def test_contradictory_dynamic_configs_in_zookeeper_change_nothing() -> None:
    config = dynamic()
    config.apply({}, {"log.cleaner.min.compaction.lag.ms": "5", "log.cleaner.max.compaction.lag.ms": "4"})

    assert "log.cleaner.min.compaction.lag.ms" not in config.current.given


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ({"broker.rack": "a", "broker.id": "1"}, "Cannot update these configs dynamically: broker.id, broker.rack"),
        ({"ssl.keystore.type": "JKS"}, "only per-listener"),
        ({"message.max.bytes": "many"}, "message.max.bytes=many"),
        ({"message.max.bytes": "-1"}, "at least 0"),
        ({"leader.replication.throttled.rate": "-1"}, "at least 0"),
        ({"num.io.threads": "0"}, "at least 1"),
        ({"num.io.threads": "3"}, "at least half the current value 8"),
        ({"num.io.threads": "17"}, "double the current value 8"),
        ({"listener.name.a.ssl.key.password": "x"}, "passwords cannot be changed"),
        ({"listener.name.a.scram-sha-256.sasl.jaas.config": "x"}, "passwords cannot be changed"),
        ({"log.retention.ms": "0"}, "write at least 1, or -1 for no limit"),
        ({"advertised.listeners": "OTHER://h:1"}, "advertised.listeners"),
        ({"log.cleaner.min.compaction.lag.ms": "5", "log.cleaner.max.compaction.lag.ms": "4"}, "must not exceed"),
    ],
)
def test_an_invalid_dynamic_config_is_refused(configs: Mapping[str, str], words: str) -> None:
    assert words in refusal(configs)


def test_a_per_broker_config_is_refused_as_a_cluster_default() -> None:
    assert "broker id must be specified" in refusal({"advertised.listeners": "PLAINTEXT://h:1"}, per_broker=False)


def test_a_valid_dynamic_config_is_accepted() -> None:
    config = dynamic()
    config.check({"num.io.threads": "16", "log.retention.ms": "-1", "my.plugin": "x"}, per_broker=False)
    config.check({"advertised.listeners": "PLAINTEXT://h:1"}, per_broker=True)


def test_the_explicitly_set_configs_include_later_dynamic_changes() -> None:
    config = dynamic(message_max_bytes="1")
    given = config.given
    config.apply({"min.insync.replicas": "2"}, {"message.max.bytes": "3"})

    assert (given["message.max.bytes"], given.get("min.insync.replicas")) == ("3", "2")
    assert len(given) == len(list(given)) == 3
