"""`python -m klamm.sim`: run random schedules on all cores, replay one seed with its log, or shrink a failing one."""

import argparse
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

from klamm.runtime.clock import RealClock
from klamm.sim.campaign import CONTROLLER, TIERS, Campaign, Tier, silence_logging
from klamm.sim.cluster import Outcome
from klamm.sim.scripts.shrink import Shrinker, as_regression, as_test

_MIN_SHRINKING_S: Final = 20.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and run what it asks for; return the exit code."""
    parser = argparse.ArgumentParser(prog="klamm.sim", description="Run simulated clusters from seeds.")
    parser.add_argument("--seconds", type=float, default=60, help="run new seeds for this many seconds")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--schedules", type=int, default=1 << 30, help="run at most this many seeds")
    parser.add_argument(
        "--violations", type=int, default=1, help="stop when this many seeds have violated an invariant"
    )
    parser.add_argument("--cores", type=int, help="number of processor cores to use; default: all")
    parser.add_argument("--seed", type=int, help="run this seed and print what happens")
    parser.add_argument("--shrink", type=int, help="reduce the schedule of this seed, which violates an invariant")
    parser.add_argument("--digests", type=int, help="print the digests of this many seeds, to compare runs")
    parser.add_argument(
        "--tier", choices=TIERS, default=CONTROLLER.name, help="simulate controllers with stub brokers, or whole nodes"
    )
    chosen = parser.parse_args(arguments)
    tier = TIERS[chosen.tier]
    silence_logging()
    if chosen.digests is not None:
        for seed in range(chosen.first, chosen.first + chosen.digests):
            print(seed, tier.run_schedule(seed).digest, flush=True)
        return 0
    if chosen.seed is not None:
        return _replay(tier, chosen.seed)
    if chosen.shrink is not None:
        return _shrink(tier, chosen.shrink, chosen.seconds)
    campaign = Campaign(chosen.first, chosen.seconds, chosen.schedules, chosen.violations, chosen.cores, tier)
    status = campaign.run()
    if campaign.tally.broken and not campaign.is_stopped:
        seconds = max(campaign.seconds_left, _MIN_SHRINKING_S)
        print(f"the smallest schedule found within {seconds:.0f} s that violates the same invariant:", flush=True)
        _shrink(tier, campaign.first_broken, seconds)
    return status


def _replay(tier: Tier, seed: int) -> int:
    """Run one seed and print its log; the exit code is 1 if it violates an invariant."""
    print(describe_options(tier.options.of(seed)))
    outcome = tier.run_schedule(seed, with_story=True)
    for line in outcome.story:
        print(line)
    print(f"digest {outcome.digest}, {outcome.steps} steps, {outcome.checks} checks")
    print(f"VIOLATION {outcome.violation}" if outcome.violation else "every invariant held")
    return bool(outcome.violation)


def _shrink(tier: Tier, seed: int, seconds: float) -> int:
    """Run one seed, make its script as small as possible, and print the code that reproduces the violation."""
    outcome = tier.run_schedule(seed)
    if outcome.violation is None:
        print(f"seed {seed}: every invariant held")
        return 0
    print(f"seed {seed}: {outcome.violation}", flush=True)
    print(reproducer(tier, outcome, RealClock().now_ms() + seconds * 1000))
    return 1


def reproducer(tier: Tier, found: Outcome, until_ms: float) -> str:
    """The smallest failing run found in time, as a Python test and as an entry of the regressions file."""
    clock = RealClock()
    shrinker = Shrinker(found, lambda: clock.now_ms() < until_ms, tier.run_script)
    smallest, seed = shrinker.shrink(), found.script.options.seed
    before, after = len(found.script.actions), len(smallest.script.actions)
    summary = f"# {before} actions shrunk to {after} in {shrinker.runs} runs"
    return f"{summary}\n\n{as_test(smallest, seed)}\n\n\n{as_regression(smallest, seed, tier.name)}\n"


def describe_options(options: Any) -> str:
    """The options of a run as text, one line each."""
    values = {f.name: getattr(options, f.name) for f in fields(options)}
    return "\n".join(
        f"  {name:<20} {', '.join(map(str, v)) if isinstance(v, tuple) else v}" for name, v in values.items()
    )


if __name__ == "__main__":
    raise SystemExit(main())
