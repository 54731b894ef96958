"""A Spark in a process of its own, which does a round of work when it is asked to, and what each part of it costs.

Its script reads a JSON object from standard input, does a round for each line that comes, and writes the seconds that
the round took. Spark's own Kafka connector needs a PySpark of its own, so the two run beside each other.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from tests.support import official_connector
from tests.support.cluster import Cluster

from klamm.runtime.java import java_home

SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}
KLAMM = {"spark.python.unix.domain.socket.enabled": "true"}
OFFICIAL = "kafka"
"""The format of Spark's own connector."""


class Spent(NamedTuple):
    """Processor seconds by part."""

    jvm_s: float
    python_s: float
    node_s: float

    def since(self, before: "Spent") -> "Spent":
        return Spent(*(now - then for now, then in zip(self, before, strict=True)))


class Round(NamedTuple):
    wall_s: float
    spent: Spent

    @property
    def spark_s(self) -> float:
        return self.spent.jvm_s + self.spent.python_s


class SparkProcess:
    """A script that uses one format of Spark. `job` is what it reads, without `format` and `settings`."""

    def __init__(self, way: str, script: Path, cluster: Cluster, job: Mapping[str, Any], directory: Path) -> None:
        self.way = way
        self._nodes = [psutil.Process(node.child.pid) for node in cluster.nodes if node.child is not None]
        name = way.partition(" ")[0]
        official = name == OFFICIAL
        settings = SETTINGS | ({"spark.jars": official_connector.jars()} if official else KLAMM)
        python = str(official_connector.PYTHON) if official else sys.executable
        keep = {n: v for n, v in os.environ.items() if not (official and n == "PYTHONPATH")}
        self._process = subprocess.Popen(
            [python, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=open(directory / f"{way.replace(' ', '-')}.log", "w"),  # noqa: SIM115  the process has it
            text=True,
            env=keep | {"PYSPARK_PYTHON": python, "JAVA_HOME": str(java_home())},
        )
        self._say(json.dumps({"format": name, "settings": settings, **job}))

    def round(self) -> Round:
        """Let it do its work once."""
        before = self._spent()
        self._say("")
        line = self._line()
        assert line, f"{self.way} ended: see its log"
        return Round(float(line), self._spent().since(before))

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

    def _spent(self) -> Spent:
        """Processor seconds until now."""
        children = psutil.Process(self._process.pid).children()
        java = next((p for p in children if any("org.apache.spark" in word for word in p.cmdline())), None)
        if java is None:  # Spark is still starting
            return Spent(0, 0, 0)
        workers = sum(_cpu_s(p) for p in java.children(recursive=True)) + java.cpu_times().children_user
        nodes = sum(_cpu_s(p) for node in self._nodes for p in (node, *node.children(recursive=True)))
        return Spent(_own_cpu_s(java), workers, nodes)


def _own_cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _cpu_s(process: psutil.Process) -> float:
    """Of the process, and of its children that ended."""
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def can_use_official() -> bool:
    """Fetch Spark's own connector where that is possible; whether it is there."""
    if not official_connector.can_fetch():
        return False
    official_connector.fetch()
    return True


def print_round(way: str, rows: int, size: int, best: Round) -> None:
    """Print the figures of a round of so many rows of `size` bytes."""
    jvm, python, node = (seconds * 1e6 / rows for seconds in best.spent)
    print(
        f"{way:<20} {rows / best.wall_s / 1e6:6.2f} M rows/s {rows * size / best.wall_s / 1e6:6.0f} MB/s"
        f" {rows / best.spark_s / 1e6:6.2f} M rows per CPU s of Spark;"
        f" CPU s per M rows: JVM {jvm:.2f}, Python {python:.2f}, node {node:.2f}",
        flush=True,
    )


def best_rounds(processes: list[SparkProcess], count: int) -> dict[str, Round]:
    """Let the processes do their rounds in turn, after one that warms up; of each the one with least processor time."""
    for process in processes:
        process.round()
    found: dict[str, list[Round]] = {process.way: [] for process in processes}
    for _ in range(count):
        for process in processes:
            found[process.way].append(process.round())
    return {way: min(rounds, key=lambda r: r.spark_s) for way, rounds in found.items()}
