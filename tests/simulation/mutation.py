"""`python -m tests.simulation.mutation`: how many schedules it takes to see each guard missing, and which rule sees it.

Each mutant runs from three first seeds, over all cores. A seed that breaks a rule without the mutant, too, is passed
over: it would prove nothing. `--record` draws the page of figures.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from tests.simulation.mutants import HIDING, MUTANTS, Mutant

from klamm.runtime.cores import core_count, over_cores
from klamm.sim.campaign import be_quiet
from klamm.sim.cluster import run_schedule
from klamm.sim.invariants.table import ALWAYS, AT_REST

FIRST_SEEDS: Final = (10_000, 20_000, 30_000)
PAGE: Final = Path(__file__).parents[2] / "docs" / "mutants.md"
NUMBERS: Final = {row.name: row.number for row in (*ALWAYS, *AT_REST)}
_HEADING: Final = """# Mutants

Guards of the controller that the simulation must see missing: each is taken out (`tests/simulation/mutants.py`), and
schedules run until a rule speaks. Numbers and tickets are those of bugs that Apache Kafka had; letters are ours.
"Caught by" has the invariants (see [invariants.md](invariants.md)) that spoke, from up to three first seeds; in
brackets those that were expected. No figure of schedules without a violation says anything of a rule whose mutant
survives.

Drawn by `make mutants`; at most {most} schedules were run from each first seed.

| # | ticket | guard taken out | caught by | schedules needed |
|---|---|---|---|---|
"""


class Job(NamedTuple):
    mutant: int
    first: int
    most: int


class Found(NamedTuple):
    job: Job
    schedules: int | None
    """How many it took; None where nobody saw it."""
    violation: str


def hunt(job: Job) -> Found:
    be_quiet()
    for seed in range(job.first, job.first + job.most):
        with pytest.MonkeyPatch.context() as patch:
            MUTANTS[job.mutant].apply(patch)
            violation = run_schedule(seed).violation
        if violation is not None and run_schedule(seed).violation is None:
            return Found(job, seed - job.first + 1, violation)
    return Found(job, None, "")


def catcher(violation: str) -> str:
    """The number of the invariant that spoke; an error that ended the run is told by its kind."""
    name = violation.partition(":")[0].partition("(")[0]
    return str(NUMBERS.get(name, name))


def row(mutant: Mutant, found: Sequence[Found]) -> str:
    expected = ", ".join(map(str, mutant.expected))
    caught = [f for f in found if f.schedules is not None]
    by = ", ".join(dict.fromkeys(catcher(f.violation) for f in caught)) or "**survives**"
    needed = " / ".join(str(f.schedules or "-") for f in found)
    return f"| {mutant.number} | {mutant.ticket} | {mutant.what} | {by} ({expected}) | {needed} |"


def page(rows: Sequence[str], survivors: Sequence[Mutant], most: int) -> str:
    hiding = [f"- {m.number}: {HIDING.get(m.number, 'nobody knows yet behind what')}." for m in survivors]
    why = "\n## Survivors, and what they hide behind\n\n" + "\n".join(hiding) + "\n" if hiding else ""
    return _HEADING.format(most=most) + "\n".join(rows) + "\n" + why


def chosen_mutants(names: Sequence[str]) -> list[int]:
    return [i for i, m in enumerate(MUTANTS) if not names or m.number in names]


def jobs(mutants: Sequence[int], seeds: int, most: int) -> Iterator[Job]:
    for first in FIRST_SEEDS[:seeds]:
        for mutant in mutants:
            yield Job(mutant, first, most)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.simulation.mutation", description=__doc__)
    parser.add_argument("names", nargs="*", help="numbers of mutants; all where none is given")
    parser.add_argument("--most", type=int, default=300, help="schedules from each first seed")
    parser.add_argument("--seeds", type=int, default=3, help="first seeds, at most three")
    parser.add_argument("--cores", type=int, help="how many to use; all where it is not given")
    parser.add_argument("--record", action="store_true", help=f"draw {PAGE.name}")
    chosen = parser.parse_args(arguments)
    mutants = chosen_mutants(chosen.names)
    results: dict[int, list[Found]] = {i: [] for i in mutants}
    began, count = time.monotonic(), len(mutants) * chosen.seeds
    for done, found in enumerate(
        over_cores(hunt, jobs(mutants, chosen.seeds, chosen.most), chosen.cores or core_count()), 1
    ):
        results[found.job.mutant].append(found)
        mutant = MUTANTS[found.job.mutant]
        told = f"{found.schedules} schedules, {found.violation[:150]}" if found.schedules else "nobody saw it"
        print(
            f"{done}/{count} after {time.monotonic() - began:.0f} s: {mutant.number} {mutant.what}: {told}", flush=True
        )
    rows = [row(MUTANTS[i], sorted(results[i], key=lambda f: f.job.first)) for i in mutants]
    print("\n".join(rows))
    if chosen.record:
        survivors = [MUTANTS[i] for i in mutants if all(f.schedules is None for f in results[i])]
        PAGE.write_text(page(rows, survivors, chosen.most))
    return int(any(all(f.schedules is None for f in found) for found in results.values()))


if __name__ == "__main__":
    raise SystemExit(main())
