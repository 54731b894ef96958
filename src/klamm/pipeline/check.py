"""Checks a pipeline before it runs: topics, schema, SQL, and whether its sink takes the result."""

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from klamm.pipeline.errors import cause_of
from klamm.pipeline.letters import letter_records
from klamm.pipeline.rows import check_expectations, dead_rows, good_rows, prepare, run_steps
from klamm.pipeline.sinks import Sink
from klamm.pipeline.spec import SinkKind, Spec, check_not_read
from klamm.pipeline.yaml_tree import BadFile
from klamm.runtime.blocking import RealBlockingWorld
from klamm.spark.errors import BadOption
from klamm.spark.option_set import Reads
from klamm.spark.partitions import find_partitions
from klamm.spark.read_client import read_client
from klamm.spark.sink_options import write_options


def check_topics(spec: Spec) -> None:
    """Ask the brokers for the topics of the pipeline.

    Raises BadFile for a missing one, and for one that is both read and written; Unreachable.
    """
    with read_client(RealBlockingWorld(), spec.reads) as brokers:
        try:
            find_partitions(brokers)
        except BadOption as error:
            raise BadFile(f"{spec.at('source.topics')}: {error}.") from error
        source_cluster = brokers.cluster_id
    written = {"dead_letter.topic": spec.dead_letter_topic}
    if spec.sink is SinkKind.TOPIC:
        written["sink.topic"] = spec.target
    options = write_options({"kafka.bootstrap.servers": spec.sink_bootstrap, "topic": spec.name}, Reads.BATCH)
    names = {field: topic for field, topic in written.items() if topic is not None}
    with read_client(RealBlockingWorld(), options.reads) as brokers:
        found = brokers.topics(list(names.values())) if names else {}
        sink_cluster = brokers.cluster_id
    for field, topic in names.items():
        if not found[topic].partitions:
            raise BadFile(f"{spec.at(field)}: the topic {topic} does not exist. Create it with klamm topics create.")
    if sink_cluster is not None and sink_cluster == source_cluster:  # the file may name it by other addresses
        check_not_read(spec, names.values())


def source_rows(spark: SparkSession, spec: Spec, options: dict[str, str]) -> DataFrame:
    """The streaming rows of the source. Raises BadFile for a schema that Spark cannot parse."""
    try:
        return spark.readStream.format("klamm").options(**options).load()
    except PySparkException as error:
        raise BadFile(f"{spec.at('source.value.schema')}: source.value.schema: {cause_of(error)}") from error


def check_rows(spark: SparkSession, spec: Spec, sink: Sink) -> StructType:
    """Analyse expectations and steps without data; returns the schema of the result. Raises BadFile."""
    schema = source_rows(spark, spec, spec.source_options).schema
    empty = spark.createDataFrame([], schema)
    check_expectations(spec, good_rows(prepare(empty, ())))
    prepared = prepare(empty, spec.expectations)
    result = run_steps(spark, spec, good_rows(prepared))
    sink.check(result.schema)
    assert letter_records(dead_rows(prepared)).schema.names == ["key", "value", "headers"]
    return result.schema
