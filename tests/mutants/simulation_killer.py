"""The simulation as a killer: the first seeds of a campaign, for so long."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.mutants.children import Limits
from tests.mutants.killers import ROOT, Item, Outcome, SwitchContext
from tests.mutants.mutations import Mutant
from tests.mutants.results import KillerName

BUDGET_S: Final = 30.0
"""Of processor time, for a mutant that is not noticed."""
SEEDS: Final = 130
"""As many as a campaign gets through in the budget on a usual machine."""


class Simulation:
    name: KillerName = "simulation"
    sources: Final = (ROOT / "src" / "klamm",)

    def prepare(self, item_count: int) -> None:
        """Nothing: tests and schedules start what they need."""

    def close(self) -> None:
        """Nothing to close."""

    def measure(self, switch_context: SwitchContext, directory: Path) -> list[Item]:
        from klamm.sim.campaign import silence_logging
        from klamm.sim.cluster import run_schedule

        silence_logging()
        items = []
        for seed in range(1, SEEDS + 1):
            switch_context(str(seed))
            began = time.process_time()
            outcome = run_schedule(seed)
            cost_s = time.process_time() - began
            items.append(Item(str(seed), cost_s, outcome.violation is None, str(outcome.digest)))
        return items

    def is_near(self, mutant: Mutant, item: str) -> bool:
        return False

    def ordered(self, mutant: Mutant, items: Sequence[Item]) -> list[Item]:
        return sorted(items, key=lambda item: int(item.name))

    def run(self, items: Sequence[Item], directory: Path) -> Outcome:
        from klamm.sim.campaign import silence_logging
        from klamm.sim.cluster import run_schedule

        silence_logging()
        began, changed = time.process_time(), 0
        for n, item in enumerate(items):
            if time.process_time() - began > BUDGET_S:
                return Outcome("", n, changed)
            outcome = run_schedule(int(item.name))
            if outcome.violation is not None:
                return Outcome(f"seed {item.name}: {outcome.violation[:200]}", n + 1, changed)
            changed += str(outcome.digest) != item.digest
        return Outcome("", len(items), changed)

    def limits(self, items: Sequence[Item]) -> Limits:
        return Limits(2 * BUDGET_S, 20 * BUDGET_S)
