"""The options of `format("klamm")`: Spark's names for its Kafka source, and the Kafka client's names behind `kafka.`.

Source: KafkaSourceProvider.scala; which rules are kept is in the table's parsers and in `read_options`.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from klamm.model.cluster import Address, parse_addresses
from klamm.spark.errors import BadOption
from klamm.spark.offsets import Bound, Subscription, bound, parse_assign, subscription


class ReadOptions(NamedTuple):
    """All that a read needs to know; values, not text. Times in seconds or as the name says."""

    bootstrap: tuple[Address, ...]
    subscription: Subscription
    start: Bound
    end: Bound
    no_offset_for_time_is_latest: bool
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    include_headers: bool
    client_id: str
    read_committed: bool
    request_timeout_s: float
    api_timeout_s: float
    progress_timeout_s: float
    backoff_s: float
    fetch_bytes: int
    fetch_wait_ms: int


class Option(NamedTuple):
    name: str
    parse: Callable[[str], Any]
    default: str | None = None


def _parse_boolean(text: str) -> bool:
    """Return the boolean; raises ValueError unless the text is `true` or `false`."""
    if text.lower() not in ("true", "false"):
        raise ValueError("it must be true or false")
    return text.lower() == "true"


def _parse_positive(text: str) -> int:
    """Return a whole number of at least 1. Raises ValueError."""
    number = int(text) if re.fullmatch(r"[0-9]+", text) else 0
    if number < 1:
        raise ValueError("it must be a whole number, at least 1")
    return number


def _parse_seconds(text: str) -> float:
    """Return the seconds for a text that gives milliseconds. Raises ValueError."""
    return _parse_positive(text) / 1000


def _parse_topics(text: str) -> tuple[str, ...]:
    """Return the names between the commas, each once. Raises ValueError where there is none."""
    topics = tuple(dict.fromkeys(t.strip() for t in text.split(",") if t.strip()))
    if not topics:
        raise ValueError("it has no topic; give one or more names, separated by commas")
    return topics


def _parse_pattern(text: str) -> str:
    """Return the text; raises ValueError where it is not a regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"it is not a regular expression ({error}); correct it") from error
    return text


def _parse_one_of(*allowed: str) -> Callable[[str], str]:
    """Return a parser that accepts only these words."""

    def parse(text: str) -> str:
        """Return the word in lower case; raises ValueError where it is not allowed."""
        if text.lower() not in allowed:
            raise ValueError(f"it must be {' or '.join(allowed)}")
        return text.lower()

    return parse


def _parse_text(text: str) -> str:
    """Return the text unchanged."""
    return text


TABLE: Final = (
    Option("kafka.bootstrap.servers", parse_addresses),
    Option("subscribe", _parse_topics),
    Option("subscribePattern", _parse_pattern),
    Option("assign", parse_assign),
    Option("startingOffsets", _parse_text, "earliest"),
    Option("endingOffsets", _parse_text, "latest"),
    Option("startingOffsetsByTimestamp", _parse_text),
    Option("endingOffsetsByTimestamp", _parse_text),
    Option("startingTimestamp", _parse_text),
    Option("endingTimestamp", _parse_text),
    Option("startingOffsetsByTimestampStrategy", _parse_one_of("error", "latest"), "error"),
    Option("failOnDataLoss", _parse_boolean, "true"),
    Option("minPartitions", _parse_positive),
    Option("maxRecordsPerPartition", _parse_positive),
    Option("includeHeaders", _parse_boolean, "false"),
    Option("kafkaConsumer.pollTimeoutMs", _parse_seconds, "120000"),
    Option("kafka.client.id", _parse_text, "klamm-spark"),
    Option("kafka.isolation.level", _parse_one_of("read_uncommitted", "read_committed"), "read_uncommitted"),
    Option("kafka.security.protocol", _parse_one_of("plaintext"), "PLAINTEXT"),
    Option("kafka.request.timeout.ms", _parse_seconds, "30000"),
    Option("kafka.default.api.timeout.ms", _parse_seconds, "60000"),
    Option("kafka.retry.backoff.ms", _parse_seconds, "100"),
    Option("kafka.max.partition.fetch.bytes", _parse_positive, "8388608"),
    Option("kafka.fetch.max.wait.ms", _parse_positive, "500"),
)
_BY_NAME: Final = {option.name.lower(): option for option in TABLE}

