"""Dead letters: records of a pipeline that cannot be decoded or do not meet an expectation, in a topic."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from klamm.pipeline.rows import LETTER, REASON
from klamm.spark.dead_letters import HEADER_PREFIX

_HEADERS: Final = "array<struct<key:string,value:binary>>"
_FACTS: Final = ("topic", "partition", "offset")


def letter_records(dead: DataFrame) -> DataFrame:
    """The dead letters as records: key, value and headers of the original; more headers say where it was and why."""
    letter = sql.col(LETTER)
    facts = [_header(name, letter[name].cast("string")) for name in _FACTS]
    facts.append(_header("timestamp", sql.unix_millis(letter["timestamp"]).cast("string")))
    facts.append(_header("error", sql.col(REASON)))
    own = sql.filter(letter["headers"], lambda h: ~_is_own(h))
    headers = sql.concat(sql.coalesce(own, sql.array().cast(_HEADERS)), sql.array(*facts))
    return dead.select(letter["key"].alias("key"), letter["raw"].alias("value"), headers.alias("headers"))


def original_rows(batch: DataFrame) -> DataFrame:
    """Rows read from the topic of dead letters, with the place, timestamp and headers of the original records."""
    own = sql.filter(sql.col("headers"), lambda h: ~_is_own(h))

    def fact(name: str) -> Column:
        """The text of one of klamm's headers; null where the record has none."""
        named = sql.filter(sql.col("headers"), lambda h: h["key"] == f"{HEADER_PREFIX}{name}")
        return sql.try_element_at(named, sql.lit(-1))["value"].cast("string")

    return batch.withColumns(
        {
            "topic": sql.coalesce(fact("topic"), sql.col("topic")),
            "partition": sql.coalesce(fact("partition").try_cast("int"), sql.col("partition")),
            "offset": sql.coalesce(fact("offset").try_cast("bigint"), sql.col("offset")),
            "timestamp": sql.coalesce(sql.timestamp_millis(fact("timestamp").try_cast("bigint")), sql.col("timestamp")),
            "headers": sql.when(sql.size(own) > 0, own),
        }
    )


def _is_own(header: Column) -> Column:
    """Whether a header is one that klamm added."""
    return header["key"].startswith(HEADER_PREFIX)


def _header(name: str, text: Column) -> Column:
    """Return a Spark column with a record header of this name, prefixed with `klamm.`, and this text."""
    return sql.struct(sql.lit(f"{HEADER_PREFIX}{name}").alias("key"), text.cast("binary").alias("value"))
