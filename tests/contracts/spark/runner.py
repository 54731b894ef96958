"""Run cases with one format in one Spark session; this file needs nothing but PySpark.

Reads a JSON object from standard input: `format`, `bootstrap`, `settings`, `directory` and `cases`. Writes one line of
JSON for each case: its number, and `rows` or `error`.
"""

import json
import os
import sys
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

RESULTS = os.dup(1)  # Spark may print to standard output
os.dup2(2, 1)


def main() -> None:
    job = json.load(sys.stdin)
    builder: Any = SparkSession.builder
    builder = builder.master("local[2]").appName("contract")
    for name, value in job["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for number, case in enumerate(job["cases"]):
        begin = time.time()
        run = write if "query" in case else stream if case["stream"] else batch
        try:
            found = run(spark, job, case, number)
        except Exception as error:
            found = {"error": str(error)[:1500]}
        found |= {"case": number, "seconds": round(time.time() - begin, 2)}
        os.write(RESULTS, (json.dumps(found) + "\n").encode())
    spark.stop()


def options(job: dict[str, Any], case: dict[str, Any]) -> dict[str, str]:
    return {"kafka.bootstrap.servers": job["bootstrap"], **case["options"]}


def batch(spark: SparkSession, job: dict[str, Any], case: dict[str, Any], number: int) -> dict[str, Any]:
    rows = spark.read.format(job["format"]).options(**options(job, case)).load()
    return {"schema": rows.schema.simpleString(), "rows": collected(rows)}


def stream(spark: SparkSession, job: dict[str, Any], case: dict[str, Any], number: int) -> dict[str, Any]:
    """A run of AvailableNow, with `again` a second one: all rows, and the rows of each micro-batch that had some."""
    directory = f"{job['directory']}/{job['format']}-{number}"
    rows = spark.readStream.format(job["format"]).options(**options(job, case)).load()
    found: dict[str, Any] = {"schema": rows.schema.simpleString(), "batches": [], "rows": []}
    for _ in range(2 if case["again"] else 1):
        writer = rows.writeStream.format("parquet").option("path", f"{directory}/table")
        query = writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start()
        query.awaitTermination(60)
        if query.isActive:
            query.stop()
            raise TimeoutError("the query did not end within a minute")
        reports = [p if isinstance(p, dict) else json.loads(p.json) for p in query.recentProgress]
        found["batches"].append([p["numInputRows"] for p in reports if p["numInputRows"]])
    found["rows"] = collected(spark.read.schema(rows.schema).parquet(f"{directory}/table"))
    return found


def write(spark: SparkSession, job: dict[str, Any], case: dict[str, Any], number: int) -> dict[str, Any]:
    """Write the rows of a query, in a stream by way of files; the topic of the case is named for format and number."""
    topic = f"sink-{job['format']}-{number}"
    rows = spark.sql(case["query"].replace("{topic}", topic))
    given = {name: value.replace("{topic}", topic) for name, value in options(job, case).items()}
    if not case["stream"]:
        rows.write.format(job["format"]).options(**given).mode(case["mode"]).save()
        return {}
    directory = f"{job['directory']}/{job['format']}-sink-{number}"
    rows.write.parquet(f"{directory}/rows")
    writer = spark.readStream.schema(rows.schema).parquet(f"{directory}/rows").writeStream.format(job["format"])
    query = writer.options(**given).option("checkpointLocation", f"{directory}/checkpoint").start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return {}


def collected(rows: DataFrame) -> list[dict[str, Any]]:
    """All rows as plain values, in order of topic, partition and offset."""
    plain = {"key": sql.hex("key"), "value": sql.hex("value"), "timestamp": sql.unix_millis("timestamp")}
    lines = rows.select([plain.get(c, sql.col(c)).alias(c) for c in rows.columns]).toJSON().collect()
    return sorted((json.loads(str(line)) for line in lines), key=lambda r: (r["topic"], r["partition"], r["offset"]))


main()
