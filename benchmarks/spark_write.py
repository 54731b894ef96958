"""Writing topics from Spark: rows a second, beside Spark's own connector (4.0.0) on the same node.

    python -m benchmarks.spark_write    # 3 million rows of 100 B, klamm and the official connector in turn
    python -m benchmarks.spark_write --records 500000 --bytes 1000 --codec zstd --exactly-once

Each format has a Spark of its own, with two cores; rounds alternate, after one that warms up. Beside wall time stands
the processor time of Spark's JVM and its Python workers, without the node: on a busy machine it is the steadier figure.
Rows are made by Spark as they are written. Bytes are those of keys and values.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import psutil
from tests.support import official_connector
from tests.support.cluster import Cluster

from klamm.runtime.java import java_home

JOB = Path(__file__).parent / "spark_write_job.py"
PARTITIONS = 8
SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}
KLAMM = {"spark.python.unix.domain.socket.enabled": "true"}
WAYS = ("klamm", "klamm exactly-once", "kafka")


class Round(NamedTuple):
    wall_s: float
    cpu_s: float


class Writer:
    """A Spark that writes a round when it is asked to."""

    def __init__(self, way: str, bootstrap: str, given: argparse.Namespace, directory: Path) -> None:
        self.way = way
        name, _, mode = way.partition(" ")
        options = {"kafka.bootstrap.servers": bootstrap, "topic": "bench", "kafka.compression.type": given.codec}
        if mode:
            options |= {"delivery": mode, "writeId": "bench"}
        official = name == "kafka"
        job = {
            "format": name,
            "settings": SETTINGS | ({"spark.jars": official_connector.jars()} if official else KLAMM),
            "options": options,
            "rows": given.records,
            "bytes": given.bytes,
            "tasks": given.tasks,
            "rounds": given.rounds,
        }
        python = str(official_connector.PYTHON) if official else sys.executable
        keep = {n: v for n, v in os.environ.items() if not (official and n == "PYTHONPATH")}
        self._process = subprocess.Popen(
            [python, str(JOB)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=open(directory / f"{way.replace(' ', '-')}.log", "w"),  # noqa: SIM115  the process has it
            text=True,
            env=keep | {"PYSPARK_PYTHON": python, "JAVA_HOME": str(java_home())},
        )
        self._say(json.dumps(job))

    def round(self) -> Round:
        """Let it write once."""
        before = self._cpu_s()
        self._say("")
        line = self._line()
        assert line, f"{self.way} ended: see its log"
        return Round(float(line), self._cpu_s() - before)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _cpu_s(self) -> float:
        """Processor seconds of Spark and its child processes."""
        tree = (top := psutil.Process(self._process.pid), *top.children(recursive=True))
        times = [p.cpu_times() for p in tree]
        return sum(t.user + t.system + t.children_user + t.children_system for t in times)


def print_round(way: str, given: argparse.Namespace, best: Round) -> None:
    rows, size = given.records, given.bytes
    print(
        f"{way:<20} {rows / best.wall_s / 1e6:6.2f} M rows/s {rows * size / best.wall_s / 1e6:6.0f} MB/s"
        f" {rows / best.cpu_s / 1e6:6.2f} M rows per CPU s",
        flush=True,
    )


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--records", type=int, default=3_000_000)
    words.add_argument("--bytes", type=int, default=100)
    words.add_argument("--tasks", type=int, default=4)
    words.add_argument("--codec", default="none")
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--exactly-once", action="store_true", help="measure this, too")
    given = words.parse_args()
    ways = [w for w in WAYS if given.exactly_once or "exactly" not in w]
    if official_connector.can_fetch():
        official_connector.fetch()
    else:
        ways.remove("kafka")
    one_node = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
    with tempfile.TemporaryDirectory() as directory, Cluster(Path(directory, "c"), 1, overrides=one_node) as cluster:
        cluster.create_topic("bench", PARTITIONS, 1)
        writers = [Writer(way, cluster.bootstrap, given, Path(directory)) for way in ways]
        for writer in writers:
            writer.round()
        found: dict[str, list[Round]] = {writer.way: [] for writer in writers}
        for _ in range(given.rounds):
            for writer in writers:
                found[writer.way].append(writer.round())
        for way, rounds in found.items():
            print_round(way, given, min(rounds, key=lambda r: r.wall_s))
        for writer in writers:
            writer.close()


if __name__ == "__main__":
    main()
