"""The rows of a micro-batch: what SQL sees as `source`, which are dead letters, what the steps make of the rest."""

from collections.abc import Collection
from functools import reduce
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from klamm.pipeline.fields import Expectation
from klamm.pipeline.spec import Spec, place
from klamm.pipeline.yaml_tree import BadFile

SOURCE: Final = "source"
RECORD: Final = "record"
LETTER: Final = "klamm_letter"
"""The column of `dead_rows` with what a dead letter needs of a row."""
REASON: Final = "klamm_reason"
"""The column of `dead_rows` that says why a row is a dead letter."""
_OF_RECORD: Final = ("key", "topic", "partition", "offset", "timestamp", "headers")


def prepare(batch: DataFrame, expectations: tuple[Expectation, ...]) -> DataFrame:
    """Return the rows with the columns that the first SQL step sees as `source`, and two more at the end.

    The last but one has the record as a dead letter. The last one says why the row is one, and is null for a good row.

    The fields of a decoded STRUCT become columns. A column of the record whose name such a field has is only in the
    STRUCT `record`.
    """
    kind = batch.schema["value"].dataType
    fields = kind.names if isinstance(kind, StructType) else ["value"]
    values = [
        sql.col("value").getField(f).alias(f) if isinstance(kind, StructType) else sql.col("value") for f in fields
    ]
    taken = {f.lower() for f in fields}
    own = [sql.col(name) for name in _OF_RECORD if name not in taken]
    raw = "rawValue" if "rawValue" in batch.columns else "value"
    tombstone = sql.col(raw).isNull().alias("tombstone")
    record = sql.struct(*_OF_RECORD, tombstone).alias(RECORD)
    letter = sql.struct(*(sql.col(n) for n in _OF_RECORD), sql.col(raw).alias("raw")).alias(free_name(LETTER, taken))
    error = sql.col("decodeError") if "decodeError" in batch.columns else sql.lit(None).cast("string")
    reason = free_name(REASON, taken)
    columns = [*values, *own, *([record] if RECORD not in taken else []), letter, error.alias(reason)]
    return batch.select(*columns).withColumn(reason, sql.coalesce(sql.col(reason), *map(_unmet, expectations)))


def free_name(name: str, taken: Collection[str]) -> str:
    """The name, or a longer one: none of those in `taken`, which are in lower case, as SQL compares them."""
    while name in taken:
        name += "_"
    return name


def _unmet(expectation: Expectation) -> Column:
    """Return a Spark column that says why a row does not meet the expectation; null where it does."""
    text = f"the expectation {expectation.name} is not met: {expectation.condition}"
    return sql.when(~sql.coalesce(sql.expr(f"({expectation.condition})"), sql.lit(False)), sql.lit(text))


def is_dead(prepared: DataFrame) -> Column:
    """Whether a row is a dead letter."""
    return sql.col(prepared.columns[-1]).isNotNull()


def good_rows(prepared: DataFrame) -> DataFrame:
    """The rows that are no dead letters, with the columns of `source`."""
    return prepared.where(~is_dead(prepared)).drop(*prepared.columns[-2:])


def dead_rows(prepared: DataFrame) -> DataFrame:
    """Return the rows that are dead letters: the record (LETTER) and why it is one (REASON)."""
    letter, reason = prepared.columns[-2:]
    return prepared.where(is_dead(prepared)).select(sql.col(letter).alias(LETTER), sql.col(reason).alias(REASON))


def run_steps(spark: SparkSession, spec: Spec, source: DataFrame) -> DataFrame:
    """The result of the last step. Raises BadFile for a step that Spark refuses, with its line."""
    source.createOrReplaceTempView(SOURCE)
    result = source
    for step in spec.steps:
        try:
            result = spark.sql(step.sql)
            result.createOrReplaceTempView(step.view)
        except AnalysisException as error:
            raise BadFile(f"{place(spec.file, step.line)}: steps: {step.view}: {analysis_text(error)}") from error
    return result


def check_expectations(spec: Spec, source: DataFrame) -> None:
    """Raise BadFile for an expectation that is no condition on the rows of `source`."""
    for expectation in spec.expectations:
        at = f"{place(spec.file, expectation.line)}: expect.{expectation.name}={expectation.condition!r}"
        try:
            kind = source.selectExpr(f"({expectation.condition}) AS held").schema["held"].dataType.simpleString()
        except AnalysisException as error:
            raise BadFile(f"{at}: {analysis_text(error)}") from error
        if kind != "boolean":
            raise BadFile(f"{at}: the condition has the type {kind}; write one that is true or false.")


def analysis_text(error: Exception) -> str:
    """The first sentence of what Spark says about SQL that it cannot analyse, without its plan."""
    lines = [line.strip() for line in str(error).splitlines()]
    kept = reduce(
        lambda text, line: f"{text} {line}" if line and not line.startswith(("'", "+-", ":-", "JVM")) else text,
        lines[:12],
        "",
    )
    return kept.strip().partition(" SQLSTATE")[0].rstrip(";.") + ". Correct the SQL."
