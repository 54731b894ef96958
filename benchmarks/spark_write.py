"""Writing topics from Spark: rows a second, beside Spark's own connector (4.0.0) on the same node.

    python -m benchmarks.spark_write    # 3 million rows of 100 B, klamm and the official connector in turn
    python -m benchmarks.spark_write --only discard klamm
    python -m benchmarks.spark_write --records 500000 --bytes 1000 --codec zstd --exactly-once

Each format has a Spark of its own, with two cores; rounds alternate, after one that warms up. Beside wall time stands
the processor time that a million rows cost: of Spark's JVM, of its Python workers and of the node. On a busy machine it
is the steadier figure. `discard` is a Python sink that drops the Arrow batches that Spark passes to it: the limit that
Spark sets. Rows are made by Spark as they are written. Bytes are those of keys and values.
"""

import argparse
import tempfile
from pathlib import Path

from tests.support.cluster import Cluster

from benchmarks.spark_process import OFFICIAL, SparkProcess, best_rounds, can_use_official, print_round

JOB = Path(__file__).parent / "spark_write_job.py"
PARTITIONS = 8
WAYS = ("discard", "klamm", "klamm exactly-once", "kafka")


def writer(way: str, cluster: Cluster, given: argparse.Namespace, directory: Path) -> SparkProcess:
    """A Spark that writes a round when it is asked to."""
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "topic": "bench",
        "kafka.compression.type": given.codec,
    }
    if mode := way.partition(" ")[2]:
        options |= {"delivery": mode, "writeId": "bench"}
    job = {
        "options": options,
        "rows": given.records,
        "bytes": given.bytes,
        "tasks": given.tasks,
        "rounds": given.rounds,
    }
    return SparkProcess(way, JOB, cluster, job, directory)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--records", type=int, default=3_000_000)
    words.add_argument("--bytes", type=int, default=100)
    words.add_argument("--tasks", type=int, default=4)
    words.add_argument("--codec", default="none")
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--only", nargs="*", default=(), choices=WAYS)
    words.add_argument("--exactly-once", action="store_true", help="measure this, too")
    given = words.parse_args()
    ways = [w for w in WAYS if (given.exactly_once or "exactly" not in w) and (w in given.only or not given.only)]
    if OFFICIAL in ways and not can_use_official():
        ways.remove(OFFICIAL)
    one_node = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
    with tempfile.TemporaryDirectory() as directory, Cluster(Path(directory, "c"), 1, overrides=one_node) as cluster:
        cluster.create_topic("bench", PARTITIONS, 1)
        writers = [writer(way, cluster, given, Path(directory)) for way in ways]
        for way, best in best_rounds(writers, given.rounds).items():
            print_round(way, given.records, given.bytes, best)
        for process in writers:
            process.close()


if __name__ == "__main__":
    main()