_STREAMING: Final = "is only for streaming reads, and the klamm source reads in batches: remove it"
_NO_GROUP: Final = "has no effect, because the klamm source reads without a consumer group: remove it"
_OURS: Final = (
    "must not be set, because the source returns key and value as bytes: remove it, and cast the column instead"
)
REFUSED: Final = {
    "maxOffsetsPerTrigger": _STREAMING,
    "minOffsetsPerTrigger": _STREAMING,
    "maxTriggerDelay": _STREAMING,
    "groupIdPrefix": _NO_GROUP,
    "kafka.group.id": _NO_GROUP,
    "kafka.enable.auto.commit": _NO_GROUP,
    "kafka.auto.offset.reset": "must not be set: remove it, and set startingOffsets instead",
    "kafka.key.deserializer": _OURS,
    "kafka.value.deserializer": _OURS,
    "kafka.interceptor.classes": "must not be set, because the klamm source uses no Java client: remove it",
}
_REFUSED: Final = {name.lower(): (name, why) for name, why in REFUSED.items()}


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Parse all options; their names may be in any case, as Spark passes them in lower case. Raises BadOption."""
    lower = {name.lower(): value for name, value in given.items()}
    for name in lower:
        _check_known(name)
    value = {o.name: _parse_option(o, lower) for o in TABLE}
    if value["kafka.bootstrap.servers"] is None:
        raise BadOption("option kafka.bootstrap.servers is missing; set it to HOST:PORT[,HOST:PORT]")
    return ReadOptions(
        bootstrap=value["kafka.bootstrap.servers"],
        subscription=subscription(value),
        start=bound("starting", value),
        end=bound("ending", value),
        no_offset_for_time_is_latest=value["startingOffsetsByTimestampStrategy"] == "latest",
        fail_on_data_loss=value["failOnDataLoss"],
        min_partitions=value["minPartitions"],
        max_records_per_partition=value["maxRecordsPerPartition"],
        include_headers=value["includeHeaders"],
        client_id=value["kafka.client.id"],
        read_committed=value["kafka.isolation.level"] == "read_committed",
        request_timeout_s=value["kafka.request.timeout.ms"],
        api_timeout_s=value["kafka.default.api.timeout.ms"],
        progress_timeout_s=value["kafkaConsumer.pollTimeoutMs"],
        backoff_s=value["kafka.retry.backoff.ms"],
        fetch_bytes=value["kafka.max.partition.fetch.bytes"],
        fetch_wait_ms=value["kafka.fetch.max.wait.ms"],
    )


def _check_known(name: str) -> None:
    """Raise BadOption for an unknown or unsupported option, with the nearest known one."""
    if name in _BY_NAME:
        return
    if name in _REFUSED:
        raise BadOption(f"option {_REFUSED[name][0]} {_REFUSED[name][1]}")
    near = difflib.get_close_matches(name, _BY_NAME, n=1, cutoff=0.5)
    if near:
        raise BadOption(f"option {name} does not exist. Did you mean {_BY_NAME[near[0]].name}?")
    raise BadOption(f"option {name} does not exist. Use some of: {', '.join(o.name for o in TABLE)}")


def _parse_option(option: Option, given: Mapping[str, str]) -> Any:
    """Return the parsed value of the option, or of its default; None where neither is given. Raises BadOption."""
    text = given.get(option.name.lower(), option.default)
    if text is None:
        return None
    try:
        return option.parse(text)
    except ValueError as error:
        raise BadOption(f"option {option.name}={text!r}: {error}") from error
