"""Which tests, schedules and scripts run which lines: what does not run a mutated line cannot notice it.

A map is made once for a tree, with a coverage context for each item. Items that fail without a mutant are left out.
"""

import hashlib
import json
from collections.abc import Iterable
from functools import lru_cache, partial
from pathlib import Path
from typing import Final, NamedTuple

from coverage import Coverage, CoverageData
from tests.mutants.children import Ended, Limits, in_child
from tests.mutants.killers import Item, Killer
from tests.mutants.mutations import ROOMS, SOURCES, Mutant

ROOT: Final = SOURCES.parents[1]
DIRECTORY: Final = ROOT / ".mutants"
_LIMITS: Final = Limits(cpu_s=3_600, wall_s=4 * 3_600)


class Reach(NamedTuple):
    """The items that run a file's lines."""

    by_line: dict[int, frozenset[str]]
    by_file: frozenset[str]
    at_import: frozenset[int]
    """Lines that ran while modules were imported."""


class Map:
    def __init__(self, killer: Killer, data_path: Path, items: dict[str, Item]) -> None:
        self._killer = killer
        self.items = items
        self._data = CoverageData(str(data_path))
        self._data.read()
        self._reach = lru_cache(maxsize=512)(self._read_reach)

    def covering(self, mutant: Mutant) -> list[Item]:
        """Items that run the mutated statement; of what runs at import, those that run anything of its file."""
        reach = self._reach(mutant.file)
        lines = range(mutant.lines[0], mutant.lines[1] + 1)
        names = frozenset().union(*(reach.by_line.get(line, ()) for line in lines))
        if mutant.at_import or not reach.at_import.isdisjoint(lines):
            names = reach.by_file | {name for name in self.items if self._killer.is_near(mutant, name)}
        return [item for name, item in self.items.items() if name in names]

    def _read_reach(self, file: str) -> Reach:
        by_line = self._data.contexts_by_lineno(str(SOURCES / file))
        known = {line: frozenset(names) & self.items.keys() for line, names in by_line.items()}
        in_functions = {line: names for line, names in known.items() if "" not in by_line[line]}
        at_import = frozenset(line for line, names in by_line.items() if "" in names)
        return Reach(known, frozenset().union(*(in_functions or known).values()), at_import)


def map_of(killer: Killer) -> Map:
    """The map of this tree; it is made where there is none."""
    data = DIRECTORY / f"{killer.name}-{digest_of(killer.sources)}"
    index = data.with_suffix(".json")
    if not index.exists():
        DIRECTORY.mkdir(exist_ok=True)
        for old in DIRECTORY.glob(f"{killer.name}-*"):
            old.unlink()
        print(f"measuring what each item of {killer.name} runs; once for a tree", flush=True)
        killer.prepare(0)
        made, cpu_s = in_child(partial(_measure, killer, data), _LIMITS)
        if isinstance(made, Ended):
            raise RuntimeError(f"cannot measure {killer.name}: {made.why}")
        left_out = sum(not item.passes for item in made)
        if 2 * left_out > len(made):
            raise RuntimeError(
                f"{left_out} of {len(made)} items of {killer.name} fail without a mutant: run its tests."
            )
        index.write_text(json.dumps(made))
        print(f"{len(made)} items of {killer.name}, {left_out} fail without a mutant; {cpu_s:.0f} s", flush=True)
    items = [Item(*each) for each in json.loads(index.read_text())]
    return Map(killer, data, {item.name: item for item in items if item.passes})


def _measure(killer: Killer, data: Path, directory: Path) -> list[Item]:
    """Run every item in a coverage context of its own."""
    rooms = [f"klamm.{room}" for room in ROOMS]
    coverage = Coverage(data_file=str(data), source_pkgs=rooms, config_file=False, messages=False)
    coverage.set_option("run:disable_warnings", ["module-not-measured", "no-data-collected", "module-not-imported"])
    coverage.start()
    try:
        return killer.measure(coverage.switch_context, directory)
    finally:
        coverage.stop()
        coverage.save()


def newest_change(sources: Iterable[Path]) -> int:
    """When a source was last changed, in nanoseconds."""
    paths = [path for source in sources for path in (source.rglob("*.py") if source.is_dir() else [source])]
    return max(path.stat().st_mtime_ns for path in paths)


def digest_of(sources: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for source in sources:
        for path in sorted(source.rglob("*.py") if source.is_dir() else [source]):
            digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]
