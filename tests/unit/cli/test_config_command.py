"""`klamm config`: the reference, entities, changes."""

from dataclasses import fields

import pytest
from tests.unit.cli.admin.scripted_brokers import Brokers, run

from klamm.cli.admin.client import CannotAsk
from klamm.cli.admin.configs import change_configs
from klamm.cli.commands.config import EntityType, entity
from klamm.cli.config_reference import explain_key, explanation_rows
from klamm.config.broker_keys import BROKER_KEYS
from klamm.config.dynamic_keys import QUOTA_KEYS
from klamm.config.entities import BROKER, TOPIC, Config, Entity, Synonym
from klamm.config.meanings import BROKER_MEANINGS
from klamm.config.node_config import NodeConfig
from klamm.config.topic_config import ConfigSource
from klamm.model.errors import UsageError
from klamm.wire.api import ApiKey


def test_config_explain_prints_topic_and_broker_meaning_of_a_key_that_both_have() -> None:
    of_topics, of_brokers = explain_key("min.insync.replicas", None)

    assert (of_topics.entity_type, of_brokers.entity_type) == ("topics", "brokers")
    assert of_topics.meaning == of_brokers.meaning
    assert explain_key("min.insync.replicas", "topics") == [of_topics]


@pytest.mark.parametrize(
    ("key", "dynamic"),
    [
        ("broker.id", "no: change server.properties"),
        ("log.retention.ms", "yes: klamm config set --broker N, or --entity-default"),
        ("advertised.listeners", "yes, for each broker"),
        ("leader.replication.throttled.rate", "only dynamic"),
    ],
)
def test_config_explain_states_whether_a_key_can_be_changed_without_a_restart(key: str, dynamic: str) -> None:
    assert explain_key(key, None)[0].dynamic.startswith(dynamic)


def test_config_explain_prints_ranges_and_choices_of_valid_values() -> None:
    said = {key: explain_key(key, "brokers")[0].allowed for key in ("klamm.metrics.port", "log.cleaner.threads")}

    assert said == {"klamm.metrics.port": "from 0 to 65535", "log.cleaner.threads": "at least 0"}
    assert explain_key("compression.type", "brokers")[0].allowed.startswith("one of uncompressed, zstd")


def test_config_explain_rejects_an_unknown_key_and_suggests_similar_keys() -> None:
    with pytest.raises(UsageError, match=r"There is no config retention.mss. Did you mean retention.ms"):
        explain_key("retention.mss", None)
    with pytest.raises(UsageError, match=r"no config broker\.id of topics"):
        explain_key("broker.id", "topics")


def test_every_key_of_the_node_config_has_an_explanation_for_config_explain() -> None:
    known = {name.replace(".", "_"): name for name in BROKER_KEYS}
    read = {known[f.name] for f in fields(NodeConfig) if f.name in known}

    assert set(BROKER_MEANINGS) <= BROKER_KEYS.keys() | QUOTA_KEYS.keys()
    assert read - BROKER_MEANINGS.keys() == set()


def test_config_explain_prints_the_current_value_with_all_its_sources() -> None:
    synonyms = (
        Synonym("retention.ms", "1", ConfigSource.TOPIC),
        Synonym("log.retention.ms", "2", ConfigSource.DYNAMIC_DEFAULT),
    )
    now = Config("retention.ms", "1", ConfigSource.TOPIC, False, False, synonyms, None)

    said = explanation_rows(explain_key("retention.ms", "topics")[0], now)[-3:]

    assert [fact for _, fact in said] == [
        "1, from DYNAMIC_TOPIC_CONFIG",
        "DYNAMIC_TOPIC_CONFIG: retention.ms=1",
        "DYNAMIC_DEFAULT_BROKER_CONFIG: log.retention.ms=2",
    ]


def test_config_commands_require_options_that_name_exactly_one_entity() -> None:
    assert entity(None, None, False, "t", None) == Entity(TOPIC, "t")
    assert entity(None, None, False, None, 0) == Entity(BROKER, "0")
    assert entity(EntityType.BROKERS, None, True, None, None) == Entity(BROKER, "")
    for wrong, why in (
        ((None, None, False, None, None), "Choose one of"),
        ((None, None, False, "t", 1), "Choose one of"),
        ((None, "t", False, "t", None), "need --entity-type"),
        ((EntityType.TOPICS, None, True, None, None), "no defaults of their own"),
        ((EntityType.BROKERS, None, False, None, None), "needs --entity-name"),
        ((EntityType.BROKERS, "one", False, None, None), "not a broker id"),
    ):
        with pytest.raises(UsageError, match=why):
            entity(*wrong)


@pytest.mark.parametrize("entity", [Entity(TOPIC, "t"), Entity(BROKER, "2")])
def test_a_config_change_without_an_answer_is_reported_as_possibly_applied(entity: Entity) -> None:
    brokers = Brokers(1, 2)
    brokers.answers[ApiKey.INCREMENTAL_ALTER_CONFIGS] = lambda _v, _m: None

    with pytest.raises(CannotAsk, match="The change may still happen: check before you repeat it"):
        run(brokers, lambda admin: change_configs(admin, {entity: {"retention.ms": "1"}}))


def test_a_config_change_that_was_not_sent_is_not_reported_as_possibly_applied() -> None:
    with pytest.raises(CannotAsk, match=r"broker 9 is not alive \(BROKER_NOT_AVAILABLE\). Live brokers: 1, 2.$"):
        run(Brokers(1, 2), lambda admin: change_configs(admin, {Entity(BROKER, "9"): {"retention.ms": "1"}}))
