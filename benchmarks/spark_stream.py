"""The time of a micro-batch: a stream over eight partitions into Spark's `noop` sink, records coming all the time.

    python -m benchmarks.spark_stream [--seconds 20] [--partitions 8] [--rate 2000]

The first ten micro-batches are left out: Java compiles then.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import psutil
from tests.support.cluster import Cluster
from tests.support.stream_kills import command_line, producing

from klamm.spark import session

WARM_UP = 10
TOPIC = "streamed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--rate", type=int, default=2_000, help="records a second")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, Cluster(Path(directory) / "cluster", 1) as cluster:
        cluster.create_topic(TOPIC, options.partitions, 1)
        with producing(cluster.bootstrap, TOPIC, options.rate):
            measure(cluster.bootstrap, directory, options.seconds)


def measure(bootstrap: str, directory: str, seconds: float) -> None:
    spark = session("spark_stream")
    spark.sparkContext.setLogLevel("ERROR")
    rows = (
        spark.readStream.format("klamm").option("kafka.bootstrap.servers", bootstrap).option("subscribe", TOPIC).load()
    )
    writer = rows.writeStream.format("noop").option("checkpointLocation", f"{directory}/checkpoint")
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10000")
    query = writer.start()
    query.awaitTermination(int(seconds))
    reports = [p for p in query.recentProgress if p["numInputRows"]][WARM_UP:]
    children = psutil.Process().children(recursive=True)
    driver = [p.memory_info() for p in children if any("python_streaming_source" in w for w in command_line(p))]
    query.stop()
    for part in ("triggerExecution", "latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets"):
        times = sorted(p["durationMs"].get(part, 0) for p in reports)
        print(f"{part:18} p50 {statistics.median(times):5.0f} ms   p95 {times[len(times) * 95 // 100]:5.0f} ms")
    print(f"{len(reports)} micro-batches, {sum(p['numInputRows'] for p in reports)} rows")
    print("memory of the stream's processes: " + ", ".join(f"{m.rss >> 20} MB" for m in driver))
    spark.stop()


if __name__ == "__main__":
    main()
