"""How fast journal files become tables: events a second, and processor seconds for a million of them.

    python -m benchmarks.insight [--decisions 500000] [--partitions 50000] [--rounds 3] [--batches 2]

An event is a line of the journal. Each table is made from the files anew, as `klamm insight` does; `all tables` makes
them from one opened journal. `batch N` adds to the tables that `klamm insight follow` keeps. Processor seconds are
those of Spark's JVM and its Python workers: on a busy machine they are the steadier figure. Of several rounds the one
with the median counts; Java compiles in the first. The journal is written by klamm's own journal, one event of the
controller for every 1,000 decisions.
"""

import argparse
import contextlib
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from benchmarks.spark_read import Spent
from klamm.insight.journal import read_files
from klamm.insight.store import InsightStore
from klamm.insight.tables import TABLES, open_journal, table_rows
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.runtime.disk import RealDisk
from klamm.spark import session
from klamm.telemetry.journal import Journal
from klamm.telemetry.journal_files import JournalFiles

OF_AN_EVENT = 1_000
ALL_FILES = 10_000
LOOK_S = 0.1


class Clock:
    ms = 1_700_000_000_000

    def now_ms(self) -> int:
        self.ms += 1
        return self.ms


class SparkTimes:
    """Processor seconds of Spark's JVM and of all that it started, also of workers that ended.

    A worker whose parent ends first is nobody's child: its time is known only to who looked while it ran.
    """

    def __init__(self) -> None:
        children = psutil.Process().children()
        self._java = next(p for p in children if any("org.apache.spark" in word for word in p.cmdline()))
        self._seen: dict[psutil.Process, float] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def cpu_s(self) -> float:
        """What they used until now."""
        self._look()
        return sum(self._seen.values())

    def _watch(self) -> None:
        while self._java.is_running():
            self._look()
            time.sleep(LOOK_S)

    def _look(self) -> None:
        with self._lock, contextlib.suppress(psutil.NoSuchProcess):
            for process in (self._java, *self._java.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    times = process.cpu_times()
                    self._seen[process] = times.user + times.system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=int, default=500_000)
    parser.add_argument("--partitions", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=2)
    parser.add_argument("--tables", nargs="*", default=["timeline", "availability"], choices=list(TABLES))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        parts = [Path(directory) / f"journal-{number}" for number in range(options.batches)]
        lines = write_journals(parts, options.decisions, options.partitions)
        spark = session("klamm insight benchmark")
        spark.sparkContext.setLogLevel("OFF")
        times = SparkTimes()
        for names in (*([name] for name in options.tables), list(TABLES)):
            what = names[0] if len(names) == 1 else "all tables"
            report(
                what,
                lines,
                [measure(times, partial(make_tables, spark, parts, names)) for _ in range(options.rounds)],
            )
        store = InsightStore(spark, str(Path(directory) / "tables"))
        for number, part in enumerate(parts):
            added = measure(times, partial(store.add_batch, read_files(spark, [str(part)]), number))
            report(f"batch {number}", lines // options.batches, [added])
        spark.stop()


def make_tables(spark: SparkSession, parts: list[Path], names: list[str]) -> None:
    """Make these tables from the files."""
    journal = open_journal(read_files(spark, [str(part) for part in parts]), lay_out=True)
    journal.causes.cache()
    for name in names:
        table_rows(name, journal).write.format("noop").mode("append").save()
    for table in (journal.steps, journal.causes):
        table.unpersist()


def write_journals(parts: list[Path], decisions: int, partitions: int) -> int:
    """One controller's journal: its partitions get one leader after the other. Return the number of lines."""
    clock = Clock()
    states = [
        [LeaderAndIsr(BrokerId(n % 3), epoch, (BrokerId(n % 3), BrokerId((n + 1) % 3)), 1, epoch) for n in range(3)]
        for epoch in range(decisions // partitions + 2)
    ]
    made = 0
    for number, part in enumerate(parts):
        journal = Journal(JournalFiles(RealDisk(), str(part), 1, max_files=ALL_FILES), 1, clock)
        journal.controller_epoch = number + 1
        while made < decisions * (number + 1) // len(parts):
            cause = journal.event("BrokerChange", waited_ms=1.0)
            journal.found(cause, new=[], dead=[made % 3])
            for _ in range(OF_AN_EVENT):
                epoch, p = divmod(made, partitions)
                key = TopicPartition(f"topic-{p // 100}", p % 100)
                before = states[epoch - 1][p % 3] if epoch else None
                journal.leader_decision(cause, "offline" if epoch else "initial", key, before, states[epoch][p % 3])
                made += 1
            journal.line(cause, "done", event="BrokerChange", ms=20.0)
        journal.flush()
    return decisions + 3 * sum(1 for n in range(0, decisions, OF_AN_EVENT))


def measure(times: SparkTimes, work: Callable[[], object]) -> Spent:
    """The time that the work takes, and the processor time of Spark."""
    began, used = time.perf_counter(), times.cpu_s()
    work()
    return Spent(time.perf_counter() - began, times.cpu_s() - used)


def report(what: str, lines: int, rounds: list[Spent]) -> None:
    spent = sorted(rounds, key=lambda s: s.cpu_s)[len(rounds) // 2]
    print(
        f"{what:16} {lines / spent.wall_s:10,.0f} events/s {spent.cpu_s / lines * 1e6:8.1f} processor s for a million "
        f"(first round {rounds[0].cpu_s / lines * 1e6:.1f})",
        flush=True,
    )


if __name__ == "__main__":
    main()
