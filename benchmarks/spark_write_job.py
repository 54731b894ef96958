"""Write rows with one format in one Spark session, for `benchmarks.spark_write`; this file needs nothing but PySpark.

Reads a JSON object from standard input: `format`, `settings`, `options`, `rows`, `bytes`, `tasks` and `rounds`. Begins
each round when a line comes, and writes the seconds that it took.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

RESULTS = os.dup(1)  # Spark may print to standard output
os.dup2(2, 1)
KEY_BYTES = 10


def discard_source() -> type[DataSource]:
    """`format("discard")`: a sink that drops what Spark passes to it. PySpark 4.0 has no sinks of Arrow batches."""
    from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

    class Discard(DataSourceArrowWriter):
        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            for _ in iterator:
                pass
            return WriterCommitMessage()

    class DiscardSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "discard"

        def writer(self, schema: StructType, overwrite: bool) -> Discard:
            return Discard()

    return DiscardSource


def main() -> None:
    job = json.loads(sys.stdin.readline())
    builder: Any = SparkSession.builder
    builder = builder.master("local[2]").appName("spark_write")
    for name, value in job["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if job["format"] == "discard":
        spark.dataSource.register(discard_source())
    padding = "x" * (job["bytes"] - 2 * KEY_BYTES)
    columns = (f"LPAD(STRING(id), {KEY_BYTES}, '0') AS key", f"CONCAT('{padding}', LPAD(STRING(id), 10, '0')) AS value")
    for number in range(job["rounds"] + 1):  # the first one warms up
        rows = spark.range(0, job["rows"] if number else 100_000, numPartitions=job["tasks"]).selectExpr(*columns)
        sys.stdin.readline()
        begin = time.perf_counter()
        rows.write.format(job["format"]).mode("append").options(**job["options"]).save()
        tell(str(time.perf_counter() - begin))
    spark.stop()


def tell(line: str) -> None:
    os.write(RESULTS, (line + "\n").encode())


main()
