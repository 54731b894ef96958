"""Topic configs, one row each, parsed into a frozen object. Source: LogConfig.java, ServerTopicConfigSynonyms.java."""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple, Self

from klamm.config.broker_keys import BROKER_KEYS
from klamm.config.config_types import (
    ANY_VALUE,
    MAX_LONG,
    Allowed,
    ConfigType,
    ConfigValue,
    InvalidConfig,
    at_least,
    between,
    one_of,
    parse_value,
    some_of,
)

_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 24 * _HOUR_MS


class Synonym(NamedTuple):
    """A broker config that gives the topic config its default, multiplied by `factor`."""

    name: str
    factor: int = 1


class TopicKey(NamedTuple):
    name: str
    type: ConfigType
    default: str
    allowed: Allowed
    synonyms: tuple[Synonym, ...]
    doc: str

    @property
    def field(self) -> str:
        """The name of the config's field in `TopicConfig`."""
        return self.name.replace(".", "_")


def _key(
    name: str, kind: ConfigType, default: object, allowed: Allowed, synonyms: str | tuple[Synonym, ...], doc: str
) -> TopicKey:
    """Build the row of a topic config; synonyms may be given as text, separated by spaces."""
    known = tuple(map(Synonym, synonyms.split())) if isinstance(synonyms, str) else synonyms
    return TopicKey(name, kind, str(default), allowed, known, doc)


