"""Topic configs: defaults, synonyms, what is refused and how."""

import pytest

from klamm.config.config_types import MAX_LONG, ConfigType, InvalidConfig, parse_value
from klamm.config.topic_config import (
    TOPIC_KEYS,
    ConfigSource,
    Origin,
    TopicConfig,
    effective_text,
    origins,
    source_of,
    usable_overrides,
)


def test_every_topic_config_key_has_a_field_and_a_valid_default() -> None:
    config = TopicConfig.parse()

    assert {key.field for key in TOPIC_KEYS.values()} == set(TopicConfig.__slots__)
    assert all(key.doc.endswith(".") for key in TOPIC_KEYS.values())
    assert (config.segment_bytes, config.retention_ms, config.min_insync_replicas) == (1 << 30, 604_800_000, 1)
    assert (config.is_deleted, config.is_compacted, config.uses_log_append_time) == (True, False, False)


def test_topic_configs_override_broker_configs_and_finer_time_units_override_coarser_units() -> None:
    broker = {"log.retention.hours": "2", "log.retention.minutes": "7", "message.max.bytes": "5000"}

    assert TopicConfig.parse({}, broker).retention_ms == 7 * 60_000
    assert TopicConfig.parse({"retention.ms": "3"}, broker).retention_ms == 3
    assert TopicConfig.parse({}, broker).max_message_bytes == 5000
    assert TopicConfig.parse({}, {"log.retention.hours": "-1"}).retention_ms == -1


def test_sources_of_a_topic_config_value_are_listed_in_descending_precedence() -> None:
    assert origins("segment.ms", {"segment.ms": "5"}, [(ConfigSource.BROKER, {"log.roll.hours": "2"})]) == [
        Origin("segment.ms", "5", ConfigSource.TOPIC),
        Origin("log.roll.hours", "2", ConfigSource.BROKER),
    ]
    assert origins("segment.bytes", {}, []) == [Origin("log.segment.bytes", "1073741824", ConfigSource.DEFAULT)]
    assert effective_text("segment.ms", {}, {"log.roll.hours": "2"}) == "7200000"
    assert source_of(origins("leader.replication.throttled.replicas", {}, [])) is ConfigSource.DEFAULT


def test_the_states_of_transactions_are_synced_before_the_acknowledgement_by_default() -> None:
    name, topic = "klamm.sync.before.ack", "__transaction_state"

    def is_synced(overrides: dict[str, str], broker: dict[str, str], of: str = topic) -> bool:
        return TopicConfig.parse(overrides, broker, of).klamm_sync_before_ack

    assert (is_synced({}, {}), is_synced({}, {}, "orders")) == (True, False)
    assert (is_synced({name: "false"}, {}), is_synced({}, {name: "false"})) == (False, False)
    assert effective_text(name, {}, {}, topic) == "true"
    assert origins(name, {}, [], topic) == [Origin(name, "true", ConfigSource.DEFAULT)]
    assert origins(name, {}, [], "orders") == [Origin(name, "false", ConfigSource.DEFAULT)]


