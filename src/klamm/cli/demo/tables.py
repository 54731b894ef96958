"""The Spark part of the demo, in a process of its own: write the topic to a table, count it, group it by carrier.

Called as `python -m klamm.cli.demo.tables` with one JSON text: see `Task`. Its last printed line is a `Count` as JSON.
"""

import sys
from posixpath import join
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import DoubleType, IntegerType, StringType, StructField, StructType

from klamm.spark.sessions import session

_NUMBERS = (
    "run", "row", "year", "month", "day", "sched_dep_time", "sched_arr_time", "flight", "distance", "hour", "minute",
)  # fmt: skip
_FRACTIONS = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")
_TEXTS = ("carrier", "tailnum", "origin", "dest", "time_hour")


class Task(msgspec.Struct, frozen=True):
    bootstrap: str
    topic: str
    run: int
    acknowledged: list[str]
    """Parquet files with the columns run and row: the acknowledged rows of all runs."""
    directory: str
    """The directory of the tables."""


class Carrier(msgspec.Struct, frozen=True):
    carrier: str
    flights: int
    mean_departure_delay_minutes: float | None


class Count(msgspec.Struct, frozen=True):
    found: int
    """Records of this run, including duplicates."""
    lost: int
    twice: int
    earlier_found: int
    earlier_lost: int
    earlier_twice: int
    carriers: list[Carrier]
    flights_path: str
    carriers_path: str


def flight_schema() -> StructType:
    """Return the Spark schema of a flight, as the records' JSON has it."""
    return StructType(
        [
            *(StructField(name, IntegerType()) for name in _NUMBERS),
            *(StructField(name, DoubleType()) for name in _FRACTIONS),
            *(StructField(name, StringType()) for name in _TEXTS),
        ]
    )


def make_tables(spark: SparkSession, task: Task) -> Count:
    """Write the flights and carriers tables from the topic, and count the rows of all runs."""
    flights_path, carriers_path = join(task.directory, "flights"), join(task.directory, "carriers")
    _write_parquet(_read_topic(spark, task), flights_path)
    flights = spark.read.parquet(flights_path)
    this_run = flights.where(sql.col("run") == task.run)
    _write_parquet(_delays_by_carrier(this_run), carriers_path)
    carriers = spark.read.parquet(carriers_path).orderBy("carrier").collect()
    acknowledged = spark.read.parquet(*task.acknowledged)
    lost, earlier_lost = _count_by_run(acknowledged.join(flights, ["run", "row"], "left_anti"), task.run)
    found, earlier_found = _count_by_run(flights, task.run)
    repeated = flights.groupBy("run", "row").count().where("count > 1")
    twice, earlier_twice = _count_by_run(repeated, task.run)
    return Count(
        found=found,
        lost=lost,
        twice=twice,
        earlier_found=earlier_found,
        earlier_lost=earlier_lost,
        earlier_twice=earlier_twice,
        carriers=[Carrier(r["carrier"], r["flights"], r["mean_departure_delay"]) for r in carriers],
        flights_path=flights_path,
        carriers_path=carriers_path,
    )


def _read_topic(spark: SparkSession, task: Task) -> DataFrame:
    """Return the topic's records as a Spark table of flights with partition, offset and timestamp."""
    records = (
        spark.read.format("klamm")
        .option("kafka.bootstrap.servers", task.bootstrap)
        .option("subscribe", task.topic)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .load()
    )
    flight = sql.from_json(sql.col("value").cast("string"), flight_schema()).alias("flight")
    return records.select("partition", "offset", "timestamp", flight).select(
        "flight.*", "partition", "offset", "timestamp"
    )


def _delays_by_carrier(flights: DataFrame) -> DataFrame:
    """Return number of flights and mean departure delay of each carrier."""
    return flights.groupBy("carrier").agg(
        sql.count("*").alias("flights"), sql.round(sql.avg("dep_delay"), 2).alias("mean_departure_delay")
    )


def _write_parquet(table: DataFrame, path: str) -> None:
    """Write the table to the path as Parquet, in place of an earlier one."""
    table.write.mode("overwrite").parquet(path)


def _count_by_run(rows: DataFrame, run: int) -> tuple[int, int]:
    """Count the rows of this run, and those of all earlier runs."""
    counts: dict[bool, Any] = {
        r["own"]: r["count"] for r in rows.groupBy((sql.col("run") == run).alias("own")).count().collect()
    }
    return counts.get(True, 0), counts.get(False, 0)


def main() -> None:
    """Run the Spark job of the demo: arguments are JSON, and so is the printed result."""
    task = msgspec.json.decode(sys.argv[1], type=Task)
    spark = session("klamm demo", settings={"spark.sql.shuffle.partitions": "4"})
    try:
        count = make_tables(spark, task)
    finally:
        spark.stop()
    print(msgspec.json.encode(count).decode(), flush=True)


if __name__ == "__main__":
    main()
