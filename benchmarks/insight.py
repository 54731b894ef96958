"""How fast journals become tables: a timeline made at once, and one that is kept batch by batch.

    python -m benchmarks.insight [--decisions 1000000] [--partitions 100000] [--batches 5]

The journal is written by klamm's own journal, one event for every 1,000 decisions.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from klamm.insight.facts import causes, event_lines
from klamm.insight.journal import read_files
from klamm.insight.store import InsightStore
from klamm.insight.tables import open_journal
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.runtime.disk import RealDisk
from klamm.spark import session
from klamm.telemetry.journal import Journal
from klamm.telemetry.journal_files import JournalFiles

OF_AN_EVENT = 1_000
ALL_FILES = 10_000


class Clock:
    ms = 1_700_000_000_000

    def now_ms(self) -> int:
        self.ms += 1
        return self.ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        measure(Path(directory), options.decisions, options.partitions, options.batches)


def measure(directory: Path, decisions: int, partitions: int, batches: int) -> None:
    parts = [directory / f"journal-{number}" for number in range(batches)]
    write_journals(parts, decisions, partitions)
    spark = session("klamm insight benchmark")
    spark.sparkContext.setLogLevel("ERROR")
    read_files(spark, [str(parts[0])]).count()  # Java compiles meanwhile
    lines = read_files(spark, [str(part) for part in parts])
    opened = open_journal(lines)
    opened.steps.cache()
    report("timeline at once", decisions, lambda: opened.intervals.write.format("noop").mode("append").save())
    report("causes in words", decisions, lambda: causes(event_lines(lines)).write.format("noop").mode("append").save())
    store = InsightStore(spark, str(directory / "tables"))
    for number, part in enumerate(parts):
        what = f"batch {number} of the store"
        report(what, decisions // batches, lambda n=number, p=part: store.add_batch(read_files(spark, [str(p)]), n))
    report("timeline of the store", decisions, lambda: store.timeline().write.format("noop").mode("append").save())
    spark.stop()


def write_journals(parts: list[Path], decisions: int, partitions: int) -> None:
    """One controller's journal: its partitions get one leader after the other."""
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


def report(what: str, decisions: int, work: Callable[[], object]) -> None:
    began = time.perf_counter()
    work()
    took = time.perf_counter() - began
    print(f"{what:24} {took:6.1f} s   {decisions / took:10,.0f} decisions/s", flush=True)


if __name__ == "__main__":
    main()
