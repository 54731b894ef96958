"""The options of `format("klamm")`: Spark's names for its Kafka source, and the Kafka client's names after `kafka.`.

Source: KafkaSourceProvider.scala; which rules are kept is in the table's parsers and in `read_options`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from klamm.model.cluster import Address
from klamm.spark.avro import Registry
from klamm.spark.ddl import check_fields
from klamm.spark.errors import BadOption
from klamm.spark.offsets import Bound, Subscription, bound, check_order, subscription
from klamm.spark.option_parsers import OnDataLoss, OnDecodeError
from klamm.spark.option_set import Reads
from klamm.spark.option_table import READ_OPTIONS

NO_OPTIONS = (
    "no option is set. Set kafka.bootstrap.servers or logDirs, and one of subscribe, subscribePattern, assign. Spark "
    "does not pass the options of CREATE TABLE to Python sources: create a view instead, with CREATE TEMPORARY VIEW "
    "name USING klamm OPTIONS (kafka.bootstrap.servers 'HOST:PORT', subscribe 'TOPIC'), or give the options at each "
    "use, with SELECT ... FROM name WITH (`kafka.bootstrap.servers` = 'HOST:PORT', subscribe = 'TOPIC')"
)


class TriggerLimits(NamedTuple):
    """How much one micro-batch may have, and must; None where there is no limit."""

    max_offsets: int | None
    max_bytes: int | None
    min_offsets: int | None
    max_delay_s: float


class ValueOptions(NamedTuple):
    """How values are decoded; `schema` has the fields of JSON values, or is an Avro schema.

    It is None where the reader's schema says the fields of JSON values.
    """

    format: str
    schema: str | None
    on_error: OnDecodeError
    include_raw: bool = False
    """Whether rows have the values as they are in the records, too."""
    registry: Registry | None = None


class ReadOptions(NamedTuple):
    """All that a read needs to know; values, not text. Times in seconds or as the name says."""

    bootstrap: tuple[Address, ...]
    """Empty where records are read from log directories alone."""
    log_dirs: tuple[str, ...]
    table: str
    """What the rows are: `records`, or a table of `stored_tables.py`."""
    subscription: Subscription
    start: Bound
    end: Bound
    no_offset_for_time_is_latest: bool
    on_data_loss: OnDataLoss
    min_partitions: int | None
    max_records_per_partition: int | None
    trigger: TriggerLimits
    include_headers: bool
    values: ValueOptions
    client_id: str
    read_committed: bool
    connect_timeout_s: float
    request_timeout_s: float
    api_timeout_s: float
    progress_timeout_s: float
    backoff_s: float
    max_backoff_s: float
    fetch_bytes: int
    fetch_min_bytes: int
    fetch_wait_ms: int

    @property
    def reports_losses(self) -> bool:
        """Whether each lost range becomes a row."""
        return self.on_data_loss is OnDataLoss.REPORT


def read_options(given: Mapping[str, str], reads: Reads = Reads.BATCH) -> ReadOptions:
    """Parse all options of a batch or streaming read; names may be in any case, as Spark passes them in lower case.

    Raises BadOption.
    """
    if not given:
        raise BadOption(NO_OPTIONS)
    lower = {name.lower(): value for name, value in given.items()}
    value = READ_OPTIONS.parse(lower, reads)
    if value["kafka.bootstrap.servers"] is None and value["logDirs"] is None:
        raise BadOption(
            "option kafka.bootstrap.servers is missing; set it to HOST:PORT[,HOST:PORT], or set logDirs to read files"
        )
    streaming = reads is Reads.STREAM
    options = ReadOptions(
        bootstrap=value["kafka.bootstrap.servers"] or (),
        log_dirs=value["logDirs"] or (),
        table=value["table"],
        subscription=_subscription(value),
        start=bound("starting", value, streaming),
        end=bound("ending", value, streaming),
        no_offset_for_time_is_latest=value["startingOffsetsByTimestampStrategy"] == "latest",
        on_data_loss=_on_data_loss(lower, value),
        min_partitions=value["minPartitions"],
        max_records_per_partition=value["maxRecordsPerPartition"],
        trigger=_trigger_limits(value),
        include_headers=value["includeHeaders"],
        values=_value_options(lower, value),
        client_id=value["kafka.client.id"],
        read_committed=value["kafka.isolation.level"] == "read_committed",
        connect_timeout_s=value["kafka.socket.connection.setup.timeout.ms"],
        request_timeout_s=value["kafka.request.timeout.ms"],
        api_timeout_s=value["kafka.default.api.timeout.ms"],
        progress_timeout_s=value["kafkaConsumer.pollTimeoutMs"],
        backoff_s=value["kafka.retry.backoff.ms"],
        max_backoff_s=max(value["kafka.retry.backoff.ms"], value["kafka.retry.backoff.max.ms"]),
        fetch_bytes=min(value["kafka.max.partition.fetch.bytes"], value["kafka.fetch.max.bytes"]),
        fetch_min_bytes=value["kafka.fetch.min.bytes"],
        fetch_wait_ms=value["kafka.fetch.max.wait.ms"],
    )
    check_order(options.start, options.end)
    _check_dead_letters(options)
    return options


def _check_dead_letters(options: ReadOptions) -> None:
    """Raise BadOption where a read would read its own dead letters, and write them once more for ever."""
    topic = options.values.on_error.dead_letters
    if topic is not None and options.subscription.includes_topic(topic):
        raise BadOption(
            f"option onDecodeError=deadletter:{topic} writes to a topic that is read: name another topic, or exclude "
            "it in subscribe, subscribePattern or assign"
        )


def _subscription(value: Mapping[str, Any]) -> Subscription:
    """Return the subscription; tables of files are of all topics where none is set. Raises BadOption."""
    if value["table"] == "records":
        return subscription(value)
    if value["logDirs"] is None:
        raise BadOption(f"option table={value['table']} is only for files: set logDirs, or remove table")
    is_set = any(value[name] is not None for name in ("subscribe", "subscribePattern", "assign"))
    return subscription(value) if is_set else Subscription(pattern="")


def _value_options(given: Mapping[str, str], value: Mapping[str, Any]) -> ValueOptions:
    """Return how values are decoded. Raises BadOption for options that the format does not use."""
    values = ValueOptions(
        value["valueFormat"], value["valueSchema"], value["onDecodeError"], include_raw=value["includeRawValue"]
    )
    if values.schema is not None and values.format not in ("json", "avro"):
        raise BadOption(
            f"option valueSchema is only for valueFormat json and avro, and it is {values.format}: remove it"
        )
    if values.schema is not None and values.format == "json":
        try:
            check_fields(values.schema)
        except ValueError as error:
            raise BadOption(f"option valueSchema: {error}") from None
    url, auth = value["schemaRegistry"], value["schemaRegistryAuth"]
    if url is not None and values.format != "avro":
        raise BadOption(f"option schemaRegistry is only for valueFormat avro, and it is {values.format}: remove it")
    if auth is not None and url is None:
        raise BadOption("option schemaRegistryAuth is set without schemaRegistry: remove it, or set schemaRegistry")
    if url is not None:
        values = values._replace(registry=Registry(url, auth))
    if "ondecodeerror" in given and values.format == "raw" and not values.on_error.reports:
        raise BadOption(
            "option onDecodeError is set, but no value is decoded: remove it, or set it to report, or valueFormat"
        )
    if values.include_raw and values.format == "raw":
        raise BadOption("option includeRawValue is set, but no value is decoded: remove it, or set valueFormat")
    if values.on_error.dead_letters is not None and value["kafka.bootstrap.servers"] is None:
        raise BadOption(
            f"option onDecodeError=deadletter:{values.on_error.dead_letters} needs brokers to write to: set "
            "kafka.bootstrap.servers, or set onDecodeError to report"
        )
    return values


def _trigger_limits(value: Mapping[str, Any]) -> TriggerLimits:
    """Return the limits of a micro-batch. Raises BadOption where the minimum exceeds the maximum."""
    limits = TriggerLimits(
        value["maxOffsetsPerTrigger"],
        value["maxBytesPerTrigger"],
        value["minOffsetsPerTrigger"],
        value["maxTriggerDelay"],
    )
    if None not in (limits.min_offsets, limits.max_offsets) and limits.min_offsets > limits.max_offsets:  # type: ignore[operator]
        raise BadOption(
            f"option minOffsetsPerTrigger={limits.min_offsets} is more than maxOffsetsPerTrigger={limits.max_offsets}; "
            "lower it"
        )
    return limits


def _on_data_loss(given: Mapping[str, str], value: Mapping[str, Any]) -> OnDataLoss:
    """Return what to do on data loss. Raises BadOption where failOnDataLoss and onDataLoss disagree."""
    chosen: OnDataLoss = value["onDataLoss"]
    fails: bool | None = value["failOnDataLoss"]
    if fails is None:
        return chosen
    if "ondataloss" in given and fails != (chosen is OnDataLoss.FAIL):
        raise BadOption(
            f"options failOnDataLoss={str(fails).lower()} and onDataLoss={chosen} contradict each other; remove "
            "failOnDataLoss"
        )
    if "ondataloss" in given:
        return chosen
    return OnDataLoss.FAIL if fails else OnDataLoss.SKIP
