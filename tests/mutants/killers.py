"""What may notice a mutant: the unit tests, the simulation, the comparison with Apache Kafka. Each is asked alone.

A killer runs in a child process, in which none of the mutated rooms is imported before. It gets the items that run the
mutated line, and stops at the first one that fails.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from tests.mutants.children import Limits
from tests.mutants.mutations import SOURCES, Mutant
from tests.mutants.results import KillerName

ROOT: Final = SOURCES.parents[1]
TESTS: Final = ROOT / "tests"
SwitchContext = Callable[[str], object]


class Item(NamedTuple):
    """A unit test, a seed or a script."""

    name: str
    cost_s: float
    passes: bool = True
    """Without a mutant."""
    digest: str = ""
    """Of a seed: what its run comes to without a mutant."""


class Outcome(NamedTuple):
    failed: str
    """The first item that failed, and why; empty where none did."""
    items_run: int
    changed: int = 0
    """Items that ran otherwise than without the mutant, and did not fail."""


class Killer(Protocol):
    @property
    def name(self) -> KillerName: ...

    @property
    def sources(self) -> Sequence[Path]:
        """All that its verdicts depend on."""
        ...

    def prepare(self, item_count: int) -> None:
        """Have ready, in the parent process, what children that run so many items need."""
        ...

    def close(self) -> None: ...

    def measure(self, switch_context: SwitchContext, directory: Path) -> list[Item]:
        """Run all items, each in its context."""
        ...

    def unmeasured(self) -> list[Item]:
        """All items that are known without running them; none where they have to be collected."""
        ...

    def is_near(self, mutant: Mutant, item: str) -> bool:
        """Whether the item may notice a change of what runs at import, although it runs no function of the file."""
        ...

    def ordered(self, mutant: Mutant, items: Sequence[Item]) -> list[Item]:
        """Those to run, first those that fail soonest."""
        ...

    def run(self, items: Sequence[Item], directory: Path) -> Outcome: ...

    def limits(self, items: Sequence[Item]) -> Limits: ...
