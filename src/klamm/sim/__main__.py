"""`python -m klamm.sim`: schedules for some seconds, or one seed with its story, or made as small as it can be."""

import argparse
import gc
from collections.abc import Sequence
from typing import Final

import structlog

from klamm.runtime.clock import RealClock
from klamm.sim.cluster import Outcome, run_schedule
from klamm.sim.shrink import Shrinker, as_regression, as_test

_LOGGED: Final = 50
"""Critical: nothing in practice; the story tells more."""
_ENOUGH: Final = 10
"""Broken seeds after which nothing new is to be learnt."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="klamm.sim", description="Run simulated clusters from seeds.")
    parser.add_argument("--seconds", type=float, default=60, help="how long to go on with new seeds")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--schedules", type=int, default=1 << 30, help="how many seeds at most")
    parser.add_argument("--seed", type=int, help="run this one, and tell its story")
    parser.add_argument("--shrink", type=int, help="make this one, which breaks an invariant, as small as possible")
    parser.add_argument("--digests", type=int, help="print the digests of so many seeds, to compare processes by")
    chosen = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_LOGGED))
    if chosen.digests is not None:
        for seed in range(1, chosen.digests + 1):
            print(seed, run_schedule(seed).digest)
        return 0
    if chosen.seed is not None:
        return _replay(chosen.seed)
    if chosen.shrink is not None:
        return _shrink(chosen.shrink, chosen.seconds)
    return _campaign(chosen.first, chosen.seconds, chosen.schedules)


def _replay(seed: int) -> int:
    outcome = run_schedule(seed, tell=True)
    for line in outcome.story:
        print(line)
    print(f"{outcome.script.options}\ndigest {outcome.digest}, {outcome.steps} steps, {outcome.checks} checks")
    print(f"VIOLATION {outcome.violation}" if outcome.violation else "every invariant held")
    return bool(outcome.violation)


def _shrink(seed: int, seconds: float) -> int:
    outcome = run_schedule(seed)
    if outcome.violation is None:
        print(f"seed {seed}: every invariant held")
        return 0
    print(f"seed {seed}: {outcome.violation}", flush=True)
    print(reproducer(outcome, RealClock().now_ms() + seconds * 1000))
    return 1


def reproducer(found: Outcome, until_ms: float) -> str:
    """The smallest run found in time that breaks the same rule: as a test, and as an entry for the regressions."""
    clock = RealClock()
    shrinker = Shrinker(found, lambda: clock.now_ms() < until_ms)
    smallest, seed = shrinker.shrink(), found.script.options.seed
    before, after = len(found.script.happenings), len(smallest.script.happenings)
    told = f"# {before} happenings shrunk to {after} in {shrinker.runs} runs"
    return f"{told}\n\n{as_test(smallest, seed)}\n\n\n{as_regression(smallest, seed)}\n"


def _campaign(first: int, seconds: float, most: int) -> int:
    clock = RealClock()
    gc.freeze()
    began = told = clock.now_ms()
    broken: list[Outcome] = []
    count = steps = checks = elections = 0
    while count < most and len(broken) < _ENOUGH and (now := clock.now_ms()) < began + seconds * 1000:
        outcome = run_schedule(first + count)
        count, steps = count + 1, steps + outcome.steps
        checks, elections = checks + outcome.checks, elections + outcome.elections
        if outcome.violation:
            broken.append(outcome)
            print(f"seed {outcome.script.options.seed}: {outcome.violation}", flush=True)
            if len(broken) == 1:
                print(f"shrinking it, for the rest of the time at most\n{reproducer(outcome, began + seconds * 1000)}")
        if now >= told + 5_000:
            told = now
            print(f"{count} schedules, {len(broken)} broken", flush=True)
    took_s = max((clock.now_ms() - began) / 1000, 0.001)
    print(
        f"seeds {first} to {first + count - 1}: {count} schedules of 120 virtual seconds in {took_s:.0f} s"
        f" ({count / took_s:.1f}/s), {steps:,} steps, {checks:,} checks, {elections:,} elections, {len(broken)} broken"
    )
    if broken:
        print(f"replay the first with: make seed N={broken[0].script.options.seed}")
    return bool(broken)


if __name__ == "__main__":
    raise SystemExit(main())
