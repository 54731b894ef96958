"""`python -m klamm.sim.steps`: each scripted operation, broken in each way at each of its steps.

A clean run of an operation tells its steps: writes of nodes to ZooKeeper, orders of the controller, and what brokers
ask it. Then it is run again for every step and every fault; after that all is healed, and every invariant must hold.
Nothing is left to chance.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import structlog

from klamm.runtime.clock import RealClock
from klamm.runtime.cores import over_cores
from klamm.runtime.randomness import Dice
from klamm.sim.cluster import Outcome, run_script
from klamm.sim.operations import BEGINS_AT_S, OPERATIONS, script_of
from klamm.sim.script import Happening
from klamm.sim.step_faults import ONLY_FOR_REQUESTS, STEP_FAULTS
from klamm.sim.traps import Step, StepKind

_NEVER: Final = 1 << 30
_PROGRESS_MS: Final = 5_000
_LOGGED: Final = 50


class StepRun(NamedTuple):
    """An operation, and what befalls which of its steps."""

    operation: str
    kind: StepKind
    number: int
    fault: str

    @property
    def happening(self) -> Happening:
        return Happening(BEGINS_AT_S, "at step", {"kind": self.kind.value, "number": self.number, "what": self.fault})

    def __str__(self) -> str:
        return f"{self.operation}: {self.fault} at {self.kind.value} {self.number}"


class StepResult(NamedTuple):
    run: StepRun
    violation: str | None


def clean_run(operation: str) -> tuple[Outcome, list[Step]]:
    """Without a fault, and which steps it took."""
    steps: list[Step] = []
    unharmed = StepRun(operation, StepKind.WRITE, _NEVER, next(iter(STEP_FAULTS)))
    outcome = run_script(script_of(operation, unharmed.happening), watch=steps.append)
    return outcome, steps


def runs_of(operation: str) -> Iterator[StepRun]:
    """Every step of the operation with every fault."""
    _, steps = clean_run(operation)
    counts = Counter(step.kind for step in steps)
    for kind in StepKind:
        faults = [f for f in STEP_FAULTS if kind is not StepKind.WRITE or f not in ONLY_FOR_REQUESTS]
        yield from (StepRun(operation, kind, n, f) for n in range(1, counts[kind] + 1) for f in faults)


def sampled(runs: Iterable[StepRun], part: float) -> Iterator[StepRun]:
    """The same ones each time."""
    return (run for run in runs if Dice(str(run)).random() < part)


def run_step(run: StepRun) -> StepResult:
    return StepResult(run, run_script(script_of(run.operation, run.happening)).violation)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="klamm.sim.steps", description="Break operations at each of their steps.")
    parser.add_argument("--operation", choices=tuple(OPERATIONS), help="this one alone")
    parser.add_argument("--sample", type=float, default=1.0, help="which part of the runs, chosen by dice")
    parser.add_argument("--cores", type=int, help="how many to use; all where it is not given")
    chosen = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_LOGGED))
    names = [chosen.operation] if chosen.operation else list(OPERATIONS)
    runs = [run for name in names for run in sampled(runs_of(name), chosen.sample)]
    return _campaign(runs, chosen.cores)


def _campaign(runs: Sequence[StepRun], cores: int | None) -> int:
    clock = RealClock()
    began = told = clock.now_ms()
    done: Counter[tuple[str, str]] = Counter()
    broken: list[StepResult] = []
    for result in over_cores(run_step, runs, cores):
        done[result.run.operation, result.run.fault] += 1
        if result.violation:
            broken.append(result)
            print(f"{result.run}: {result.violation}", flush=True)
        if clock.now_ms() >= told + _PROGRESS_MS:
            told = clock.now_ms()
            print(f"{done.total()} of {len(runs)} runs, {len(broken)} broken", flush=True)
    print(table(done, Counter((r.run.operation, r.run.fault) for r in broken)))
    took_s = (clock.now_ms() - began) / 1000
    print(f"{done.total()} runs in {took_s:.0f} s, {len(broken)} broken")
    return bool(broken)


def table(done: Counter[tuple[str, str]], broken: Counter[tuple[str, str]]) -> str:
    """Operations by faults: runs, and where some broke an invariant, how many of them."""
    faults = [f for f in STEP_FAULTS if any(fault == f for _, fault in done)]
    rows = [["", *faults]]
    for operation in dict.fromkeys(name for name, _ in done):
        cells = [(done[operation, f], broken[operation, f]) for f in faults]
        rows.append([operation, *(f"{ran} ({bad} broken)" if bad else str(ran) for ran, bad in cells)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(faults) + 1)]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


if __name__ == "__main__":
    raise SystemExit(main())