REFUSED = {
    "unknown key with a similar one": (
        {"retention.mss": "1"},
        "retention.mss is not a config: did you mean retention.ms?",
    ),
    "unknown key without a similar one": ({"zzz": "1"}, "zzz is not a config: no topic config has a name like it"),
    "not a number": (
        {"segment.bytes": "big"},
        "segment.bytes=big is not valid: the value must be a whole number of 32 bits",
    ),
    "number as Python writes it": ({"segment.bytes": "1_000_000"}, "a whole number of 32 bits"),
    "very long number": ({"segment.bytes": "9" * 5_000}, "a whole number of 32 bits"),
    "too many bits": ({"segment.bytes": str(1 << 40)}, "a whole number of 32 bits"),
    "too small": ({"segment.bytes": "13"}, "segment.bytes=13 is not valid: the value must be a number of at least 14"),
    "not in the list": (
        {"compression.type": "brotli"},
        "the value must be one of uncompressed, zstd, lz4, snappy, gzip, producer",
    ),
    "not in the set": ({"cleanup.policy": "compact,burn"}, "a comma-separated list out of compact, delete"),
    "not true or false": ({"preallocate": "yes"}, "preallocate=yes is not valid: the value must be true or false"),
    "not a ratio": ({"min.cleanable.dirty.ratio": "2"}, "a number from 0 to 1"),
    "not a float": ({"min.cleanable.dirty.ratio": "half"}, "the value must be a number"),
    "ratio as Python writes it": ({"min.cleanable.dirty.ratio": "0_0.5"}, "the value must be a number"),
    "gzip level": ({"compression.gzip.level": "0"}, "-1 or a number from 1 to 9"),
    "invalid throttled replicas": ({"leader.replication.throttled.replicas": "1-2"}, "PARTITION:BROKER"),
    "remote storage": ({"remote.storage.enable": "true"}, "klamm does not support remote storage"),
    "invalid message format version": ({"message.format.version": "new"}, "a Kafka version such as 3.0"),
    "message format version that Kafka does not have": (
        {"message.format.version": "9.9"},
        "a Kafka version such as 3.0",
    ),
    "minimum compaction lag above the maximum": (
        {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"},
        "min.compaction.lag.ms=9 is not valid: the value must not exceed max.compaction.lag.ms, which is 8",
    ),
}


@pytest.mark.parametrize(("overrides", "text"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_topic_config_is_refused_with_the_allowed_values(overrides: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        TopicConfig.parse(overrides)

    assert text in str(caught.value)


def test_topic_config_values_are_parsed_according_to_their_type() -> None:
    config = TopicConfig.parse(
        {
            "cleanup.policy": " compact , delete ",
            "preallocate": "TRUE",
            "leader.replication.throttled.replicas": "0:1,1:2",
            "follower.replication.throttled.replicas": "*",
            "max.compaction.lag.ms": "500",
        }
    )

    assert (config.cleanup_policy, config.preallocate) == (("compact", "delete"), True)
    assert config.leader_replication_throttled_replicas == ("0:1", "1:2")
    assert config.follower_replication_throttled_replicas == ("*",)
    assert config.max_segment_age_ms == 500


def test_values_that_kafka_accepts_are_accepted() -> None:
    assert TopicConfig.parse({"retention.bytes": "-2"}).retention_bytes == -2
    neither = TopicConfig.parse({"cleanup.policy": ""})
    assert (neither.is_deleted, neither.is_compacted) == (False, False)
    appended = TopicConfig.parse({"leader.replication.throttled.replicas": ",0:1", "message.format.version": "2.8-IV1"})
    assert appended.leader_replication_throttled_replicas == ("", "0:1")
    assert TopicConfig.parse({"segment.bytes": "+500"}).segment_bytes == 500


def test_every_negative_retention_of_the_broker_means_no_limit() -> None:
    assert TopicConfig.parse({}, {"log.retention.ms": "-5"}).retention_ms == -1
    assert TopicConfig.parse({}, {"log.retention.minutes": "-5"}).retention_ms == -1


def test_stored_configs_are_used_with_unknown_keys_and_contradictions_as_in_kafka() -> None:
    stored = {
        "retention.ms": "-1",
        "confluent.value.schema.validation": "true",
        "min.compaction.lag.ms": "9",
        "max.compaction.lag.ms": "8",
    }

    config = TopicConfig.parse_stored(stored)

    assert (config.retention_ms, config.min_compaction_lag_ms, config.max_compaction_lag_ms) == (-1, 9, 8)
    with pytest.raises(InvalidConfig, match="few"):
        TopicConfig.parse_stored({"segment.bytes": "few"})


def test_an_invalid_stored_config_does_not_hide_the_others_nor_delete_records() -> None:
    stored = {"min.insync.replicas": "2", "segment.bytes": "few", "retention.ms": "forever", "confluent.x": "1"}

    usable, problems = usable_overrides(stored)

    assert usable == {"min.insync.replicas": "2", "retention.ms": "-1"}
    assert [problem.split("=")[0].split(" ")[0] for problem in problems] == [
        "segment.bytes",
        "retention.ms",
        "confluent.x",
    ]


def test_the_deprecated_timestamp_difference_config_applies_where_its_replacements_are_unset() -> None:
    config = TopicConfig.parse({"message.timestamp.difference.max.ms": "5", "message.timestamp.after.max.ms": "9"})

    assert (config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms) == (5, 9)
    assert TopicConfig.parse().message_timestamp_after_max_ms == MAX_LONG


def test_topic_configs_of_type_short_are_limited_to_16_bits_and_strings_are_stripped() -> None:
    assert parse_value("x", ConfigType.SHORT, "-1") == -1
    assert parse_value("x", ConfigType.STRING, " a ") == "a"
    with pytest.raises(InvalidConfig, match="16 bits"):
        parse_value("x", ConfigType.SHORT, "40000")
