"""Journals as a DataFrame: from the files of nodes, or from the journal topic, as a batch or as a stream.

Each row is one line of a journal. Rows are ordered by `controller_epoch` and `seq`, never by time: clocks of nodes
differ, and the topic may have lines late and twice.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from klamm.telemetry.journal import JOURNAL_TOPIC

_BROKERS: Final = ArrayType(IntegerType())
_FIELDS: Final[dict[str, DataType]] = {
    "ts_ms": LongType(),
    "node": IntegerType(),
    "controller_epoch": IntegerType(),
    "seq": LongType(),
    "cause": StringType(),
    "kind": StringType(),
    # one partition: decisions, and steps of reassignments
    "decision": StringType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "rejected": ArrayType(ArrayType(StringType())),
    "leader_from": IntegerType(),
    "leader_to": IntegerType(),
    "leader_epoch": IntegerType(),
    "partition_epoch": IntegerType(),
    "isr_from": _BROKERS,
    "isr": _BROKERS,
    "unclean": BooleanType(),
    "replicas": _BROKERS,
    # many partitions: requests, refusals, deletions
    "partitions": MapType(StringType(), _BROKERS),
    "count": IntegerType(),
    "step": StringType(),
    "what": StringType(),
    "why": StringType(),
    "deleted": ArrayType(StringType()),
    # requests and responses
    "broker": IntegerType(),
    "api": StringType(),
    "ms": DoubleType(),
    "failures": IntegerType(),
    "failed": StringType(),
    "error": StringType(),
    # controller events
    "event": StringType(),
    "waited_ms": DoubleType(),
}
LINE: Final = StructType([StructField(name, kind) for name, kind in _FIELDS.items()])
"""The fields of journal lines that the tables use. A line has those of its kind; the others are null."""

TOLD: Final = ("event", "found")
"""The kinds of lines whose text is kept, in the column `line`: events are described from it."""
LINE_ID: Final = ("node", "incarnation", "seq", "ts_ms", "kind")
"""What repeated lines have in common, see `klamm.telemetry.journal_reader.distinct`."""
ORDER: Final = ("controller_epoch", "seq")
"""The order in which controllers decided."""


def read_files(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """The journal lines of these files or directories of nodes, in the columns of `LINE`, `line` and `incarnation`.

    Files other than `klamm-journal-*.jsonl` are left out. An incomplete last line, as a kill leaves it, is left out.
    """
    texts = spark.read.option("pathGlobFilter", "klamm-journal-*.jsonl").text(list(dict.fromkeys(paths)))
    return _columns(texts.select("value"))  # files have each line once


def read_topic(spark: SparkSession, bootstrap_servers: str, topic: str = JOURNAL_TOPIC) -> DataFrame:
    """The journal lines of the topic up to its end now; the same columns as `read_files`."""
    return parse_lines(spark.read.format("klamm").options(**_topic_options(bootstrap_servers, topic)).load())


def stream_topic(spark: SparkSession, bootstrap_servers: str, topic: str = JOURNAL_TOPIC) -> DataFrame:
    """The journal lines of the topic from its start on, as a stream; `InsightStore` removes repeated ones."""
    source = spark.readStream.format("klamm").options(**_topic_options(bootstrap_servers, topic)).load()
    return _columns(source)


def parse_lines(values: DataFrame) -> DataFrame:
    """The journal lines in the column `value` of strings or bytes, each line once; the columns as of `read_files`."""
    return _columns(values).dropDuplicates(list(LINE_ID))


def _columns(values: DataFrame) -> DataFrame:
    """Parse the lines; what is no complete JSON object with the fields of all journal lines is left out."""
    text = sql.col("value").cast("string")
    # without the array, a filter on the fields would parse each line once more for each of them
    once = sql.explode(sql.array(sql.from_json(text, LINE)))
    parsed = values.select(text.alias("line"), once.alias("parsed"))
    return (
        parsed.where("parsed.kind is not null and parsed.seq is not null and parsed.ts_ms is not null")
        .select("parsed.*", sql.when(sql.col("parsed.kind").isin(*TOLD), sql.col("line")).alias("line"))
        .withColumn("incarnation", sql.substring_index("cause", ".", 2))
    )


def empty_lines(spark: SparkSession) -> DataFrame:
    """No journal lines, in the columns of `read_files`."""
    return _columns(spark.createDataFrame([], "value string"))


def at(ms: str | Column) -> Column:
    """A timestamp of a column with ms since 1970."""
    return sql.timestamp_millis(sql.col(ms) if isinstance(ms, str) else ms)


def _topic_options(bootstrap_servers: str, topic: str) -> dict[str, str]:
    """Options of the source `klamm` that read all of the topic."""
    return {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
