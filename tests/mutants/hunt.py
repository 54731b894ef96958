"""Ask the killers about each mutant of a sample, and keep their verdicts."""

from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import sha256
from itertools import islice, zip_longest
from pathlib import Path
from typing import NamedTuple

from tests.mutants.children import Ended, in_child
from tests.mutants.importing import install
from tests.mutants.judge_killer import Judge
from tests.mutants.killers import Item, Killer, Outcome
from tests.mutants.maps import Map, digest_of, map_of, newest_change
from tests.mutants.mutations import Mutant
from tests.mutants.results import KILLED, KILLERS, NOT_REACHED, SURVIVED, KillerName, Results, Verdict
from tests.mutants.simulation_killer import Simulation
from tests.mutants.unit_killer import UnitTests


class SourcesChanged(Exception):
    """The tree is not the one that the run began with."""


class Progress(NamedTuple):
    mutant: Mutant
    verdict: Verdict
    is_new: bool


def sampled(mutants: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """As many of each room, in turn; a larger sample of the same seed begins with a smaller one."""
    shuffled = sorted(mutants, key=lambda mutant: sha256(f"{seed}:{mutant.id}".encode()).digest())
    rooms: dict[str, list[Mutant]] = {mutant.room: [] for mutant in mutants}
    for mutant in shuffled:
        rooms[mutant.room].append(mutant)
    in_turn = (mutant for turn in zip_longest(*rooms.values()) for mutant in turn if mutant is not None)
    return list(islice(in_turn, count))


class Hunt:
    """Asks killers, each about mutants that it has not seen in this tree."""

    def __init__(
        self, killers: Sequence[KillerName], results: Results, until_killed: bool, is_mapped: bool = True
    ) -> None:
        """Without maps each mutant meets the first items of a killer, also those that do not run its line."""
        self._killers = [_killer(name) for name in killers]
        self._digests = {name: digest_of(_killer(name).sources) for name in KILLERS}
        self._sources = [path for name in KILLERS for path in _killer(name).sources]
        self._changed_ns = newest_change(self._sources)
        self._results = results
        self._until_killed = until_killed
        self._is_mapped = is_mapped
        self._maps: dict[KillerName, Map] = {}

    def check_sources(self) -> None:
        """Verdicts of one run are about one tree. Raises SourcesChanged."""
        if newest_change(self._sources) != self._changed_ns:
            raise SourcesChanged("Sources or tests changed during the run. Run the same command again: it goes on.")

    def verdicts(self, mutants: Sequence[Mutant]) -> Iterator[Progress]:
        for mutant in mutants:
            for killer in self._killers:
                known = self.known(mutant, killer.name)
                verdict = known or self._ask(mutant, killer)
                if known is None:
                    self._results.add(verdict)
                yield Progress(mutant, verdict, known is None)
                if verdict.is_kill and self._until_killed:
                    break

    def known(self, mutant: Mutant, killer: KillerName) -> Verdict | None:
        is_asked = any(each.name == killer for each in self._killers)
        tree = self._digests[killer] if is_asked else None
        return self._results.get(mutant, killer, tree)

    def close(self) -> None:
        for killer in self._killers:
            killer.close()

    def _ask(self, mutant: Mutant, killer: Killer) -> Verdict:
        items = killer.ordered(mutant, self._items_for(mutant, killer))
        verdict = partial(Verdict, mutant.id, mutant.after, killer.name)
        digests = mutant.code, self._digests[killer.name]
        if not items:
            return verdict(NOT_REACHED, "", 0, 0, 0.0, *digests)
        killer.prepare(len(items))
        self.check_sources()
        outcome, cpu_s = in_child(partial(_run_mutated, mutant, killer, items), killer.limits(items))
        if isinstance(outcome, Ended):
            outcome = Outcome(outcome.why, len(items))
        what = KILLED if outcome.failed else SURVIVED
        return verdict(what, outcome.failed, outcome.items_run, outcome.changed, round(cpu_s, 2), *digests)

    def _items_for(self, mutant: Mutant, killer: Killer) -> Sequence[Item]:
        """The items that run the mutated line, or without a map all that are known without one."""
        if not self._is_mapped and (items := killer.unmeasured()):
            return items
        if killer.name not in self._maps:
            self._maps[killer.name] = map_of(killer)
        return self._maps[killer.name].covering(mutant)


def _killer(name: KillerName) -> Killer:
    kinds: dict[KillerName, type[Killer]] = {"unit": UnitTests, "simulation": Simulation, "judge": Judge}
    return kinds[name]()


def _run_mutated(mutant: Mutant, killer: Killer, items: Sequence[Item], directory: Path) -> Outcome:
    """In a child: import everything with the mutant, and run the items."""
    install(mutant)
    try:
        __import__(mutant.module)
    except Exception as error:
        return Outcome(f"the module cannot be imported: {error!r}"[:200], 0)
    return killer.run(items, directory)
