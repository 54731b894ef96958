"""A klamm controller beside Apache Kafka 3.9.1's, in one run: failover, brokers that die and return, and daily work.

    python -m benchmarks.controller [--partitions 10000 100000 200000] [--alone] [--json FILE]
    python -m benchmarks.controller --curves [--picture FILE.svg] [--json FILE]  # against what changed, what exists
    python -m benchmarks.controller --crash [--partitions ...] [--kafka]  # the controller dies, which led one sixth
    python -m benchmarks.controller --rest [--partitions ...]  # memory and processor time of a standby at rest
    python -m benchmarks.controller --inside [--profile failover] [--holds 5]

One real ZooKeeper for each measurement, six silent brokers in a process of their own that answer every control request
at once, three replicas, 100 partitions a topic, states written beforehand; the node under test is a process that holds
no partition. Times are taken outside: from the cause (the znode that won the election, the end of a session, the last
registration, a request) to the last request that a silent broker received, and to the LeaderAndIsr that tells the
first, half and all of the new leaders. Beside them, the processor time the node used. `--inside` runs klamm in this
process instead: it can be profiled, and shows how long its loop was held, and (`--holds`) where.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.table import Table
from tests.support import apache_kafka

from benchmarks.control_plane import subject
from benchmarks.control_plane.holds import Holds
from benchmarks.control_plane.silent import Key, SilentBrokers
from benchmarks.control_plane.stage import Measured, Stage
from benchmarks.control_plane.subject import Inside, Subject
from benchmarks.control_plane.tree import BROKERS, HEAVY, Placement, led_by_heavy, spread, topics, write_cluster
from klamm.embedded.zookeeper import ServerOptions, ZooKeeperServer
from klamm.runtime.ports import free_port
from klamm.zk.store import Store

MakeSubject = Callable[[str, str], Subject]
Steps = Callable[[Stage, int, Placement], Awaitable[None]]
Runner = Callable[[Coroutine[Any, Any, "Run"]], "Run"]

LARGEST_BESIDE_KAFKA: Final = 200_000
REASSIGNED: Final = 10_000
CREATED: Final = 1_000
CRASH: Final = "the controller dies, which led one sixth"
FAILOVER, WARM, DEAD, BACK, ALL_DEAD, ALL_BACK = (
    "failover", "failover of a standby", "a broker dies", "it returns", "all six die", "all six return",
)  # fmt: skip
SHUTDOWN, REASSIGN, CREATE, DELETE = (
    "controlled shutdown of one sixth", "10,000 partitions reassigned", "1,000 topics x 10 created", "they are deleted",
)  # fmt: skip
BUDGETS_S: Final = {
    (FAILOVER, 10_000): 0.3, (FAILOVER, 100_000): 2, (FAILOVER, 200_000): 4, (FAILOVER, 1_000_000): 30,
    (WARM, 10_000): 0.1, (WARM, 100_000): 0.5, (WARM, 200_000): 1, (WARM, 1_000_000): 5,
    (CRASH, 200_000): 2.5,
    (DEAD, 10_000): 0.2, (DEAD, 100_000): 1.2, (DEAD, 200_000): 2.5,
    (ALL_BACK, 10_000): 0.5, (ALL_BACK, 100_000): 4, (ALL_BACK, 200_000): 8,
    (SHUTDOWN, 60_000): 1, (CREATE, 10_000): 5, (CREATE, 100_000): 5,
}  # fmt: skip
MEDIAN_BUDGETS_S: Final = {(CRASH, 200_000): 1}
"""Until half of the partitions that lost their leader are led again."""
STANDBY_REST, CONTROLLER_REST = "a standby at rest", "a controller at rest"
REST_PERCENT: Final = 1
"""The goal for the processor time of a standby at rest; for its memory it is the controller's."""
LEAVING: Final = BROKERS[1]
"""The broker that shuts down: it still leads its sixth alone, and its followers are all in sync."""
TOUCHED: Final = (100, 1_000, 10_000, 30_000)
TOTALS: Final = (10_000, 50_000, 100_000, 200_000)
FIXED_TOTAL, FIXED_TOUCHED = 100_000, 1_000
BAR: Final = 40


class Run(NamedTuple):
    steps: dict[str, Measured]
    memory_mib: float


