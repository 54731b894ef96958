"""Dead letters: records of a pipeline that cannot be decoded or do not meet an expectation, in a topic."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from klamm.pipeline.rows import LETTER, REASON
from klamm.spark.columns import BEYOND, MAX_MS
from klamm.spark.dead_letters import HEADER_PREFIX

_HEADERS: Final = "array<struct<key:string,value:binary>>"
_FACTS: Final = ("topic", "partition", "offset")


def letter_records(dead: DataFrame) -> DataFrame:
    """The dead letters as records: key, value and headers of the original; more headers say where it was and why."""
    letter = sql.col(LETTER)
    facts = [_header(name, letter[name].cast("string")) for name in _FACTS]
    facts.append(_header("timestamp", _timestamp_ms(letter["timestamp"])))
    facts.append(_header("error", sql.col(REASON)))
    headers = sql.concat(_headers_of(letter["headers"]), sql.array(*facts))
    return dead.select(letter["key"].alias("key"), letter["raw"].alias("value"), headers.alias("headers"))


def original_rows(batch: DataFrame) -> DataFrame:
    """Rows read from the topic of dead letters, with the place, timestamp and headers of the original records."""
    original = _without_facts(_headers_of(sql.col("headers")))

    def fact(name: str) -> Column:
        """The text of one of klamm's headers; null where the record has none."""
        named = sql.filter(sql.col("headers"), lambda h: h["key"] == f"{HEADER_PREFIX}{name}")
        return sql.try_element_at(named, sql.lit(-1))["value"].cast("string")

    number = fact("timestamp").try_cast("bigint")
    fits = number.between(-MAX_MS, MAX_MS)
    error = sql.col("decodeError") if "decodeError" in batch.columns else sql.lit(None).cast("string")
    beyond = sql.concat_ws("; ", sql.concat(sql.lit("timestamp "), number.cast("string"), sql.lit(BEYOND)), error)
    return batch.withColumns(
        {
            "topic": sql.coalesce(fact("topic"), sql.col("topic")),
            "partition": sql.coalesce(fact("partition").try_cast("int"), sql.col("partition")),
            "offset": sql.coalesce(fact("offset").try_cast("bigint"), sql.col("offset")),
            "timestamp": sql.when(number.isNull(), sql.col("timestamp")).when(fits, sql.timestamp_millis(number)),
            "headers": sql.when(sql.size(original) > 0, original),
            "decodeError": sql.when(~fits, beyond).otherwise(error),
        }
    )


def _timestamp_ms(timestamp: Column) -> Column:
    """The timestamp of a dead letter as text; where Spark cannot hold it, the number that the reason begins with."""
    named = sql.regexp_extract(sql.col(REASON), f"^timestamp (-?[0-9]+){BEYOND}", 1)
    return sql.when(timestamp.isNotNull(), sql.unix_millis(timestamp).cast("string")).otherwise(
        sql.nullif(named, sql.lit(""))
    )


def _headers_of(column: Column) -> Column:
    """The headers of a record; none for null."""
    return sql.coalesce(column, sql.array().cast(_HEADERS))


def _without_facts(headers: Column) -> Column:
    """The headers without those that klamm added: the last one of each name.

    The original record may have headers of these names, too: it may be a dead letter of another pipeline.
    """
    names = [f"{HEADER_PREFIX}{name}" for name in (*_FACTS, "timestamp", "error")]
    from_the_end = sql.reverse(sql.transform(headers, lambda h: h["key"]))

    def is_fact(header: Column, at: Column) -> Column:
        """Whether the header at this index is the last one of a name that klamm adds."""
        last = sql.size(headers) - sql.array_position(from_the_end, header["key"])
        return header["key"].isin(*names) & (at == last)

    return sql.filter(headers, lambda h, at: ~is_fact(h, at))


def _header(name: str, text: Column) -> Column:
    """Return a Spark column with a record header of this name, prefixed with `klamm.`, and this text."""
    return sql.struct(sql.lit(f"{HEADER_PREFIX}{name}").alias("key"), text.cast("binary").alias("value"))
