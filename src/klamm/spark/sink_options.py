"""The options of writes with `format("klamm")`: Spark's names for its Kafka sink, the producer's after `kafka.`.

Source: KafkaSourceProvider.scala, ProducerConfig.java.
"""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from klamm.model.cluster import parse_addresses
from klamm.spark.errors import BadOption
from klamm.spark.option_parsers import (
    MAX_LONG,
    parse_boolean,
    parse_int,
    parse_int_milliseconds,
    parse_milliseconds,
    parse_one_of,
    parse_plaintext,
    parse_positive,
    parse_text,
)
from klamm.spark.option_set import Option, OptionSet, Reads
from klamm.spark.options import ReadOptions, read_options
from klamm.spark.record_writer import NO_ACKS, SendSettings
from klamm.spark.sink_kafka_options import NOT_FOR_WRITES, WRITES_REFUSE
from klamm.wire.compression import Codec

_ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": NO_ACKS}


class Delivery(StrEnum):
    """What a reader sees of a task or micro-batch that ran more than once."""

    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


def parse_delivery(text: str) -> Delivery:
    """Return the mode of delivery. Raises ValueError."""
    return Delivery(parse_one_of(*Delivery)(text))


def parse_topic(text: str) -> str:
    """Return a topic's name. Raises ValueError."""
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", text) or text in (".", ".."):
        raise ValueError(f"{text!r} is not a topic name; give 1 to 249 letters, digits, dots, underscores and hyphens")
    return text


def parse_write_id(text: str) -> str:
    """Return the name of a write. Raises ValueError."""
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,200}", text):
        raise ValueError(
            f"{text!r} cannot be the name of a write; give 1 to 200 letters, digits, dots, underscores and hyphens"
        )
    return text


def parse_count(text: str) -> int:
    """Return a whole number from 0 on. Raises ValueError."""
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise ValueError(f"{text!r} is not a whole number of at least 0; give for example 0")
    return int(text)


def parse_level(low: int, high: int) -> Callable[[str], int]:
    """Return a parser of compression levels from `low` to `high`."""

    def parse(text: str) -> int:
        """Return the compression level in the text. Raises ValueError."""
        if not re.fullmatch(r"-?[0-9]{1,9}", text) or not low <= int(text) <= high:
            raise ValueError(f"compression level {text!r} is not valid; give a whole number from {low} to {high}")
        return int(text)

    return parse


SINK_TABLE: Final = (
    Option(
        "kafka.bootstrap.servers", parse_addresses, None, Reads.BOTH,
        "brokers to connect to first: HOST:PORT[,HOST:PORT]",
    ),
    Option("topic", parse_topic, None, Reads.BOTH, "topic of all rows; overrides the column `topic`"),
    Option(
        "delivery", parse_delivery, "at-least-once", Reads.BOTH,
        "`at-least-once`: a task or micro-batch that runs again writes its rows again; `exactly-once`: in "
        "transactions, a reader with read_committed sees the rows of each micro-batch once. The log says at the start "
        "which it is",
    ),
    Option(
        "writeId", parse_write_id, None, Reads.BATCH,
        "name of a batch write with `exactly-once`: a write of the same name and `writeBatch` is recognised and not "
        "repeated. A streaming write has the id of its query",
    ),
    Option(
        "writeBatch", parse_count, "0", Reads.BATCH,
        "number of a batch write within its `writeId`; in `foreachBatch` the number of the micro-batch",
    ),
    Option(
        "commitTopic", parse_topic, "klamm-spark-commits", Reads.BOTH,
        "compacted topic for the last micro-batch that each query wrote with `exactly-once`; it is created if it does "
        "not exist",
    ),
    Option("kafka.client.id", parse_text, "klamm-spark", Reads.BOTH, "client id in requests, which brokers log"),
    Option(
        "kafka.acks", parse_one_of(*_ACKS), "all", Reads.BOTH,
        "which replicas must have a record before a broker confirms it: `all` in-sync replicas, the leader "
        "(`1`), or none (`0`). Other values than `all` switch `kafka.enable.idempotence` off",
    ),
    Option(
        "kafka.enable.idempotence", parse_boolean, None, Reads.BOTH,
        "whether brokers recognise a batch that is sent again. Default: true where `kafka.acks` is `all`",
    ),
    Option(
        "kafka.batch.size", parse_int, "524288", Reads.BOTH,
        "maximum bytes of a batch before compression; one larger record is a batch of its own",
    ),
    Option("kafka.max.request.size", parse_int, "1048576", Reads.BOTH,
           "maximum bytes of a request, and of a record before compression"),
    Option(
        "kafka.buffer.memory", parse_positive, "33554432", Reads.BOTH,
        "maximum bytes of rows that a task holds to fill batches, and maximum bytes of batches that wait for brokers",
    ),
    Option(
        "kafka.compression.type", parse_one_of("none", "gzip", "snappy", "lz4", "zstd"), "none", Reads.BOTH,
        "compression of batches: `none`, `gzip`, `snappy`, `lz4` or `zstd`",
    ),
    Option(
        "kafka.compression.gzip.level", parse_level(-1, 9), None, Reads.BOTH,
        "compression level of gzip: 1 to 9, or -1, the default",
    ),
    Option("kafka.compression.lz4.level", parse_level(1, 17), None, Reads.BOTH, "compression level of lz4: 1 to 17"),
    Option(
        "kafka.compression.zstd.level", parse_level(-131072, 22), None, Reads.BOTH,
        "compression level of zstd: -131072 to 22",
    ),
    Option(
        "kafka.partitioner.ignore.keys", parse_boolean, "false", Reads.BOTH,
        "whether rows with a key are distributed like rows without one; otherwise their partition is Kafka's "
        "murmur2 of the key",
    ),
    Option(
        "kafka.delivery.timeout.ms", parse_int_milliseconds, "120000", Reads.BOTH,
        "a write fails where a partition accepts no records for this time",
    ),
    Option(
        "kafka.request.timeout.ms", parse_int_milliseconds, "30000", Reads.BOTH,
        "time to wait for the response to a request",
    ),
    Option(
        "kafka.max.block.ms", parse_milliseconds, "60000", Reads.BOTH,
        "time for metadata, producer ids and steps of transactions, all retries included",
    ),
    Option(
        "kafka.transaction.timeout.ms", parse_int, "900000", Reads.BOTH,
        "time after which brokers abort an open transaction. A micro-batch with `exactly-once` must end within "
        "it, also after a restart during its commit. At most `transaction.max.timeout.ms` of the brokers",
    ),
    Option(
        "kafka.security.protocol", parse_plaintext, "PLAINTEXT", Reads.BOTH,
        "security protocol; klamm supports only this one",
    ),
    Option(
        "kafka.socket.connection.setup.timeout.ms", parse_milliseconds, "10000", Reads.BOTH,
        "time to wait for one connection",
    ),
    Option(
        "kafka.retry.backoff.ms", parse_milliseconds, "100", Reads.BOTH,
        "time before the first retry; doubles with each retry",
    ),
    Option("kafka.retry.backoff.max.ms", parse_milliseconds, "1000", Reads.BOTH, "maximum time before a retry"),
)  # fmt: skip
WRITE_OPTIONS: Final = OptionSet("write", SINK_TABLE, NOT_FOR_WRITES, WRITES_REFUSE)
_ALSO_OF_READS: Final = (
    "kafka.bootstrap.servers", "kafka.client.id", "kafka.request.timeout.ms",
    "kafka.socket.connection.setup.timeout.ms", "kafka.retry.backoff.ms", "kafka.retry.backoff.max.ms",
)  # fmt: skip