async def _measure(make: MakeSubject, count: int, place: Placement, directory: str, steps: Steps) -> Run:
    """Start a controller and measure its steps."""
    heap_mb = 768 + count // 100  # some 10 KiB a partition while everything is read and written at once
    options = ServerOptions(min_session_ms=4_000, heap_mb=heap_mb, sync_to_disk=False)
    server = ZooKeeperServer(f"{directory}/zookeeper", free_port(), options)
    with SilentBrokers(len(BROKERS)) as silent:
        server.start()
        tested = make(directory, server.connect_string)
        stage = Stage(server.connect_string, silent, tested)
        try:
            await stage.open()
            await Store(stage.client).create_top_level_paths()
            for number in BROKERS:
                await stage.register(number)
            await write_cluster(stage.client, count, place)  # older states would tell that all brokers restarted
            await stage.start_subject_as_standby()
            await steps(stage, count, place)
            memory = tested.most_memory_mib()
            await stage.close()
            await tested.stop()
        finally:
            server.kill()
    return Run({m.step: m for m in stage.measured}, memory)


async def _crash_steps(stage: Stage, count: int, place: Placement) -> None:
    """Kill a controller that leads a sixth of all partitions, beside the node under test, which stands by."""
    await stage.measure(FAILOVER, stage.become_controller)
    await stage.become_standby(HEAVY)
    await stage.measure(CRASH, partial(stage.unregister, [HEAVY]), _led_by_heavy(count, place))


async def _rest_steps(stage: Stage, count: int, place: Placement) -> None:
    """A standby that has everything in memory, then the same node as controller."""
    await stage.wait_until_current()
    await stage.rest(STANDBY_REST)
    await stage.measure(WARM, stage.become_controller)
    await stage.rest(CONTROLLER_REST)


async def _scaling_steps(stage: Stage, count: int, place: Placement) -> None:
    """Failovers, and a broker that dies and returns."""
    await stage.measure(FAILOVER, stage.become_controller)
    if stage.subject.keeps_mirror:
        await stage.become_standby()
        await stage.measure(WARM, stage.become_controller)
    await stage.measure(DEAD, partial(stage.unregister, [HEAVY]), _led_by_heavy(count, place))
    await stage.measure(BACK, partial(stage.register, HEAVY))


async def _all_steps(stage: Stage, count: int, place: Placement) -> None:
    """All steps."""

    async def all_return() -> float:
        for number in BROKERS:
            await stage.register(number)
        return time.time()

    await _scaling_steps(stage, count, place)
    await stage.timed(SHUTDOWN, partial(stage.controlled_shutdown, LEAVING))
    await stage.bounce(LEAVING)
    await stage.timed(ALL_DEAD, partial(stage.unregister_and_wait, BROKERS))
    await stage.measure(ALL_BACK, all_return)
    await stage.measure(REASSIGN, partial(stage.reassign, list(_rotated_replicas(min(count, REASSIGNED)))))
    names = [f"made-{i:04}" for i in range(CREATED)]
    await stage.timed(CREATE, partial(stage.create_topics, names, 10))
    await stage.timed(DELETE, partial(stage.delete_topics, names))


def _led_by_heavy(count: int, place: Placement) -> frozenset[Key]:
    """The partitions that the heavy broker leads at first."""
    return frozenset((t, n) for t, numbers in topics(count, place) for n, r in numbers.items() if r[0] == HEAVY)


def _rotated_replicas(count: int) -> Iterator[tuple[str, dict[int, tuple[int, ...]]]]:
    """The same three replicas with another one first: no broker has to copy anything."""
    for topic, partitions in topics(count, spread):
        yield topic, {n: (*r[1:], r[0]) for n, r in partitions.items()}


def measure(
    make: MakeSubject, count: int, place: Placement = spread, steps: Steps = _all_steps, run: Runner = asyncio.run
) -> Run:
    """Start a controller on a new ZooKeeper and measure the steps."""
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as directory:
        return run(_measure(make, count, place, directory, steps))


# ---- what is printed


