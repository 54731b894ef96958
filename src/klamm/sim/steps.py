"""`python -m klamm.sim.steps`: run each scripted operation with each fault at each of its steps.

A run without faults counts the steps of an operation: ZooKeeper writes, control requests, and requests to the
controller. Then the operation runs again for every step and fault; afterwards everything is healed, and every invariant
must hold. The runs are the same each time and have numbers, so an interrupted campaign can be continued.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import structlog

from klamm.runtime.clock import RealClock
from klamm.runtime.cores import core_count, over_cores
from klamm.runtime.randomness import Rng
from klamm.runtime.signals import interrupted_by_stop_signals
from klamm.sim.cluster import Outcome, run_script
from klamm.sim.faults.injection_points import Step, StepKind
from klamm.sim.faults.step_faults import STEP_FAULTS, faults_of
from klamm.sim.scripts.operations import BEGINS_AT_S, OPERATIONS, script_of
from klamm.sim.scripts.script import ScheduledAction

_NO_STEP: Final = 1 << 30
_PROGRESS_INTERVAL_MS: Final = 5_000
_LOG_LEVEL: Final = 50


class StepRun(NamedTuple):
    """One run: an operation, a step given by kind and number, and the fault that hits it."""

    operation: str
    kind: StepKind
    number: int
    fault: str

    @property
    def action(self) -> ScheduledAction:
        """The action that injects the fault at the step."""
        return ScheduledAction(
            BEGINS_AT_S, "at step", {"kind": self.kind.value, "number": self.number, "what": self.fault}
        )

    def __str__(self) -> str:
        return f"{self.operation}: {self.fault} at {self.kind.value} {self.number}"


class StepResult(NamedTuple):
    """A run and the invariant it violated, or None."""

    run: StepRun
    violation: str | None


def clean_run(operation: str) -> tuple[Outcome, list[Step]]:
    """Run an operation without faults; return its outcome and the steps it took."""
    steps: list[Step] = []
    unharmed = StepRun(operation, StepKind.WRITE, _NO_STEP, next(iter(STEP_FAULTS)))
    outcome = run_script(script_of(operation, unharmed.action), watch=steps.append)
    return outcome, steps


def runs_of(operation: str) -> Iterator[StepRun]:
    """One run for every step of the operation and every fault that can occur at it."""
    _, steps = clean_run(operation)
    counts = Counter(step.kind for step in steps)
    for kind in StepKind:
        yield from (StepRun(operation, kind, n, f) for n in range(1, counts[kind] + 1) for f in faults_of(kind))


def sampled(runs: Iterable[StepRun], part: float) -> Iterator[StepRun]:
    """A random part of the runs, the same each time."""
    return (run for run in runs if Rng(str(run)).random() < part)


def run_step(run: StepRun) -> StepResult:
    """Run an operation with its fault."""
    return StepResult(run, run_script(script_of(run.operation, run.action)).violation)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and run the campaign; return the exit code."""
    parser = argparse.ArgumentParser(prog="klamm.sim.steps", description="Break operations at each of their steps.")
    parser.add_argument("--operation", nargs="*", choices=tuple(OPERATIONS), help="these alone")
    parser.add_argument("--after", type=int, default=0, help="skip this many runs, which are already done")
    parser.add_argument("--sample", type=float, default=1.0, help="the share of the runs to make, chosen at random")
    parser.add_argument("--cores", type=int, help="number of processor cores to use; default: all")
    parser.add_argument("--fault", nargs="*", choices=tuple(STEP_FAULTS), help="these alone")
    chosen = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_LOG_LEVEL))
    print(f"counting the steps of {len(names := chosen.operation or list(OPERATIONS))} operations", flush=True)
    wanted = chosen.fault or list(STEP_FAULTS)
    runs = [run for name in names for run in sampled(runs_of(name), chosen.sample) if run.fault in wanted]
    return Steps(runs, chosen.after).run_remaining(chosen.cores)


class Steps:
    """A campaign of all runs after the first `after`, with progress lines and a summary."""

    def __init__(self, runs: Sequence[StepRun], after: int) -> None:
        self._runs = runs
        self._after = after
        self._left = dict.fromkeys(runs[after:])
        self._broken: list[StepResult] = []
        self._clock = RealClock()
        self._began = self._last_progress_ms = self._clock.now_ms()

    def run_remaining(self, cores: int | None) -> int:
        """Run the runs that are not done; return the exit code.

        It is 1 if an invariant was violated, 130 if the user stopped it, else 0.
        """
        print(f"{len(self._left)} runs on {cores or core_count()} cores; press Ctrl-C to stop", flush=True)
        try:
            with interrupted_by_stop_signals():
                for result in over_cores(run_step, list(self._left), cores):
                    self._add_result(result)
        except KeyboardInterrupt:
            print(f"Interrupted. To continue, pass --after {self.all_done_before}.")
        self._print_summary()
        return 1 if self._broken else 130 if self._left else 0

    @property
    def all_done_before(self) -> int:
        """The number of the first run that is not done; some later runs may be done."""
        return next((n for n, run in enumerate(self._runs) if run in self._left), len(self._runs))

    def _add_result(self, result: StepResult) -> None:
        """Count a result; print its violation, and a progress line from time to time."""
        self._left.pop(result.run)
        if result.violation:
            self._broken.append(result)
            print(f"BROKEN {result.run}: {result.violation}", flush=True)
        if self._clock.now_ms() >= self._last_progress_ms + _PROGRESS_INTERVAL_MS:
            self._last_progress_ms = self._clock.now_ms()
            done, took_s = len(self._runs) - len(self._left), (self._last_progress_ms - self._began) / 1000
            pace = (done - self._after) / took_s
            so_far = f"{done} of {len(self._runs)} runs, {len(self._broken)} broken"
            print(
                f"{so_far}, {pace:.1f}/s, {len(self._left) / pace:.0f} s to go, at: {result.run.operation}", flush=True
            )

    def _print_summary(self) -> None:
        """Print the table of operations and faults, and the verdict."""
        done = [run for run in self._runs[self._after :] if run not in self._left]
        print(
            table(
                Counter((run.operation, run.fault) for run in done),
                Counter((r.run.operation, r.run.fault) for r in self._broken),
            )
        )
        for result in sorted(self._broken):
            print(f"BROKEN {result.run}: {result.violation}")
        operations = len({run.operation for run in done})
        print(
            f"{len(done)} runs of {operations} operations in {(self._clock.now_ms() - self._began) / 1000:.0f} s: ",
            end="",
        )
        print(f"{len(self._broken)} broken" if self._broken else "every invariant held")


def table(done: Counter[tuple[str, str]], broken: Counter[tuple[str, str]]) -> str:
    """A text table of operations and faults: how many runs, and how many of them violated an invariant."""
    faults = [f for f in STEP_FAULTS if any(fault == f for _, fault in done)]
    rows = [["", *faults]]
    for operation in dict.fromkeys(name for name, _ in done):
        cells = [(done[operation, f], broken[operation, f]) for f in faults]
        rows.append([operation, *(f"{ran} ({bad} broken)" if bad else str(ran) for ran, bad in cells)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(faults) + 1)]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


if __name__ == "__main__":
    raise SystemExit(main())