_THROTTLED: Final = re.compile(r"([0-9]{1,10}:[0-9]{1,10})?")
_THROTTLED_LIST: Final = Allowed(
    "*, or a comma-separated list of PARTITION:BROKER",
    lambda v: isinstance(v, tuple) and ("".join(v) == "*" or all(_THROTTLED.fullmatch(item) for item in v)),
)
_VERSION: Final = re.compile(r"(0\.(8\.[0-2]|9\.0|10\.[0-2]|11\.0)|1\.[01]|2\.[0-8]|3\.[0-9]|4\.0)(-IV[0-4]|\..*)?")
_FORMAT_VERSION: Final = Allowed(
    "a Kafka version such as 3.0", lambda v: isinstance(v, str) and _VERSION.fullmatch(v) is not None
)
_NOT_TIERED: Final = Allowed("false: klamm does not support remote storage", lambda v: v is False)
_GZIP_LEVEL: Final = Allowed("-1 or a number from 1 to 9", lambda v: v == -1 or (isinstance(v, int) and 1 <= v <= 9))

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = (
    ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST,
)  # fmt: skip
_ROLL: Final = (Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS))
_JITTER: Final = (Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", _HOUR_MS))
_RETENTION: Final = (
    Synonym("log.retention.ms"),
    Synonym("log.retention.minutes", _MINUTE_MS),
    Synonym("log.retention.hours", _HOUR_MS),
)

TOPIC_KEYS: Final[dict[str, TopicKey]] = {
    key.name: key
    for key in (
        _key("cleanup.policy", LIST, "delete", some_of("compact", "delete"), "log.cleanup.policy",
             "Whether old segments are deleted by age and size, compacted to each key's last value, or both."),
        _key("compression.gzip.level", INT, -1, _GZIP_LEVEL, "compression.gzip.level",
             "Compression level where compression.type is gzip."),
        _key("compression.lz4.level", INT, 9, between(1, 17), "compression.lz4.level",
             "Compression level where compression.type is lz4."),
        _key("compression.type", STRING, "producer",
             one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), "compression.type",
             "Codec in which batches are stored; producer keeps what the producer chose."),
        _key("compression.zstd.level", INT, 3, between(-131072, 22), "compression.zstd.level",
             "Compression level where compression.type is zstd."),
        _key("delete.retention.ms", LONG, _DAY_MS, at_least(0), "log.cleaner.delete.retention.ms",
             "How long compaction keeps delete markers, so that slow readers still see them."),
        _key("file.delete.delay.ms", LONG, 60_000, at_least(0), "log.segment.delete.delay.ms",
             "How long a deleted log file stays on disk."),
        _key("flush.messages", LONG, MAX_LONG, at_least(1), "log.flush.interval.messages",
             "Number of messages after which the log is synced to the device."),
        _key("flush.ms", LONG, MAX_LONG, at_least(0), "log.flush.interval.ms log.flush.scheduler.interval.ms",
             "Time after which the log is synced to the device."),
        _key("follower.replication.throttled.replicas", LIST, "", _THROTTLED_LIST, "",
             "Followers whose replication counts against the throttle."),
        _key("index.interval.bytes", INT, 4096, at_least(0), "log.index.interval.bytes",
             "Bytes of log between two index entries."),
        _key("klamm.sync.before.ack", BOOLEAN, "false", ANY_VALUE, "klamm.sync.before.ack",
             "Whether records are synced to the device of every in-sync replica before they are acknowledged; "
             "by default for __transaction_state alone."),
        _key("leader.replication.throttled.replicas", LIST, "", _THROTTLED_LIST, "",
             "Leaders whose replication counts against the throttle."),
        _key("local.retention.bytes", LONG, -2, at_least(-2), "log.local.retention.bytes",
             "Size kept on local disk where remote storage is on; -2 means retention.bytes."),
        _key("local.retention.ms", LONG, -2, at_least(-2), "log.local.retention.ms",
             "Time kept on local disk where remote storage is on; -2 means retention.ms."),
        _key("max.compaction.lag.ms", LONG, MAX_LONG, at_least(1), "log.cleaner.max.compaction.lag.ms",
             "Longest time that a record may stay uncompacted."),
        _key("max.message.bytes", INT, 1_048_588, at_least(0), "message.max.bytes",
             "Largest record batch that is accepted."),
        _key("message.downconversion.enable", BOOLEAN, "true", ANY_VALUE, "log.message.downconversion.enable",
             "Whether records are converted for consumers of old formats."),
        _key("message.format.version", STRING, "3.0-IV1", _FORMAT_VERSION, "log.message.format.version",
             "Ignored: the log is always of the newest format."),
        _key("message.timestamp.after.max.ms", LONG, MAX_LONG, at_least(0), "log.message.timestamp.after.max.ms",
             "How far ahead of the broker's clock a record's timestamp may be."),
        _key("message.timestamp.before.max.ms", LONG, MAX_LONG, at_least(0), "log.message.timestamp.before.max.ms",
             "How far behind the broker's clock a record's timestamp may be."),
        _key("message.timestamp.difference.max.ms", LONG, MAX_LONG, at_least(0),
             "log.message.timestamp.difference.max.ms",
             "Deprecated: sets message.timestamp.before.max.ms and message.timestamp.after.max.ms."),
        _key("message.timestamp.type", STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"),
             "log.message.timestamp.type", "Whether a record carries the producer's time or the broker's."),
        _key("min.cleanable.dirty.ratio", DOUBLE, 0.5, between(0, 1), "log.cleaner.min.cleanable.ratio",
             "Share of uncompacted bytes at which a log is compacted."),
        _key("min.compaction.lag.ms", LONG, 0, at_least(0), "log.cleaner.min.compaction.lag.ms",
             "Shortest time that a record stays uncompacted."),
        _key("min.insync.replicas", INT, 1, at_least(1), "min.insync.replicas",
             "Replicas that must be in sync for a write with acks=all."),
        _key("preallocate", BOOLEAN, "false", ANY_VALUE, "log.preallocate",
             "Whether the file of a new segment is allocated in its full size at once."),
        _key("remote.log.copy.disable", BOOLEAN, "false", _NOT_TIERED, "", "Stops copying to remote storage."),
        _key("remote.log.delete.on.disable", BOOLEAN, "false", _NOT_TIERED, "",
             "Deletes remote data when remote storage is turned off."),
        _key("remote.storage.enable", BOOLEAN, "false", _NOT_TIERED, "", "Whether old segments go to remote storage."),
        _key("retention.bytes", LONG, -1, ANY_VALUE, "log.retention.bytes",
             "Size of a partition above which its oldest segments are deleted; -1 means no limit."),
        _key("retention.ms", LONG, 7 * _DAY_MS, at_least(-1), _RETENTION,
             "Age at which segments are deleted; -1 means no limit."),
        _key("segment.bytes", INT, 1 << 30, at_least(14), "log.segment.bytes", "Largest size of a segment file."),
        _key("segment.index.bytes", INT, 10 << 20, at_least(4), "log.index.size.max.bytes",
             "Largest size of a segment's index."),
        _key("segment.jitter.ms", LONG, 0, at_least(0), _JITTER,
             "Maximum random time by which segment.ms is shortened, so that not all segments are closed at once."),
        _key("segment.ms", LONG, 7 * _DAY_MS, at_least(1), _ROLL, "Age after which a segment is closed."),
        _key("unclean.leader.election.enable", BOOLEAN, "false", ANY_VALUE, "unclean.leader.election.enable",
             "Whether a replica that is not in sync may become leader if no other can; records may be lost."),
    )
}  # fmt: skip