def run_inside(counts: Sequence[int], profiled: str, told: int, console: Console) -> list[dict[str, object]]:
    """Run the node in this process; print the `told` passes of each step that held the loop longest."""
    rows: list[dict[str, object]] = []
    for count in counts:
        holds = Holds()
        run = measure(partial(Inside, holds=holds, profiled=profiled), count, run=holds.run)
        console.print(_table(count, run, None))
        for step in run.steps if told else ():
            for line in holds.longest_of(step, told):
                console.print(line, markup=False, highlight=False, soft_wrap=True)
        rows += [{"partitions": count, **found._asdict()} for found in run.steps.values()]
    return rows


def compare(
    counts: Sequence[int], make: MakeSubject, beside: bool, console: Console, steps: Steps = _all_steps
) -> list[dict[str, object]]:
    """Measure klamm and, if wanted, Apache Kafka for each number of partitions."""
    rows: list[dict[str, object]] = []
    for count in counts:
        with_kafka = beside and count <= LARGEST_BESIDE_KAFKA
        console.print(f"{count:,} partitions: klamm ...")
        ours = measure(make, count, steps=steps)
        theirs = None
        if with_kafka:
            console.print(f"{count:,} partitions: Apache Kafka {apache_kafka.VERSION} ...")
            theirs = measure(subject.kafka, count, steps=steps)
        console.print(_table(count, ours, theirs))
        for step, found in ours.steps.items():
            peer = theirs.steps[step]._asdict() if theirs and step in theirs.steps else None
            rows.append({"partitions": count, **found._asdict(), "kafka": peer, "budget_s": _budget(step, count)})
        rows.append({"partitions": count, "step": "most memory", "mib": ours.memory_mib})
    return rows


def _table(count: int, ours: Run, theirs: Run | None) -> Table:
    table = Table("step", title=f"{count:,} partitions, six silent brokers (seconds; ratio above 1: klamm is faster)")
    for heading in (
        "first led",
        "median",
        "all",
        "klamm",
        "processor",
        "loop held ms",
        "budget",
        "Apache Kafka",
        "ratio",
    ):
        table.add_column(heading, justify="right")
    for step, found in ours.steps.items():
        peer = theirs.steps[step].took_s if theirs and step in theirs.steps else None
        table.add_row(
            step,
            *("" if at is None else f"{at:.2f}" for at in (found.first_s, found.median_s, found.all_led_s)),
            f"{found.took_s:.2f}",
            f"{found.cpu_s:.2f}",
            "" if found.held_ms is None else f"{found.held_ms:.0f}",
            _verdict(found, count),
            "" if peer is None else f"{peer:.2f}",
            "" if peer is None else f"{peer / found.took_s:.1f}",
        )
    peer_memory = "" if theirs is None else f"{theirs.memory_mib:,.0f}"
    table.add_row("most memory, MiB", "", "", "", f"{ours.memory_mib:,.0f}", "", "", "", peer_memory, "")
    return table


def _verdict(found: Measured, count: int) -> str:
    """The limits of a step, and whether they were kept; empty without a limit."""
    took_s = found.all_led_s if found.step == CRASH and found.all_led_s is not None else found.took_s
    limits = (
        ("", _budget(found.step, count), took_s),
        ("median ", MEDIAN_BUDGETS_S.get((found.step, count)), found.median_s),
    )
    return ", ".join(
        f"{of}{limit:g} {'kept' if at_s <= limit else 'MISSED'}"
        for of, limit, at_s in limits
        if limit is not None and at_s is not None
    )


def _budget(step: str, count: int) -> float | None:
    """The time limit of a step for this number of partitions; None without a limit.

    That of `CRASH` is for the last leader that is told, others are for the last request.
    """
    return BUDGETS_S.get((step, count))


def measure_rest(make: MakeSubject, counts: Sequence[int], console: Console) -> list[dict[str, object]]:
    """Measure the memory and the processor time of a standby at rest, and of the same node as controller."""
    rows: list[dict[str, object]] = []
    table = Table("partitions", title="memory in MiB, and processor time in percent of a core")
    for heading in ("standby", "controller", "budget", "standby at rest", "controller at rest", "budget"):
        table.add_column(heading, justify="right")
    for count in counts:
        steps = measure(make, count, steps=_rest_steps).steps
        standby, active = steps[STANDBY_REST], steps[CONTROLLER_REST]
        assert standby.memory_mib is not None
        assert active.memory_mib is not None
        percents = [100 * rest.cpu_s / rest.took_s for rest in (standby, active)]
        table.add_row(
            f"{count:,}",
            *(f"{mib:,.0f}" for mib in (standby.memory_mib, active.memory_mib)),
            "kept" if standby.memory_mib <= active.memory_mib else "MISSED",
            *(f"{percent:.2f}" for percent in percents),
            "kept" if percents[0] < REST_PERCENT else "MISSED",
        )
        rows += [{"partitions": count, **found._asdict()} for found in steps.values()]
    console.print(table)
    return rows


