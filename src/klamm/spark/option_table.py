"""Every option that the source obeys, with its default and its meaning. Source: KafkaSourceProvider.scala."""

from collections.abc import Callable
from enum import Flag, auto
from typing import Any, Final, NamedTuple

from klamm.model.cluster import parse_addresses
from klamm.spark.offsets import parse_assign
from klamm.spark.option_parsers import (
    parse_boolean,
    parse_bytes,
    parse_duration,
    parse_milliseconds,
    parse_on_data_loss,
    parse_on_decode_error,
    parse_one_of,
    parse_pattern,
    parse_positive,
    parse_schema,
    parse_text,
    parse_topics,
)


class Reads(Flag):
    """The kinds of reads that an option is for."""

    BATCH = auto()
    STREAM = auto()
    BOTH = BATCH | STREAM


class Option(NamedTuple):
    name: str
    parse: Callable[[str], Any]
    default: str | None
    reads: Reads
    meaning: str


BOTH, BATCH, STREAM = Reads.BOTH, Reads.BATCH, Reads.STREAM

TABLE: Final = (
    Option("kafka.bootstrap.servers", parse_addresses, None, BOTH, "HOST:PORT, several with commas"),
    Option("subscribe", parse_topics, None, BOTH, "topics, with commas. Exactly one of this and the next two"),
    Option(
        "subscribePattern", parse_pattern, None, BOTH,
        "a Java regular expression that is found in a topic's name; internal topics are left out",
    ),
    Option("assign", parse_assign, None, BOTH, 'partitions: `{"orders": [0, 1]}`'),
    Option(
        "startingOffsets", parse_text, None, BOTH,
        'earliest, latest, or JSON that names every partition: `{"orders": {"0": 23, "1": -2}}`, -2 is earliest, -1 '
        "latest. Default: earliest in a batch read, latest in a streaming read. A batch read cannot begin at latest",
    ),
    Option("endingOffsets", parse_text, "latest", BATCH, "likewise, exclusive; not earliest"),
    Option(
        "startingOffsetsByTimestamp", parse_text, None, BOTH,
        "milliseconds since 1970 for every partition, in the same JSON; before `startingOffsets`",
    ),
    Option(
        "endingOffsetsByTimestamp", parse_text, None, BATCH,
        "likewise; where no record is so late, the end; before `endingOffsets`",
    ),
    Option("startingTimestamp", parse_text, None, BOTH, "one time for all partitions; before both others"),
    Option("endingTimestamp", parse_text, None, BATCH, "likewise"),
    Option(
        "startingOffsetsByTimestampStrategy", parse_one_of("error", "latest"), "error", BOTH,
        "where no record is so late: `error`, or `latest` to begin at the end",
    ),
    Option("failOnDataLoss", parse_boolean, None, BOTH, "true is `onDataLoss` fail, false is skip"),
    Option(
        "onDataLoss", parse_on_data_loss, "fail", BOTH,
        "`fail`, `skip`, or `report`: the read goes on, and each lost range is a row",
    ),
    Option("minPartitions", parse_positive, None, BOTH, "at least so many tasks"),
    Option("maxRecordsPerPartition", parse_positive, None, BOTH, "a task is given at most so many offsets"),
    Option(
        "maxOffsetsPerTrigger", parse_positive, None, STREAM,
        "a micro-batch has at most so many offsets, shared in proportion to what each partition has, at least one each",
    ),
    Option(
        "maxBytesPerTrigger", parse_bytes, None, STREAM,
        "a micro-batch has about so many bytes as stored, by the average size of the partition's records; at least "
        "one offset of each partition",
    ),
    Option(
        "minOffsetsPerTrigger", parse_positive, None, STREAM,
        "a micro-batch waits until so many offsets are there, or `maxTriggerDelay` is over",
    ),
    Option("maxTriggerDelay", parse_duration, "15m", STREAM, "the longest wait for `minOffsetsPerTrigger`"),
    Option(
        "valueFormat", parse_one_of("raw", "string", "json"), "raw", BOTH,
        "type of the column `value`: `raw` BINARY, `string` STRING, `json` STRUCT",
    ),
    Option("valueSchema", parse_schema, None, BOTH, "the fields of JSON values, as in SQL: `id BIGINT, user STRING`"),
    Option(
        "onDecodeError", parse_on_decode_error, "fail", BOTH,
        "a value that is not of its format: `fail`; `report`: `value` is null and the column `decodeError` says why; "
        "`deadletter:TOPIC`: the record goes to this topic instead",
    ),
    Option("includeHeaders", parse_boolean, "false", BOTH, "adds the column `headers`"),
    Option(
        "kafkaConsumer.pollTimeoutMs", parse_milliseconds, "120000", BOTH,
        "a task fails after so long without progress",
    ),
    Option("kafka.client.id", parse_text, "klamm-spark", BOTH, "what brokers log"),
    Option(
        "kafka.isolation.level", parse_one_of("read_uncommitted", "read_committed"), "read_uncommitted", BOTH,
        "`read_committed` leaves out what was aborted, and ends at the last stable offset",
    ),
    Option("kafka.security.protocol", parse_one_of("plaintext"), "PLAINTEXT", BOTH, "the only protocol of klamm"),
    Option("kafka.request.timeout.ms", parse_milliseconds, "30000", BOTH, "for one answer"),
    Option(
        "kafka.default.api.timeout.ms", parse_milliseconds, "60000", BOTH, "for metadata and offsets, over all tries"
    ),
    Option("kafka.socket.connection.setup.timeout.ms", parse_milliseconds, "10000", BOTH, "for one connection"),
    Option("kafka.retry.backoff.ms", parse_milliseconds, "100", BOTH, "before the second try; doubles"),
    Option("kafka.retry.backoff.max.ms", parse_milliseconds, "1000", BOTH, "the longest wait before a try"),
    Option(
        "kafka.max.partition.fetch.bytes", parse_positive, "8388608", BOTH,
        "of one fetch; less is asked for where a small range needs less; a larger batch comes all the same",
    ),
    Option("kafka.fetch.max.bytes", parse_positive, "52428800", BOTH, "likewise; a fetch is for one partition"),
    Option("kafka.fetch.min.bytes", parse_positive, "1", BOTH, "a broker waits until so much is there"),
    Option("kafka.fetch.max.wait.ms", parse_positive, "500", BOTH, "how long a broker may wait for records"),
)  # fmt: skip
BY_NAME: Final = {option.name.lower(): option for option in TABLE}