KEEP_RECORDS: Final = {"cleanup.policy": "", "retention.bytes": "-1", "retention.ms": "-1"}
"""Overrides with which no record is deleted. They take the place of configs that cannot be read: an operator may have
wanted to keep for ever what the defaults delete after a week."""

_DEFAULTS_OF_TOPICS: Final = {("__transaction_state", "klamm.sync.before.ack"): "true"}
"""By topic and config, where a topic's default is not that of all others.

A coordinator that lost its last records would give a producer id and epoch to a second producer."""
_TOPICS_WITH_DEFAULTS: Final = frozenset(topic for topic, _ in _DEFAULTS_OF_TOPICS)


def default_of(key: TopicKey, topic: str | None) -> str:
    """The value of a config that neither the topic nor the broker sets."""
    return _DEFAULTS_OF_TOPICS.get((topic, key.name), key.default) if topic else key.default


def has_own_defaults(topic: str) -> bool:
    """Whether some default of the topic is not that of all others."""
    return topic in _TOPICS_WITH_DEFAULTS


def default_configs(broker_defaults: Mapping[str, str]) -> "list[TopicConfig]":
    """The configs of topics without overrides: that of most topics, then those of topics with own defaults."""
    return [TopicConfig.parse({}, broker_defaults, topic) for topic in (None, *sorted(_TOPICS_WITH_DEFAULTS))]


class ConfigSource(IntEnum):
    """The source of a value, by the numbers of DescribeConfigs."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT = 3
    BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6

    @classmethod
    def _missing_(cls, value: object) -> "ConfigSource":
        """Return UNKNOWN for a source that this client does not know."""
        return cls.UNKNOWN

    @property
    def kafka_name(self) -> str:
        """The source's name in Kafka's tools, such as DYNAMIC_TOPIC_CONFIG."""
        return _SOURCE_NAMES[self]


_SOURCE_NAMES: Final = {
    ConfigSource.UNKNOWN: "UNKNOWN",
    ConfigSource.TOPIC: "DYNAMIC_TOPIC_CONFIG",
    ConfigSource.DYNAMIC_BROKER: "DYNAMIC_BROKER_CONFIG",
    ConfigSource.DYNAMIC_DEFAULT: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    ConfigSource.BROKER: "STATIC_BROKER_CONFIG",
    ConfigSource.DEFAULT: "DEFAULT_CONFIG",
    ConfigSource.DYNAMIC_BROKER_LOGGER: "DYNAMIC_BROKER_LOGGER_CONFIG",
}


class Origin(NamedTuple):
    """One source of a topic config's value; `name` is the key in that source."""

    name: str
    value: str
    source: ConfigSource


Layers = Sequence[tuple[ConfigSource, Mapping[str, str]]]
"""The broker's configs by source, the strongest first."""


def origins(name: str, overrides: Mapping[str, str], broker: Layers, topic: str | None = None) -> list[Origin]:
    """Every source that sets a value for the topic config `name`, the one in use first; values as written there."""
    key = topic_key(name)
    found = [Origin(name, overrides[name], ConfigSource.TOPIC)] if name in overrides else []
    for source, given in broker:
        found += [Origin(s.name, given[s.name], source) for s in _broker_settings(key, given)]
    strongest = key.synonyms[0].name if key.synonyms else None
    if strongest is not None and BROKER_KEYS[strongest].default is not None:
        found.append(Origin(strongest, default_of(key, topic), ConfigSource.DEFAULT))
    return found


def source_of(found: Sequence[Origin]) -> ConfigSource:
    """The source of the value in use; DEFAULT where no source sets it."""
    return found[0].source if found else ConfigSource.DEFAULT


def _broker_settings(key: TopicKey, broker_defaults: Mapping[str, str]) -> list[Synonym]:
    """The broker's settings for this topic config and its synonyms, the strongest first."""
    return [s for s in key.synonyms if s.name in broker_defaults]


def effective_text(
    name: str, overrides: Mapping[str, str], broker_defaults: Mapping[str, str], topic: str | None = None
) -> str:
    """The value in use, in the topic config's own unit. Raises InvalidConfig."""
    key = topic_key(name)
    if name in overrides:
        return overrides[name]
    for synonym in _broker_settings(key, broker_defaults):
        text = broker_defaults[synonym.name]
        if synonym.factor == 1 and synonym not in _RETENTION:
            return text
        count = parse_value(synonym.name, ConfigType.LONG, text)
        assert isinstance(count, int)
        return str(-1 if count < 0 else count * synonym.factor)
    return default_of(key, topic)


