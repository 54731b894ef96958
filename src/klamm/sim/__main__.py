"""`python -m klamm.sim`: schedules for some seconds, or one seed with its story."""

import argparse
import gc
from collections.abc import Sequence
from typing import Final

import structlog

from klamm.runtime.clock import RealClock
from klamm.sim.cluster import Outcome, run_schedule

_LOGGED: Final = 50
"""Critical: nothing in practice; the story tells more."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="klamm.sim", description="Run simulated clusters from seeds.")
    parser.add_argument("--seconds", type=float, default=60, help="how long to go on with new seeds")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--schedules", type=int, default=1 << 30, help="how many seeds at most")
    parser.add_argument("--seed", type=int, help="run this one, and tell its story")
    parser.add_argument("--digests", type=int, help="print the digests of so many seeds, to compare processes by")
    chosen = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_LOGGED))
    if chosen.digests is not None:
        for seed in range(1, chosen.digests + 1):
            print(seed, run_schedule(seed).digest)
        return 0
    if chosen.seed is not None:
        return _replay(chosen.seed)
    return _campaign(chosen.first, chosen.seconds, chosen.schedules)


def _replay(seed: int) -> int:
    outcome = run_schedule(seed, tell=True)
    for line in outcome.story:
        print(line)
    print(f"{outcome.script.options}\ndigest {outcome.digest}, {outcome.steps} steps, {outcome.checks} checks")
    print(f"VIOLATION {outcome.violation}" if outcome.violation else "every invariant held")
    return bool(outcome.violation)


def _campaign(first: int, seconds: float, most: int) -> int:
    clock = RealClock()
    gc.freeze()
    began = told = clock.now_ms()
    broken: list[Outcome] = []
    count = steps = checks = elections = 0
    while count < most and (now := clock.now_ms()) < began + seconds * 1000:
        outcome = run_schedule(first + count)
        count, steps = count + 1, steps + outcome.steps
        checks, elections = checks + outcome.checks, elections + outcome.elections
        if outcome.violation:
            broken.append(outcome)
            print(f"seed {outcome.script.options.seed}: {outcome.violation}", flush=True)
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
