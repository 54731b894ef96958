"""Every option of the source, with its default and its meaning. Source: KafkaSourceProvider.scala."""

from typing import Final

from klamm.model.cluster import parse_addresses
from klamm.spark.avro import parse_registry
from klamm.spark.kafka_options import NO_EFFECT, REFUSED
from klamm.spark.offsets import parse_assign
from klamm.spark.option_parsers import (
    parse_boolean,
    parse_bytes,
    parse_directories,
    parse_duration,
    parse_int,
    parse_int_milliseconds,
    parse_milliseconds,
    parse_on_data_loss,
    parse_on_decode_error,
    parse_one_of,
    parse_pattern,
    parse_plaintext,
    parse_positive,
    parse_schema,
    parse_text,
    parse_topics,
)
from klamm.spark.option_set import Option, OptionSet, Reads
from klamm.spark.secrets import parse_secret

BOTH, BATCH, STREAM = Reads.BOTH, Reads.BATCH, Reads.STREAM

TABLE: Final = (
    Option(
        "kafka.bootstrap.servers", parse_addresses, None, BOTH,
        "brokers to connect to first: HOST:PORT[,HOST:PORT]",
    ),
    Option(
        "logDirs", parse_directories, None, BOTH,
        "read the files in these log directories, as in `log.dirs`: PATH[,PATH]. With `kafka.bootstrap.servers`, too, "
        "brokers plan the read and give what the files do not have",
    ),
    Option(
        "table", parse_one_of("records", "batches", "segments", "partitions"), "records", BATCH,
        "what the rows are: `records`, or with `logDirs` the `batches`, `segments` or `partitions` of all replicas",
    ),
    Option(
        "subscribe", parse_topics, None, BOTH,
        "names of the topics to read, separated by commas. Set exactly one of `subscribe`, `subscribePattern`, "
        "`assign`",
    ),
    Option(
        "subscribePattern", parse_pattern, None, BOTH,
        "read the topics in whose name this Java regular expression is found; internal topics are left out",
    ),
    Option("assign", parse_assign, None, BOTH, 'read these partitions: `{"orders": [0, 1]}`'),
    Option(
        "startingOffsets", parse_text, None, BOTH,
        'first offsets to read: earliest, latest, or JSON that has every partition: `{"orders": {"0": 23, "1": '
        "-2}}`, -2 is earliest, -1 latest. "
        "Default: earliest in a batch read, latest in a streaming read. A batch read cannot begin at latest",
    ),
    Option(
        "endingOffsets", parse_text, "latest", BATCH,
        "offsets before which to end, in the form of `startingOffsets`; not earliest",
    ),
    Option(
        "startingOffsetsByTimestamp", parse_text, None, BOTH,
        "begin at these times: milliseconds since 1970 for every partition, as JSON; overrides `startingOffsets`",
    ),
    Option(
        "endingOffsetsByTimestamp", parse_text, None, BATCH,
        "end before these times, or at the log end where no record is so late; overrides `endingOffsets`",
    ),
    Option(
        "startingTimestamp", parse_text, None, BOTH,
        "begin at this time in all partitions; overrides the other options for the start",
    ),
    Option(
        "endingTimestamp", parse_text, None, BATCH,
        "end before this time in all partitions; overrides the other options for the end",
    ),
    Option(
        "startingOffsetsByTimestampStrategy", parse_one_of("error", "latest"), "error", BOTH,
        "what to do if no record is as late as the starting time: `error`, or `latest` to begin at the log end",
    ),
    Option("failOnDataLoss", parse_boolean, None, BOTH, "the same as `onDataLoss`: true is `fail`, false is `skip`"),
    Option(
        "onDataLoss", parse_on_data_loss, "fail", BOTH,
        "what to do if records are lost: `fail`, `skip`, or `report`, which continues with a row for each lost range",
    ),
    Option("minPartitions", parse_positive, None, BOTH, "minimum number of tasks"),
    Option("maxRecordsPerPartition", parse_positive, None, BOTH, "maximum number of offsets in a task"),
    Option(
        "maxOffsetsPerTrigger", parse_positive, None, STREAM,
        "maximum number of offsets in a micro-batch, shared between partitions in proportion, at least one each",
    ),
    Option(
        "maxBytesPerTrigger", parse_bytes, None, STREAM,
        "approximate number of stored bytes in a micro-batch, by the average size of each partition's records; at "
        "least one offset of each partition",
    ),
    Option(
        "minOffsetsPerTrigger", parse_positive, None, STREAM,
        "a micro-batch begins when there are this many new offsets, or `maxTriggerDelay` has passed",
    ),
    Option("maxTriggerDelay", parse_duration, "15m", STREAM, "maximum time to wait for `minOffsetsPerTrigger`"),
    Option(
        "valueFormat", parse_one_of("raw", "string", "json", "avro"), "raw", BOTH,
        "type of the column `value`: `raw` is BINARY, `string` STRING, `json` and `avro` STRUCT",
    ),
    Option(
        "valueSchema", parse_schema, None, BOTH,
        "fields of JSON values, with types as in SQL: `id BIGINT, user STRING`; or the schema of Avro records, as JSON",
    ),
    Option(
        "schemaRegistry", parse_registry, None, BOTH,
        "URL of a schema registry: Avro values are in Confluent's wire format, and each names the schema with which it "
        "was written; it is resolved to `valueSchema`",
    ),
    Option(
        "schemaRegistryAuth", parse_secret, None, BOTH,
        "where each worker has `USER:PASSWORD` for the registry: `env:NAME` or `file:PATH`",
    ),
    Option(
        "onDecodeError", parse_on_decode_error, "fail", BOTH,
        "what to do with a value that is not of its format: `fail`; `report`, which leaves `value` null and says why "
        "in the column `decodeError`; or `deadletter:TOPIC`, which writes the record to this topic instead. With "
        "`report` a `timestamp` that Spark cannot hold is null, too, with every `valueFormat`; else it fails the read",
    ),
    Option("includeHeaders", parse_boolean, "false", BOTH, "whether rows have the column `headers`"),
    Option(
        "includeRawValue", parse_boolean, "false", BOTH,
        "whether rows have the column `rawValue` BINARY, the value as it is in the record, besides the decoded one",
    ),
    Option(
        "kafkaConsumer.pollTimeoutMs", parse_milliseconds, "120000", BOTH,
        "a task fails after this time without progress",
    ),
    Option("kafka.client.id", parse_text, "klamm-spark", BOTH, "client id in requests, which brokers log"),
    Option(
        "kafka.isolation.level", parse_one_of("read_uncommitted", "read_committed"), "read_uncommitted", BOTH,
        "`read_committed` skips records of aborted transactions, and ends at the last stable offset",
    ),
    Option(
        "kafka.security.protocol", parse_plaintext, "PLAINTEXT", BOTH,
        "security protocol; klamm supports only this one",
    ),
    Option(
        "kafka.request.timeout.ms", parse_int_milliseconds, "30000", BOTH,
        "time to wait for the response to a request",
    ),
    Option(
        "kafka.default.api.timeout.ms", parse_milliseconds, "60000", BOTH,
        "time for reading metadata or offsets, all retries included",
    ),
    Option(
        "kafka.socket.connection.setup.timeout.ms", parse_milliseconds, "10000", BOTH,
        "time to wait until a connection to a broker is open",
    ),
    Option(
        "kafka.retry.backoff.ms", parse_milliseconds, "100", BOTH,
        "time before the first retry; doubles with each retry",
    ),
    Option("kafka.retry.backoff.max.ms", parse_milliseconds, "1000", BOTH, "maximum time before a retry"),
    Option(
        "kafka.max.partition.fetch.bytes", parse_int, "8388608", BOTH,
        "maximum bytes of one fetch; less for a small range; a larger batch is returned all the same",
    ),
    Option(
        "kafka.fetch.max.bytes", parse_int, "52428800", BOTH,
        "maximum bytes of one fetch, like `kafka.fetch.max.bytes`, since a fetch has one partition",
    ),
    Option("kafka.fetch.min.bytes", parse_int, "1", BOTH,
           "minimum bytes of records for which a broker waits before it answers a fetch"),
    Option("kafka.fetch.max.wait.ms", parse_int, "500", BOTH,
           "maximum time for which a broker waits for these records"),
)  # fmt: skip
READ_OPTIONS: Final = OptionSet("read", TABLE, NO_EFFECT, REFUSED)
