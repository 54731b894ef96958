"""A stream for an hour: what grows? Memory, open files and threads of its processes, minute by minute.

    python -m benchmarks.spark_soak [--minutes 60] [--rate 500] [--partitions 8] [--trigger 1]

A watched query reads a topic into Spark's `noop` sink while records come all the time; retention deletes what was read.
The heap of Spark's JVM is read after a collection. Growth is the slope of a line through the second half of the
samples, since processes grow until they have seen everything once. At the end each record was read exactly once, or the
benchmark fails.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
from confluent_kafka import Consumer, TopicPartition
from prometheus_client import REGISTRY
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.support.cluster import Cluster
from tests.support.stream_kills import command_line, producing

from klamm.spark import Watch, session, watch

TOPIC = "soaked"
QUERY = "soak"
MIB = 1 << 20
RETAINED = {"retention.bytes": str(MIB), "segment.bytes": str(MIB)}
READ_TO_THE_END_S = 60


class Sample(NamedTuple):
    """What the processes of the stream have at one moment; memory is in MiB."""

    stream: float
    workers: float
    jvm: float
    heap: float
    node: float
    stream_files: int
    jvm_files: int
    threads: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=int, default=500, help="records a second")
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--trigger", type=float, default=1, help="seconds between micro-batches")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, Cluster(Path(directory) / "cluster", 1) as cluster:
        cluster.create_topic(TOPIC, options.partitions, 1, config=RETAINED)
        spark = session("spark_soak")
        spark.sparkContext.setLogLevel("ERROR")
        query = start(spark, cluster.bootstrap, f"{directory}/checkpoint", options.trigger)
        with watch(query, group="spark-soak", bootstrap=cluster.bootstrap) as watched:
            with producing(cluster.bootstrap, TOPIC, options.rate):
                samples = list(follow(spark, query, cluster, watched, options.minutes))
            check(query, watched, cluster.bootstrap, options.partitions)
        query.stop()
        print_growth(samples, options.minutes)
        spark.stop()


def start(spark: SparkSession, bootstrap: str, checkpoint: str, trigger_s: float) -> StreamingQuery:
    """Start the query, and wait for its first micro-batch."""
    source = spark.readStream.format("klamm").option("kafka.bootstrap.servers", bootstrap).option("subscribe", TOPIC)
    rows = source.option("startingOffsets", "earliest").load()
    writer = rows.writeStream.format("noop").queryName(QUERY).option("checkpointLocation", checkpoint)
    query = writer.trigger(processingTime=f"{trigger_s} seconds").start()
    while query.lastProgress is None:
        query.awaitTermination(1)
    return query


def follow(
    spark: SparkSession, query: StreamingQuery, cluster: Cluster, watched: Watch, minutes: float
) -> Iterator[Sample]:
    """Print a line each minute, and yield the samples: at least twelve, at most one each minute."""
    pause_s = min(60.0, minutes * 60 / 12)
    print("minute  MiB: stream workers    jvm   heap   node   files: stream  jvm  threads   batch      lag", flush=True)
    begin = time.monotonic()
    for number in count(1):
        if time.monotonic() - begin >= minutes * 60:
            return
        query.awaitTermination(max(1, int(begin + number * pause_s - time.monotonic())))
        assert query.isActive, query.exception()
        found = sample(spark, cluster)
        report = query.lastProgress
        batch = report["batchId"] if report is not None else 0
        print(
            f"{(time.monotonic() - begin) / 60:6.1f}       {found.stream:6.1f} {found.workers:7.1f} {found.jvm:6.0f} "
            f"{found.heap:6.1f} {found.node:6.1f}   {found.stream_files:13} {found.jvm_files:4} {found.threads:8} "
            f"{batch:7} {watched.total_lag:8,}",
            flush=True,
        )
        yield found


def sample(spark: SparkSession, cluster: Cluster) -> Sample:
    """What the processes have now; the JVM collects its heap first."""
    java = next(p for p in psutil.Process().children() if any("org.apache.spark" in word for word in p.cmdline()))
    pythons = java.children(recursive=True)
    streams = [p for p in pythons if any("python_streaming_source" in word for word in command_line(p))]
    machine = spark.sparkContext._jvm  # the only way to the heap of the JVM
    assert machine is not None
    machine.java.lang.System.gc()
    runtime = machine.java.lang.Runtime.getRuntime()
    nodes = [psutil.Process(node.child.pid) for node in cluster.nodes if node.child is not None]
    return Sample(
        memory(streams),
        memory([p for p in pythons if p not in streams]),
        memory([java]),
        (runtime.totalMemory() - runtime.freeMemory()) / MIB,
        memory(nodes),
        sum(p.num_fds() for p in streams),
        java.num_fds(),
        java.num_threads(),
    )


def memory(processes: Sequence[psutil.Process]) -> float:
    """The resident memory of the processes in MiB; of those that ended, nothing."""
    found = 0
    for process in processes:
        try:
            found += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return found / MIB


def check(query: StreamingQuery, watched: Watch, bootstrap: str, partitions: int) -> None:
    """Let the query read what is left; fail unless it has read as many rows as there are offsets."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends", "log_level": 0})
    ends = [consumer.get_watermark_offsets(TopicPartition(TOPIC, n), timeout=20)[1] for n in range(partitions)]
    consumer.close()
    rows, deadline = 0.0, time.monotonic() + READ_TO_THE_END_S
    while rows < sum(ends) and time.monotonic() < deadline:
        query.awaitTermination(1)
        rows = REGISTRY.get_sample_value("klamm_spark_rows_total", {"query": QUERY}) or 0
    assert rows == sum(ends), f"{rows:,.0f} rows of {sum(ends):,} records; lag {watched.total_lag}"
    print(f"{rows:,.0f} records, each read once")


def print_growth(samples: list[Sample], minutes: float) -> None:
    """Print how each figure grows in an hour, by the second half of the samples."""
    half = np.array(samples[len(samples) // 2 :], np.float64)
    hours = np.arange(len(half)) * minutes / len(samples) / 60
    for name, values in zip(Sample._fields, half.T, strict=True):
        slope = np.polyfit(hours, values, 1)[0] if len(half) > 1 else 0.0
        print(
            f"{name:13} {samples[0]._asdict()[name]:8.1f} at first, {values[-1]:8.1f} at the end, "
            f"{slope:+8.2f} an hour in the second half",
            flush=True,
        )


if __name__ == "__main__":
    main()
