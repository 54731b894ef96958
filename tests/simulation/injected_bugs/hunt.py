"""How many schedules it takes to catch each mutant, and by which invariant; `make mutants`.

Each mutant runs from three first seeds, over all cores, until an invariant that belongs to its guard is violated.
"""

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import pytest
from tests.mutants.page import section_of
from tests.simulation.injected_bugs.hiding import HIDING
from tests.simulation.injected_bugs.mutant import Mutant
from tests.simulation.injected_bugs.table import MUTANTS

from klamm.runtime.clock import RealClock
from klamm.runtime.cores import core_count, over_cores
from klamm.runtime.signals import interrupted_by_stop_signals
from klamm.sim.campaign import silence_logging
from klamm.sim.cluster import Outcome, run_schedule, run_script
from klamm.sim.invariants.table import ALWAYS, AT_REST
from klamm.sim.scripts import shrink
from klamm.sim.scripts.shrink import Shrinker, violated_invariant

T = TypeVar("T")

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = ROOT / "docs" / "mutants.md"
KEPT: Final = ROOT / ".mutants.jsonl"
FIRST_SEEDS: Final = (10_000, 20_000, 30_000)
SHRINKING_RUNS: Final = 24
"""For each catch: enough to leave out most of what is not needed for it."""
NUMBERS: Final = {row.name: row.number for row in (*ALWAYS, *AT_REST)}
SURVIVES: Final = "**survives**"
UNEXPECTED_ERRORS: Final = str(NUMBERS["controllers_have_no_unexpected_errors"])
_BARS: Final = 8
"""In a row."""
_HEADING: Final = """# Mutants

Each mutant removes one guard from the code (`tests/simulation/injected_bugs/`). Then schedules of the simulation run
until one of the invariants that exist for this guard is violated. Numbers and tickets are those of bugs that Apache
Kafka had; letters are klamm's own; a `+` removes two guards of which each suffices alone. [Invariants](invariants.md)
are named by number. A violation counts only if the same seed, and the shrunk script made from it, pass without the
mutant. If a mutant survives, schedules without a violation prove nothing about its guard.

This page is written by `make mutants`. A row has the number of schedules needed, from one or three first seeds.
"Others" are other invariants that were violated earlier, and how often.

## Guards of production: controller, ZooKeeper client, registration

"""
_STUB_HEADING: Final = """
## Guards of the simulated broker

These guards are removed from `sim/nodes/replicas.py`, the stub of a broker. This shows that an invariant notices the
bug. It does not show that klamm's broker has the guard: its unit tests do.

"""
_COLUMNS: Final = """| # | ticket | what the mutant does | its invariants | violated | schedules needed | others |
|---|---|---|---|---|---|---|
"""


class Job(NamedTuple):
    mutant: int
    first: int
    most: int


class Found(NamedTuple):
    number: str
    first: int
    most: int
    schedules: int | None
    """How many it took; None if no invariant of the guard was violated."""
    violation: str
    actions: int
    """In the reproducer."""
    others: dict[str, int]
    """Other invariants that were violated before, and how often."""
    discounted: int
    """Catches that did not count: the seed breaks without the mutant, too, or its reproducer does."""


# ---- one mutant, from one first seed


def mutated(mutant: Mutant, run: Callable[[], T]) -> T:
    """Run a function with the mutant applied; mutants with state get a fresh one for each run."""
    with pytest.MonkeyPatch.context() as patch:
        mutant.apply(patch)
        return run()


def hunt(job: Job) -> Found:
    """Run schedules until the mutant is caught by an invariant that it names."""
    silence_logging()
    mutant = MUTANTS[job.mutant]
    others: Counter[str] = Counter()
    discounted = 0
    for seed in range(job.first, job.first + job.most):
        outcome = mutated(mutant, lambda seed=seed: run_schedule(seed))  # type: ignore[misc]
        if outcome.violation is None:
            continue
        if not is_clean(seed):
            discounted += 1
        elif (by := catcher(outcome.violation)) not in set(map(str, mutant.expected)):
            others[by] += 1
        elif (actions := reproduced(mutant, outcome)) is None:
            discounted += 1
        else:
            schedules = seed - job.first + 1
            return Found(
                mutant.number, job.first, job.most, schedules, outcome.violation, actions, dict(others), discounted
            )
    return Found(mutant.number, job.first, job.most, None, "", 0, dict(others), discounted)


@lru_cache(maxsize=1024)
def is_clean(seed: int) -> bool:
    """Whether the schedule of this seed breaks no invariant without a mutant."""
    return run_schedule(seed).violation is None