def topic_key(name: str) -> TopicKey:
    """The topic config of this name. Raises InvalidConfig with the nearest known name."""
    key = TOPIC_KEYS.get(name)
    if key is None:
        near = difflib.get_close_matches(name, TOPIC_KEYS, 1)
        raise InvalidConfig(
            name, None, allowed=f"did you mean {near[0]}?" if near else "no topic config has a name like it"
        )
    return key


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """All topic configs as values; times in ms, sizes in bytes, -1 and MAX_LONG mean what Kafka means by them."""

    cleanup_policy: tuple[str, ...]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    follower_replication_throttled_replicas: tuple[str, ...]
    index_interval_bytes: int
    klamm_sync_before_ack: bool
    leader_replication_throttled_replicas: tuple[str, ...]
    local_retention_bytes: int
    local_retention_ms: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_downconversion_enable: bool
    message_format_version: str
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_difference_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    remote_storage_enable: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool

    @classmethod
    def parse(
        cls,
        overrides: Mapping[str, str] | None = None,
        broker_defaults: Mapping[str, str] | None = None,
        topic: str | None = None,
    ) -> Self:
        """The config of a topic with these overrides on a broker with these settings. Raises InvalidConfig.

        Without the topic's name its defaults are those of most topics.
        """
        own = overrides or {}
        for name in own:
            topic_key(name)
        config = cls.parse_stored(own, broker_defaults, topic)
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise InvalidConfig(
                "min.compaction.lag.ms",
                str(config.min_compaction_lag_ms),
                allowed=f"the value must not exceed max.compaction.lag.ms, which is {config.max_compaction_lag_ms}",
            )
        return config

    @classmethod
    def parse_stored(
        cls,
        overrides: Mapping[str, str],
        broker_defaults: Mapping[str, str] | None = None,
        topic: str | None = None,
    ) -> Self:
        """The config of a topic with the overrides that ZooKeeper has. Raises InvalidConfig for an invalid value.

        As in Kafka, keys that it does not have are ignored, and configs that contradict each other are used.
        """
        broker = broker_defaults or {}
        values: dict[str, Any] = {
            key.field: _effective_value(key, overrides, broker, topic) for key in TOPIC_KEYS.values()
        }
        _apply_deprecated_difference(values)
        return cls(**values)

    @property
    def is_compacted(self) -> bool:
        """Whether `cleanup.policy` contains `compact`."""
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Whether `cleanup.policy` contains `delete`: old segments are removed by retention."""
        return "delete" in self.cleanup_policy

    @property
    def uses_log_append_time(self) -> bool:
        """Whether the broker sets the timestamps of batches (LogAppendTime)."""
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def max_segment_age_ms(self) -> int:
        """Age at which a segment is rolled, before jitter."""
        return min(self.max_compaction_lag_ms, self.segment_ms) if self.is_compacted else self.segment_ms


def usable_overrides(stored: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The overrides in ZooKeeper that can be used, and what is wrong with the others.

    No record is deleted because of an invalid value: see `KEEP_RECORDS`.
    """
    usable: dict[str, str] = {}
    problems: list[str] = []
    for name, text in stored.items():
        try:
            key = topic_key(name)
            parse_value(name, key.type, text, key.allowed)
            usable[name] = text
        except InvalidConfig as error:
            problems.append(str(error))
            if name in KEEP_RECORDS:
                usable[name] = KEEP_RECORDS[name]
    return usable, problems


def correct_topic_config(topic: str) -> str:
    """What to do about an invalid config of a topic, for messages."""
    return f"Correct it: klamm config set --topic {topic} KEY=VALUE"


def _effective_value(
    key: TopicKey, overrides: Mapping[str, str], broker_defaults: Mapping[str, str], topic: str | None
) -> ConfigValue:
    """Return the parsed value in force: the topic's override, else the broker's default, else Kafka's."""
    return parse_value(key.name, key.type, effective_text(key.name, overrides, broker_defaults, topic), key.allowed)


def _apply_deprecated_difference(values: dict[str, Any]) -> None:
    """Set each timestamp limit that has its default from the deprecated message.timestamp.difference.max.ms."""
    for side in ("before", "after"):
        if values[f"message_timestamp_{side}_max_ms"] == MAX_LONG:
            values[f"message_timestamp_{side}_max_ms"] = values["message_timestamp_difference_max_ms"]
