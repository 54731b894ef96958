"""The tiers of the simulation, and campaigns: random schedules on all cores, with progress.

A campaign ends when its time is over or an invariant is violated.
"""

import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

import structlog

from klamm.runtime.clock import RealClock
from klamm.runtime.cores import core_count, cpu_s, over_cores
from klamm.runtime.main_loop import freeze_startup_objects
from klamm.runtime.memory import free_cycles
from klamm.runtime.signals import interrupted_by_stop_signals
from klamm.sim import cluster
from klamm.sim.cluster import Outcome
from klamm.sim.cluster_tier import run
from klamm.sim.cluster_tier.options import Options as ClusterOptions
from klamm.sim.coverage_goals import GOALS, SCHEDULES_TO_REACH_ALL_GOALS, unreached_goals
from klamm.sim.scripts.options import Options
from klamm.sim.scripts.script import Script


class Tier(NamedTuple):
    name: str
    options: Any
    """The class of its options."""
    run_schedule: Callable[..., Outcome]
    """By seed."""
    run_script: Callable[[Script], Outcome]
    has_goals: bool
    """Whether a long campaign must reach each of the coverage goals."""


CONTROLLER: Final = Tier("controller", Options, cluster.run_schedule, cluster.run_script, has_goals=True)
CLUSTER: Final = Tier("cluster", ClusterOptions, run.run_schedule, run.run_script, has_goals=False)
TIERS: Final = {tier.name: tier for tier in (CONTROLLER, CLUSTER)}


MIN_EFFECTS: Final = 10
"""States written amid the faults; a schedule with fewer says nothing, and does not count."""
GC_THRESHOLD_OBJECTS: Final = 100_000
"""Between two looks for what refers to itself: a schedule makes few of these, and keeps what happened."""
SCHEDULES_PER_COLLECTION: Final = 8
"""After so many schedules a process frees what refers to itself: one of whole nodes leaves 8 MB, its disks included."""
_SCHEDULES_OF_THIS_PROCESS: Final = itertools.count(1)
_LOG_LEVEL: Final = 50
_PROGRESS_INTERVAL_MS: Final = 5_000


class Report(NamedTuple):
    """The result of one schedule."""

    seed: int
    violation: str | None
    digest: str
    virtual_s: float
    steps: int
    checks: int
    elections: int
    effects: int
    reached: Mapping[str, int]
    cpu_s: float

    @property
    def is_idle(self) -> bool:
        """Whether so little was written to ZooKeeper that the schedule proves nothing."""
        return self.violation is None and self.effects < MIN_EFFECTS


