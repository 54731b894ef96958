"""How many schedules a core simulates in a second, for seeds that stay the same: `python -m benchmarks.simulation`.

Seeds differ tenfold in what they cost, so two versions are compared over the same ones. Where the digest of all runs is
the same, both did the same work; where it is not, steps tell how much. `--profile` says where the time goes: by folder
and by function, without what they call. Run it alone: CPU seconds grow by a third where neighbours share the caches.
"""

import argparse
import cProfile
import gc
import pstats
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

from klamm.sim.campaign import GC_THRESHOLD_OBJECTS, Report, run_and_report, silence_logging

FIRST = 500_001
SEEDS = 60
ROUNDS = 3
SCHEDULE_S = 120
"""The length that rates are told for; schedules are 125 and 155 virtual seconds long."""
FUNCTIONS = 40


def measure(seeds: Sequence[int], rounds: int) -> list[list[Report]]:
    """The reports of these seeds, for each round."""
    return [[run_and_report(seed) for seed in seeds] for _ in range(rounds)]


def rates_text(rounds: Sequence[Sequence[Report]]) -> str:
    """Each seed counts with its fastest round, because the other rounds were slowed by other processes."""
    runs = rounds[0]
    cpu_s = sum(min(r.cpu_s for r in same) for same in zip(*rounds, strict=True))
    virtual_s, steps = sum(r.virtual_s for r in runs), sum(r.steps for r in runs)
    digest = blake2b("".join(r.digest for r in runs).encode(), digest_size=8).hexdigest()
    broken = [str(r.seed) for r in runs if r.violation is not None]
    return (
        f"{len(runs)} schedules, {cpu_s:.2f} core-seconds: {len(runs) / cpu_s:.1f} per core-second,"
        f" {virtual_s / SCHEDULE_S / cpu_s:.1f} of {SCHEDULE_S} virtual seconds each\n"
        f"a schedule has {virtual_s / len(runs):.0f} virtual seconds, {steps / len(runs):,.0f} steps of"
        f" {cpu_s / steps * 1e6:.1f} us, {sum(r.checks for r in runs) / len(runs):,.0f} checks\n"
        f"{len(broken)} broken{': seeds ' + ' '.join(broken) if broken else ''}; digest of all {digest}"
    )


def profile(seeds: Sequence[int]) -> None:
    """Print own time by folder, then by function; the profiler doubles all times, those of small functions most."""
    profiler = cProfile.Profile()
    profiler.runcall(measure, seeds, 1)
    rows = pstats.Stats(profiler).stats.items()  # type: ignore[attr-defined]
    whole = sum(own for _, (_, _, own, _, _) in rows)
    folders: Counter[str] = Counter()
    for (file, _, _), (_, _, own, _, _) in rows:
        folders[Path(file).parent.name or "built in"] += own
    for folder, own in folders.most_common(15):
        print(f"{100 * own / whole:5.1f} %  {folder}/")
    print("\n  own   with callees  calls a schedule")
    for (file, line, name), (_, calls, own, total, _) in sorted(rows, key=lambda row: -row[1][2])[:FUNCTIONS]:
        where = f"{Path(file).parent.name}/{Path(file).name}:{line} " if line else ""
        print(f"{100 * own / whole:5.2f} % {100 * total / whole:6.1f} % {calls / len(seeds):12,.0f}  {where}{name}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.simulation", description="The pace of the simulation.")
    parser.add_argument("--first", type=int, default=FIRST)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--profile", action="store_true")
    chosen = parser.parse_args()
    silence_logging()
    run_and_report(chosen.first)  # compiles the codecs
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD_OBJECTS, 10, 100)
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    if chosen.profile:
        profile(seeds)
    else:
        print(rates_text(measure(seeds, chosen.rounds)))


if __name__ == "__main__":
    main()
