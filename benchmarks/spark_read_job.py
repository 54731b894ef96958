"""Read a topic with one format in one Spark session, for `benchmarks.spark_read --against`; needs nothing but PySpark.

Reads a JSON object from standard input: `format`, `settings`, `options`. Begins a round when a line comes: all columns
of the topic go to the `noop` sink. Writes the seconds that it took.
"""

import json
import os
import sys
import time
from typing import Any

from pyspark.sql import SparkSession

RESULTS = os.dup(1)  # Spark may print to standard output
os.dup2(2, 1)


def main() -> None:
    job = json.loads(sys.stdin.readline())
    builder: Any = SparkSession.builder
    builder = builder.master("local[2]").appName("spark_read")
    for name, value in job["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    while sys.stdin.readline():
        begin = time.perf_counter()
        spark.read.format(job["format"]).options(**job["options"]).load().write.format("noop").mode("overwrite").save()
        os.write(RESULTS, f"{time.perf_counter() - begin}\n".encode())
    spark.stop()


main()