def reproduced(mutant: Mutant, caught: Outcome) -> int | None:
    """The number of actions in the shrunk script; None if the script also fails without the mutant."""
    shrinker = Shrinker(caught, lambda: shrinker.runs < SHRINKING_RUNS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shrink, "run_script", lambda script: mutated(mutant, lambda: run_script(script)))
        smallest = shrinker.shrink()
    return len(smallest.script.actions) if run_script(smallest.script).violation is None else None


def catcher(violation: str) -> str:
    """The number of the invariant that was violated, or the kind of error that ended the run."""
    name = violated_invariant(violation)
    return str(NUMBERS.get(name, name))


# ---- what is kept of earlier runs


def digest_of_sources() -> str:
    """A hash of klamm's sources and the injected bugs, to recognise saved results."""
    digest = hashlib.sha256()
    for path in sorted([*(ROOT / "src" / "klamm").rglob("*.py"), *Path(__file__).parent.glob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def kept(sources: str) -> list[Found]:
    """The saved results of runs with these sources."""
    lines = KEPT.read_text().splitlines() if KEPT.exists() else []
    return [Found(**entry["found"]) for entry in map(json.loads, lines) if entry["sources"] == sources]


def keep(sources: str, found: Found) -> None:
    """Save a result of a run with these sources."""
    with KEPT.open("a") as file:
        file.write(json.dumps({"sources": sources, "found": found._asdict()}) + "\n")


# ---- the page


def row(mutant: Mutant, found: Sequence[Found]) -> str:
    """The mutant's row of the page."""
    rules = ", ".join(map(str, mutant.expected))
    caught = [f for f in found if f.schedules is not None]
    by = ", ".join(dict.fromkeys(catcher(f.violation) for f in caught)) or SURVIVES
    needed = " / ".join(str(f.schedules or f"-, of {f.most}") for f in found)
    others = sum((Counter(f.others) for f in found), Counter[str]())
    earlier = ", ".join(f"{rule} ({times})" for rule, times in others.most_common())
    return f"| {mutant.number} | {mutant.ticket} | {mutant.what} | {rules} | {by} | {needed} | {earlier} |"


def rows_of(text: str) -> dict[str, str]:
    """The rows of a page, by the numbers of their mutants."""
    lines = [s for s in text.splitlines() if s.startswith("| ") and not s.startswith("| # |") and s.count("|") == _BARS]
    return {line.split("|")[1].strip(): line for line in lines}


def page(rows: dict[str, str]) -> str:
    """The page with these rows, in the order of the table; rows of removed mutants are left out."""
    known = [m for m in MUTANTS if m.number in rows]
    survivors = [m.number for m in known if SURVIVES in rows[m.number]]
    why = [f"- {n}: {_why(n)}." for n in survivors]
    told = "\n## Survivors, and which guard suffices alone\n\n" + "\n".join(why) + "\n" if why else ""
    product = "".join(rows[m.number] + "\n" for m in known if not m.is_of_the_stub)
    stub = "".join(rows[m.number] + "\n" for m in known if m.is_of_the_stub)
    return _HEADING + _COLUMNS + product + (_STUB_HEADING + _COLUMNS + stub if stub else "") + told


def _why(survivor: str) -> str:
    """The reason why this mutant survives, from the table of known survivors."""
    hiding = HIDING.get(survivor)
    return f"{hiding.behind}; {hiding.pair} removes both" if hiding else "the other guard is not known"


# ---- all of them


class Hunts:
    """Those that are done, of mutants and first seeds that were chosen."""

    def __init__(self, mutants: Sequence[int], seeds: int, most: int, sources: str) -> None:
        self._jobs = [Job(m, first, most) for m in mutants for first in FIRST_SEEDS[:seeds]]
        self._mutants = mutants
        self._sources = sources
        self._found: dict[tuple[str, int], Found] = {}

    def take_up(self, earlier: Sequence[Found]) -> None:
        """Adopt saved results of mutants that were caught or had at least as many schedules."""
        wanted = {(MUTANTS[j.mutant].number, j.first): j.most for j in self._jobs}
        for found in earlier:
            most = wanted.get((found.number, found.first), 0)
            if found.most >= most > 0 if found.schedules is None else found.schedules <= most:
                self._found[found.number, found.first] = found

    def left(self) -> list[Job]:
        """The jobs that are still to run."""
        return [j for j in self._jobs if (MUTANTS[j.mutant].number, j.first) not in self._found]

    def take(self, found: Found) -> None:
        """Add a result and save it."""
        keep(self._sources, found)
        self._found[found.number, found.first] = found

    @property
    def progress(self) -> str:
        """The progress line: jobs done and left."""
        return f"{len(self._found)}/{len(self._jobs)}"

    def rows(self) -> dict[str, str]:
        """The rows of mutants whose runs are complete."""
        return {m.number: row(m, found) for m, found in self._done()}

    def survivors(self) -> list[str]:
        """The numbers of mutants that no invariant caught."""
        return [m.number for m, found in self._done() if all(f.schedules is None for f in found)]

    def failing(self) -> list[str]:
        """The numbers of survivors with unexpected errors: what they patch may have changed since."""
        survivors = self.survivors()
        raised = {f.number for f in self._found.values() if UNEXPECTED_ERRORS in f.others}
        return [number for number in survivors if number in raised]

    def _done(self) -> Iterator[tuple[Mutant, list[Found]]]:
        """The mutants whose runs are complete, with their results."""
        for index in self._mutants:
            mutant = MUTANTS[index]
            keys = [(mutant.number, j.first) for j in self._jobs if j.mutant == index]
            if all(key in self._found for key in keys):
                yield mutant, [self._found[key] for key in keys]


def chosen_mutants(numbers: Sequence[str]) -> list[int]:
    """The indexes of the mutants with these numbers. Raises SystemExit for an unknown number."""
    if unknown := set(numbers) - {m.number for m in MUTANTS}:
        raise SystemExit(f"no such mutants: {', '.join(sorted(unknown))}")
    return [i for i, m in enumerate(MUTANTS) if not numbers or m.number in numbers]


def told(found: Found) -> str:
    """The progress line about one result."""
    mutant = next(m for m in MUTANTS if m.number == found.number)
    beside = f", {found.discounted} did not count" if found.discounted else ""
    beside += f", others violated: {found.others}" if found.others else ""
    caught = f"{found.schedules} schedules, {found.actions} actions, {found.violation[:150]}"
    return f"{mutant.number} {mutant.what}: {caught if found.schedules else f'{found.most} schedules, unseen'}{beside}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and run the hunt; return the exit code."""
    parser = argparse.ArgumentParser(prog="tests.simulation.injected_bugs.hunt", description="Is each guard missed?")
    parser.add_argument(
        "--only", nargs="*", default=(), metavar="N", help="numbers of mutants; all where none is given"
    )
    parser.add_argument("--most", type=int, default=300, help="schedules from each first seed")
    parser.add_argument("--seeds", type=int, default=3, help="first seeds, at most three")
    parser.add_argument("--cores", type=int, help="how many to use; all where it is not given")
    parser.add_argument("--anew", action="store_true", help="run again what is known already")
    parser.add_argument("--record", action="store_true", help=f"draw these rows of {PAGE.name}")
    chosen = parser.parse_args(arguments)
    sources = digest_of_sources()
    hunts = Hunts(chosen_mutants(chosen.only), chosen.seeds, chosen.most, sources)
    if not chosen.anew:
        hunts.take_up(kept(sources))
    is_over = _run(hunts, chosen.cores or core_count())
    if chosen.record:
        earlier = PAGE.read_text() if PAGE.exists() else ""
        generated = section_of(earlier)
        PAGE.write_text(page({**rows_of(earlier.removesuffix(generated)), **hunts.rows()}) + generated)
    print("\n".join(hunts.rows().values()))
    return verdict(hunts) if is_over else 130


def _run(hunts: Hunts, cores: int) -> bool:
    """Run the jobs that are left; False if the user stopped them."""
    clock = RealClock()
    began = clock.now_ms()
    print(f"{hunts.progress} are known already; Ctrl-C ends it, and the same again goes on", flush=True)
    try:
        with interrupted_by_stop_signals():
            for found in over_cores(hunt, hunts.left(), cores):
                hunts.take(found)
                print(f"{hunts.progress} after {(clock.now_ms() - began) / 1000:.0f} s: {told(found)}", flush=True)
    except KeyboardInterrupt:
        return False
    return True


def verdict(hunts: Hunts) -> int:
    """The exit code: 1 if a mutant survives that no other guard covers."""
    survivors = hunts.survivors()
    blind = [n for n in survivors if n not in HIDING or HIDING[n].pair in survivors]
    for number in survivors:
        print(f"SURVIVES {number}: {_why(number)}")
    for number in hunts.failing():
        print(f"FAILS {number}: it raises errors of its own; make it fit the code that it changes, and run it again")
    print(
        f"BLIND: nobody misses {', '.join(blind)}"
        if blind
        else "every removed guard is noticed, alone or together with the other one that suffices"
    )
    return int(bool(blind))


if __name__ == "__main__":
    raise SystemExit(main())