def measure_scaling(make: MakeSubject, console: Console) -> list[dict[str, object]]:
    """Measure that the cost grows with what changed, not with what exists."""
    rows: list[dict[str, object]] = []
    for title, heading, cases in (
        (f"a broker dies, {FIXED_TOTAL:,} partitions in all", "led by the dead broker", _touched_cases()),
        (f"a broker dies that led {FIXED_TOUCHED:,}", "partitions in all", _total_cases()),
    ):
        found = [
            (label, measure(make, total, led_by_heavy(touched), _scaling_steps).steps)
            for total, touched, label in cases
        ]
        console.print(_scaling_table(title, heading, found))
        for (total, touched, _), (_, steps) in zip(cases, found, strict=True):
            rows += [{"partitions": total, "touched": touched, **step._asdict()} for step in steps.values()]
    return rows


def _touched_cases() -> list[tuple[int, int, int]]:
    """Partitions in all, led by the broker that dies, and which of the two is the curve's."""
    return [(FIXED_TOTAL, touched, touched) for touched in TOUCHED]


def _total_cases() -> list[tuple[int, int, int]]:
    """Cases with more partitions in all and the same number of changed ones."""
    return [(total, FIXED_TOUCHED, total) for total in TOTALS]


def _scaling_table(title: str, heading: str, found: Sequence[tuple[int, dict[str, Measured]]]) -> Table:
    table = Table(heading, title=title)
    for column in ("dies s", "processor s", "returns s", "processor s"):
        table.add_column(column, justify="right")
    table.add_column("dies", min_width=BAR)
    longest = max(steps[DEAD].took_s for _, steps in found)
    for label, steps in found:
        figures = [f"{f:.2f}" for s in (DEAD, BACK) for f in (steps[s].took_s, steps[s].cpu_s)]
        bar = "█" * max(1, round(BAR * steps[DEAD].took_s / longest))
        table.add_row(f"{label:,}", *figures, bar)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, nargs="+", default=[10_000, 100_000, 200_000])
    parser.add_argument("--alone", action="store_true", help="without Apache Kafka")
    parser.add_argument("--curves", action="store_true", help="klamm alone: against touched, and against total")
    parser.add_argument("--crash", action="store_true", help="klamm alone: a controller dies that led one sixth")
    parser.add_argument("--kafka", action="store_true", help="with --crash: beside Apache Kafka")
    parser.add_argument(
        "--rest", action="store_true", help="klamm alone: memory and processor time of a standby at rest"
    )
    parser.add_argument("--inside", action="store_true", help="klamm alone, in this process")
    parser.add_argument("--profile", default="", help="with --inside: the step to profile, by its name in the table")
    parser.add_argument("--holds", type=int, default=0, help="with --inside: tell of so many long passes of each step")
    parser.add_argument("--picture", help="also save what is printed, as SVG")
    parser.add_argument("--json", help="also write the figures to this file")
    asked = parser.parse_args()
    console = Console(width=120, record=bool(asked.picture))
    if asked.inside:
        rows = run_inside(asked.partitions, asked.profile, asked.holds, console)
    elif asked.curves:
        rows = measure_scaling(subject.klamm, console)
    elif asked.rest:
        rows = measure_rest(subject.klamm, asked.partitions, console)
    elif asked.crash:
        rows = compare(asked.partitions, subject.klamm, asked.kafka, console, _crash_steps)
    else:
        why = apache_kafka.why_missing()
        if why and not asked.alone:
            console.print(f"Apache Kafka is left out: {why}")
        rows = compare(asked.partitions, subject.klamm, not (asked.alone or why), console)
    if asked.picture:
        console.save_svg(asked.picture, title="benchmarks.controller")
    if asked.json:
        Path(asked.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