def silence_logging() -> None:
    """Turn off logging and the warnings about coroutines of killed processes."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_LOG_LEVEL))
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)


def run_and_report(seed: int, tier: str = CONTROLLER.name) -> Report:
    """Run the schedule of one seed and return its result; from time to time free what earlier schedules left."""
    began = cpu_s()
    outcome = TIERS[tier].run_schedule(seed)
    if next(_SCHEDULES_OF_THIS_PROCESS) % SCHEDULES_PER_COLLECTION == 0:
        free_cycles()
    return Report(
        seed,
        outcome.violation,
        outcome.digest,
        outcome.virtual_s,
        outcome.steps,
        outcome.checks,
        outcome.elections,
        outcome.effects,
        outcome.reached,
        cpu_s() - began,
    )


@dataclass
class Tally:
    """Sums over the schedules of a campaign: schedules, violations, elections, checks, simulated time."""

    done: int = 0
    idle: int = 0
    virtual_s: float = 0.0
    steps: int = 0
    checks: int = 0
    elections: int = 0
    cpu_s: float = 0.0
    newest: int = 0
    broken: list[Report] = field(default_factory=list)
    reached: Counter[str] = field(default_factory=Counter)

    def add(self, report: Report) -> None:
        """Add the result of one schedule to the sums."""
        self.cpu_s += report.cpu_s
        self.newest = max(self.newest, report.seed)
        if report.is_idle:
            self.idle += 1
            return
        self.done += 1
        self.virtual_s += report.virtual_s
        self.steps += report.steps
        self.checks += report.checks
        self.elections += report.elections
        self.reached.update(report.reached)
        if report.violation:
            self.broken.append(report)

    def progress_line(self, took_s: float) -> str:
        """The progress line: schedules, broken ones, rates and simulated hours."""
        hours = self.virtual_s / 3600
        return (
            f"{self.done} schedules, {len(self.broken)} broken, {self.done / took_s:.1f}/s,"
            f" {self.done / max(self.cpu_s, 1e-3):.1f} per core-second, {hours:.1f} simulated hours"
        )


class Campaign:
    """Run schedules of new seeds until the time is over, all seeds are used, or enough of them broke an invariant."""

    def __init__(
        self, first: int, seconds: float, most: int, violations: int, cores: int | None, tier: Tier = CONTROLLER
    ) -> None:
        self._clock = RealClock()
        self._began = self._last_progress_ms = self._clock.now_ms()
        self._first = first
        self._ends_at = self._began + seconds * 1000
        self._most = most
        self._violations = violations
        self._cores = cores
        self._tier = tier
        self.tally = Tally()
        self.is_stopped = False

    def run(self) -> int:
        """Run the campaign; the exit code is 1 if an invariant broke, and 130 if the user stopped it."""
        print(
            f"running seeds from {self._first} on, on {self._cores or core_count()} cores; press Ctrl-C to stop",
            flush=True,
        )
        freeze_startup_objects(GC_THRESHOLD_OBJECTS)
        run = run_and_report if self._tier is CONTROLLER else partial(run_and_report, tier=self._tier.name)
        reports = over_cores(run, self._seeds(), self._cores)
        try:
            with interrupted_by_stop_signals():
                for report in reports:
                    self._add_report(report)
        except KeyboardInterrupt:
            self.is_stopped = True
        self._print_summary()
        return 1 if self.tally.broken or self.has_unreached_goals else 130 if self.is_stopped else 0

    @property
    def has_unreached_goals(self) -> bool:
        """Whether enough schedules ran to reach every coverage goal, and some goal was never reached."""
        enough = self._tier.has_goals and self.tally.done >= SCHEDULES_TO_REACH_ALL_GOALS
        return enough and bool(unreached_goals(self.tally.reached))

    @property
    def first_broken(self) -> int:
        """The smallest seed whose run violated an invariant."""
        return min(report.seed for report in self.tally.broken)

    @property
    def _replay(self) -> str:
        """The command that repeats the first broken seed and prints its log."""
        tier = "" if self._tier is CONTROLLER else f" TIER={self._tier.name}"
        return f"make seed N={self.first_broken}{tier}"

    @property
    def seconds_left(self) -> float:
        """Seconds until the campaign's time is over."""
        return (self._ends_at - self._clock.now_ms()) / 1000

    def _seeds(self) -> Iterator[int]:
        """The seeds still to run, until the time or the permitted number of violations is used up."""
        for seed in itertools.islice(itertools.count(self._first), self._most):
            if self._clock.now_ms() >= self._ends_at or len(self.tally.broken) >= self._violations:
                return
            yield seed

    def _add_report(self, report: Report) -> None:
        """Count a result; print its violation, and a progress line from time to time."""
        self.tally.add(report)
        if report.violation:
            print(f"seed {report.seed}: {report.violation}", flush=True)
        now = self._clock.now_ms()
        if now >= self._last_progress_ms + _PROGRESS_INTERVAL_MS:
            self._last_progress_ms = now
            print(self.tally.progress_line((now - self._began) / 1000), flush=True)

    def _print_summary(self) -> None:
        """Print the sums, the coverage goals never reached, and the verdict."""
        tally, took_s = self.tally, max((self._clock.now_ms() - self._began) / 1000, 1e-3)
        how = "stopped" if self.is_stopped else "done"
        print(f"{how} after {took_s:.0f} s, seeds {self._first} to {tally.newest}: {tally.progress_line(took_s)}")
        print(f"{tally.steps:,} steps, {tally.checks:,} checks, {tally.elections:,} elections")
        if tally.idle:
            print(
                f"{tally.idle} more schedules do not count: fewer than {MIN_EFFECTS} partition states were written "
                "during their faults"
            )
        if self._tier.has_goals and (never := unreached_goals(tally.reached)):
            print(f"never reached, of {len(GOALS)} coverage goals: {'; '.join(never)}")
            if self.has_unreached_goals:
                print(
                    f"BLIND: {tally.done} schedules should reach each goal. Check the faults and workloads that lead "
                    "to it."
                )
        if tally.broken:
            print(
                f"BROKEN: {len(tally.broken)} of {tally.done} schedules violate an invariant. Run the first: "
                f"{self._replay}"
            )
        elif tally.done:
            print("every invariant held")
