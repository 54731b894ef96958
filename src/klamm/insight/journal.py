"""Journals as a DataFrame: from the files of nodes, or from the journal topic, as a batch or as a stream.

Each row is one line of a journal as text, in the column `line`. `parsed` takes from it the lines of some kinds, with
the fields that are named: what nobody asks for is not parsed. Lines are ordered by `controller_epoch` and `seq`, never
by time: clocks of nodes differ, and the topic may have lines late and twice.
"""

from collections.abc import Sequence
from functools import reduce
from operator import or_
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
_COMMON: Final[dict[str, DataType]] = {
    "ts_ms": LongType(),
    "node": IntegerType(),
    "controller_epoch": IntegerType(),
    "seq": LongType(),
    "cause": StringType(),
    "kind": StringType(),
}
"""The fields that all journal lines have."""
_FIELDS: Final[dict[str, DataType]] = {
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
"""The fields of journal lines that the tables use. A line has those of its kind; the others are null."""

_MOST: Final = "decision"
"""The kind of most lines of a journal."""
LINE_ID: Final = ("node", "incarnation", "seq", "ts_ms", "kind")
"""What repeated lines have in common, see `klamm.telemetry.journal_reader.distinct`."""
ORDER: Final = ("controller_epoch", "seq")
"""The order in which controllers decided."""


def read_files(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """The journal lines of these files or directories of nodes.

    Files other than `klamm-journal-*.jsonl` are left out.
    """
    texts = spark.read.option("pathGlobFilter", "klamm-journal-*.jsonl").text(list(dict.fromkeys(paths)))
    return _lines(texts)  # files have each line once


def read_topic(spark: SparkSession, bootstrap_servers: str, topic: str = JOURNAL_TOPIC) -> DataFrame:
    """The journal lines of the topic up to its end now."""
    return distinct_lines(spark.read.format("klamm").options(**_topic_options(bootstrap_servers, topic)).load())


def stream_topic(
    spark: SparkSession, bootstrap_servers: str, topic: str = JOURNAL_TOPIC, on_data_loss: str = "fail"
) -> DataFrame:
    """The journal lines of the topic from its start on, as a stream; `InsightStore` removes repeated ones.

    `on_data_loss` is the option of the source: what happens where lines were deleted before they were read.
    """
    options = _topic_options(bootstrap_servers, topic) | {"onDataLoss": on_data_loss}
    return _lines(spark.readStream.format("klamm").options(**options).load())


def distinct_lines(values: DataFrame) -> DataFrame:
    """The journal lines in the column `value` of strings or bytes, each line once."""
    return _lines(values).distinct()


def empty_lines(spark: SparkSession) -> DataFrame:
    """No journal lines."""
    return spark.createDataFrame([], "line string")


def parsed(lines: DataFrame, kinds: Sequence[str], fields: Sequence[str]) -> DataFrame:
    """The lines of these kinds, taken apart: the fields of all lines, those named, `incarnation`, and the text `line`.

    What is no complete JSON object with the fields of all lines is left out, such as the last line of a killed node.
    """
    schema = StructType([StructField(n, kind) for n, kind in {**_COMMON, **{n: _FIELDS[n] for n in fields}}.items()])
    # a line of another kind is passed over by its text in a tenth of the time that parsing takes
    may_be = reduce(or_, (sql.col("line").contains(f'"{kind}"') for kind in kinds))
    if _MOST not in kinds:
        # the begin of a text tells that it is of this kind; only all of it tells that it is of none of the others
        may_be = ~sql.col("line").contains(f'"kind":"{_MOST}"') & may_be
    # without the array, a filter on the fields would parse each line once more for each of them
    once = sql.explode(sql.array(sql.from_json("line", schema)))
    return (
        lines.where(may_be)
        .select("line", once.alias("parsed"))
        .where(sql.col("parsed.kind").isin(*kinds) & sql.expr("parsed.seq is not null and parsed.ts_ms is not null"))
        .select("parsed.*", "line")
        .withColumn("incarnation", sql.substring_index("cause", ".", 2))
    )


def at(ms: str | Column) -> Column:
    """A timestamp of a column with ms since 1970."""
    return sql.timestamp_millis(sql.col(ms) if isinstance(ms, str) else ms)


def _lines(values: DataFrame) -> DataFrame:
    """The texts in the column `value`, of strings or bytes."""
    return values.select(sql.col("value").cast("string").alias("line"))


def _topic_options(bootstrap_servers: str, topic: str) -> dict[str, str]:
    """Options of the source `klamm` that read all of the topic."""
    return {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
