"""A streaming job as a process of its own, so that it can be killed: a topic into Parquet files or into another topic.

    python -m tests.support.stream_job run|drain|check BOOTSTRAP TOPIC DIRECTORY [OPTION=VALUE ...]

`run` goes on until it is killed, `drain` ends when it has read what is there, `check` prints what the files hold. With
the option `sink=TOPIC` it writes to this topic exactly once: the partition and offset of each record.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql
from tests.support.spark import QUICK_START

from klamm.spark import session


def main(mode: str, bootstrap: str, topic: str, directory: str, *given: str) -> None:
    spark = session(
        "stream job",
        cores=2,
        settings={
            "spark.master": "local[2,8]",  # a killed worker fails its task, which is tried again
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": QUICK_START,
            "spark.sql.warehouse.dir": f"{directory}/warehouse",
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    if mode == "check":
        print(json.dumps(summary(spark, directory)), flush=True)
        return
    brokers = {"kafka.bootstrap.servers": bootstrap}
    options = brokers | {"subscribe": topic} | dict(o.split("=", 1) for o in given)
    sink = options.pop("sink", None)
    rows = spark.readStream.format("klamm").options(**options).load().select("partition", "offset", "value")
    if sink is None:
        writer = rows.writeStream.format("parquet").option("path", f"{directory}/table")
    else:
        names = rows.select(sql.concat_ws("-", "partition", "offset").alias("value"))
        writer = names.writeStream.format("klamm").options(**brokers, topic=sink, delivery="exactly-once")
    writer = writer.option("checkpointLocation", f"{directory}/checkpoint")
    trigger = {"availableNow": True} if mode == "drain" else {"processingTime": "0 seconds"}
    query = writer.trigger(**trigger).start()
    Path(directory, "started").touch()
    query.awaitTermination()


def summary(spark: SparkSession, directory: str) -> dict[str, list[int]]:
    """By partition: rows, different offsets, the first and the last offset."""
    facts = (sql.count("*"), sql.count_distinct("offset"), sql.min("offset"), sql.max("offset"))
    rows = spark.read.parquet(f"{directory}/table").groupBy("partition").agg(*facts).collect()
    return {str(row[0]): list(row[1:]) for row in rows}


if __name__ == "__main__":
    main(*sys.argv[1:])
