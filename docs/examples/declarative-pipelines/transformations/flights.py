"""Flights from a topic as a streaming table, and their mean delays by carrier."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

BOOTSTRAP = "127.0.0.1:9092"
spark = SparkSession.active()


@dp.table
def flights() -> DataFrame:
    """One row for each record of the topic `flights`."""
    records = (
        spark.readStream.format("klamm")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "100000")
        .option("valueFormat", "json")
        .option("valueSchema", "carrier STRING, flight INT, origin STRING, dep_delay DOUBLE")
        .load()
    )
    return records.select("value.*", "partition", "offset", "timestamp")


@dp.materialized_view
def delays() -> DataFrame:
    """Flights and mean departure delay of each carrier."""
    table = spark.read.table("flights")
    return table.groupBy("carrier").agg(sql.count("*").alias("flights"), sql.avg("dep_delay").alias("mean_delay"))