class WriteOptions(NamedTuple):
    """All that a write needs to know; values, not text. Times in seconds or as the name says."""

    topic: str | None
    delivery: Delivery
    write_id: str | None
    write_batch: int
    commit_topic: str
    send: SendSettings
    is_idempotent: bool
    batch_bytes: int
    ignores_keys: bool
    transaction_timeout_ms: int
    reads: ReadOptions
    """How the commit topic is read; and addresses, timeouts and waits of all requests."""


def write_options(given: Mapping[str, str], kind: Reads) -> WriteOptions:
    """Parse all options of a batch or streaming write. Raises BadOption."""
    value = WRITE_OPTIONS.parse(given, kind)
    if value["kafka.bootstrap.servers"] is None:
        raise BadOption("option kafka.bootstrap.servers is missing; set it to HOST:PORT[,HOST:PORT]")
    acks = _ACKS[value["kafka.acks"]]
    _check_delivery(value, acks, kind)
    codec = Codec[value["kafka.compression.type"].upper()]
    return WriteOptions(
        topic=value["topic"],
        delivery=value["delivery"],
        write_id=value["writeId"],
        write_batch=value["writeBatch"],
        commit_topic=value["commitTopic"],
        send=SendSettings(
            acks=acks,
            codec=codec,
            level=value.get(f"kafka.compression.{codec.name.lower()}.level"),
            request_timeout_s=value["kafka.request.timeout.ms"],
            delivery_timeout_s=value["kafka.delivery.timeout.ms"],
            max_request_bytes=value["kafka.max.request.size"],
            max_buffered_bytes=value["kafka.buffer.memory"],
        ),
        is_idempotent=acks == _ACKS["all"] and value["kafka.enable.idempotence"] is not False,
        batch_bytes=min(value["kafka.batch.size"], value["kafka.max.request.size"]),
        ignores_keys=value["kafka.partitioner.ignore.keys"],
        transaction_timeout_ms=value["kafka.transaction.timeout.ms"],
        reads=_read_options(given, value),
    )


def _check_delivery(value: Mapping[str, Any], acks: int, kind: Reads) -> None:
    """Raise BadOption where the mode of delivery and other options contradict each other."""
    is_all = acks == _ACKS["all"]
    if value["kafka.enable.idempotence"] and not is_all:
        raise BadOption(
            f"options kafka.enable.idempotence=true and kafka.acks={value['kafka.acks']} contradict each other; set "
            "kafka.acks to all"
        )
    if value["delivery"] is not Delivery.EXACTLY_ONCE:
        if value["writeId"] is not None:
            raise BadOption("option writeId is only for delivery exactly-once: remove it, or set delivery")
        return
    if not is_all or value["kafka.enable.idempotence"] is False:
        raise BadOption(
            "option delivery=exactly-once needs kafka.acks=all and kafka.enable.idempotence=true: remove the options "
            "that say otherwise"
        )
    if kind is Reads.BATCH and value["writeId"] is None:
        raise BadOption(
            "option writeId is missing: a batch write with delivery=exactly-once needs a name, by which a repeated "
            "write is recognised"
        )


def _read_options(given: Mapping[str, str], value: Mapping[str, Any]) -> ReadOptions:
    """The options of reads of the commit topic, with the addresses and times of the write."""
    lower = {name.lower(): text for name, text in given.items()}
    shared = {name: lower[name] for name in _ALSO_OF_READS if name in lower}
    own = {"subscribe": value["commitTopic"], "kafka.isolation.level": "read_committed"}
    milliseconds = str(min(MAX_LONG, max(1, round(value["kafka.max.block.ms"] * 1000))))
    return read_options(shared | own | {"kafka.default.api.timeout.ms": milliseconds})
