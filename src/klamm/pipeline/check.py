"""Checks a pipeline before it runs: topics, schema, SQL, and whether its sink takes the result."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructType

from klamm.client.errors import Unreachable
from klamm.pipeline.errors import PipelineFailed, cause_of
from klamm.pipeline.letters import letter_records
from klamm.pipeline.rows import check_expectations, dead_rows, good_rows, prepare, run_steps
from klamm.pipeline.sinks import Sink
from klamm.pipeline.spec import SinkKind, Spec, check_not_read
from klamm.pipeline.yaml_tree import BadFile
from klamm.runtime.blocking import RealBlockingWorld
from klamm.spark.errors import BadOption
from klamm.spark.option_set import Reads
from klamm.spark.options import ReadOptions
from klamm.spark.partitions import find_partitions
from klamm.spark.read_client import read_client
from klamm.spark.sink_options import write_options

CHECK_S: Final = 10.0
"""How long a check that someone waits for asks brokers that do not answer. A run may begin while they start."""


def check_topics(spec: Spec, longest_s: float = math.inf) -> None:
    """Ask the brokers for the topics of the pipeline, each cluster for `longest_s` unless the file sets a time.

    Raises BadFile for a missing one, and for one that is both read and written; PipelineFailed without brokers.
    """
    reads = _within(spec.reads, longest_s, spec.source_options, "kafka.default.api.timeout.ms")
    with _naming(spec, "source.bootstrap"), read_client(RealBlockingWorld(), reads) as brokers:
        try:
            find_partitions(brokers)
        except BadOption as error:
            raise BadFile(f"{spec.at('source.topics')}: {error}.") from error
        source_cluster = brokers.cluster_id
    written = {"dead_letter.topic": spec.dead_letter_topic}
    if spec.sink is SinkKind.TOPIC:
        written["sink.topic"] = spec.target
    of_sink = write_options(spec.write_to(spec.name, spec.name), Reads.BATCH).reads
    reads = _within(of_sink, longest_s, spec.sink_options, "kafka.max.block.ms")
    names = {field: topic for field, topic in written.items() if topic is not None}
    field = "sink.bootstrap" if "sink.bootstrap" in spec.lines else "source.bootstrap"
    with _naming(spec, field), read_client(RealBlockingWorld(), reads) as brokers:
        found = brokers.topics(list(names.values())) if names else {}
        sink_cluster = brokers.cluster_id
    for field, topic in names.items():
        if not found[topic].partitions:
            raise BadFile(f"{spec.at(field)}: the topic {topic} does not exist. Create it with klamm topics create.")
    if sink_cluster is not None and sink_cluster == source_cluster:  # the file may name it by other addresses
        check_not_read(spec, names.values())


def _within(reads: ReadOptions, longest_s: float, given: Mapping[str, str], option: str) -> ReadOptions:
    """The options of a read that waits for brokers for `longest_s` at most, unless this option says how long."""
    if option in (name.lower() for name in given):
        return reads
    return reads._replace(api_timeout_s=min(reads.api_timeout_s, longest_s))


@contextmanager
def _naming(spec: Spec, field: str) -> Iterator[None]:
    """Name the field whose brokers do not answer. Raises PipelineFailed."""
    try:
        yield
    except Unreachable as error:
        text = str(error).partition(". Check that")[0].rstrip(".")
        raise PipelineFailed(
            f"{spec.at(field)}: {field}: {text}. Check that the brokers run, and correct their addresses."
        ) from error


def source_rows(spark: SparkSession, spec: Spec, options: dict[str, str]) -> DataFrame:
    """The streaming rows of the source. Raises BadFile for a schema that Spark cannot parse."""
    try:
        return spark.readStream.format("klamm").options(**options).load()
    except PySparkException as error:
        raise BadFile(f"{spec.at('source.value.schema')}: source.value.schema: {cause_of(error)}") from error


def check_rows(spark: SparkSession, spec: Spec, sink: Sink) -> StructType:
    """Analyse expectations and steps without data; returns the schema of the result. Raises BadFile."""
    schema = source_rows(spark, spec, spec.source_options).schema
    _check_fields(spec, schema["value"].dataType)
    empty = spark.createDataFrame([], schema)
    check_expectations(spec, good_rows(prepare(empty, ())))
    prepared = prepare(empty, spec.expectations)
    result = run_steps(spark, spec, good_rows(prepared))
    sink.check(result.schema)
    assert letter_records(dead_rows(prepared)).schema.names == ["key", "value", "headers"]
    return result.schema


def _check_fields(spec: Spec, value: DataType) -> None:
    """Raise BadFile where two fields of the decoded value would be columns of one name."""
    names = value.names if isinstance(value, StructType) else []
    of_lower = {name.lower(): name for name in reversed(names)}
    if repeated := next((name for name in names if of_lower[name.lower()] != name), None):
        raise BadFile(
            f"{spec.at('source.value.schema')}: source.value.schema has the fields {of_lower[repeated.lower()]} and "
            f"{repeated}, which SQL takes for one. Remove one of them."
        )
