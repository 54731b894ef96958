"""Dead letters: records of a pipeline that cannot be decoded or do not meet an expectation, in a topic."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from klamm.pipeline.rows import LETTER, REASON
from klamm.spark.dead_letters import HEADER_PREFIX

_FACTS: Final = ("topic", "partition", "offset")


def letter_records(dead: DataFrame) -> DataFrame:
    """The dead letters as records: key, value and headers of the original; more headers say where it was and why."""
    letter = sql.col(LETTER)
    facts = [_header(name, letter[name].cast("string")) for name in _FACTS]
    facts.append(_header("timestamp", sql.unix_millis(letter["timestamp"]).cast("string")))
    facts.append(_header("error", sql.col(REASON)))
    own = sql.filter(letter["headers"], lambda h: ~h["key"].startswith(HEADER_PREFIX))
    headers = sql.concat(
        sql.coalesce(own, sql.array().cast("array<struct<key:string,value:binary>>")), sql.array(*facts)
    )
    return dead.select(letter["key"].alias("key"), letter["raw"].alias("value"), headers.alias("headers"))


def _header(name: str, text: Column) -> Column:
    """Return a Spark column with a record header of this name, prefixed with `klamm.`, and this text."""
    return sql.struct(sql.lit(f"{HEADER_PREFIX}{name}").alias("key"), text.cast("binary").alias("value"))
