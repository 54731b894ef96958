"""The simulation as a killer: the first seeds of a campaign, for so long.

Mutants of the controller and its ZooKeeper client meet the tier with stub brokers, all others the tier of whole nodes.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.mutants.children import Limits
from tests.mutants.killers import ROOT, Item, Outcome, SwitchContext
from tests.mutants.mutations import Mutant
from tests.mutants.results import KillerName

BUDGET_S: Final = 30.0
"""Of processor time, for a mutant that is not noticed."""
SEEDS: Final = {"controller": 260, "cluster": 24}
"""By tier, more than a campaign gets through in the budget: a mutated line is run by a part of them only."""
ROOMS_OF_CONTROLLER_TIER: Final = ("controller", "zk")


class Simulation:
    name: KillerName = "simulation"
    sources: Final = (ROOT / "src" / "klamm",)

    def prepare(self, item_count: int) -> None:
        """Nothing: tests and schedules start what they need."""

    def close(self) -> None:
        """Nothing to close."""

    def measure(self, switch_context: SwitchContext, directory: Path) -> list[Item]:
        from klamm.sim.campaign import silence_logging

        silence_logging()
        items = []
        for tier, count in SEEDS.items():
            for seed in range(1, count + 1):
                name = f"{tier} {seed}"
                switch_context(name)
                began = time.process_time()
                outcome = _run_schedule(name)
                cost_s = time.process_time() - began
                items.append(Item(name, cost_s, outcome.violation is None, str(outcome.digest)))
        return items

    def unmeasured(self) -> list[Item]:
        return [Item(f"{tier} {seed}", 0.0) for tier, count in SEEDS.items() for seed in range(1, count + 1)]

    def is_near(self, mutant: Mutant, item: str) -> bool:
        return False

    def ordered(self, mutant: Mutant, items: Sequence[Item]) -> list[Item]:
        tier = "controller" if mutant.room in ROOMS_OF_CONTROLLER_TIER else "cluster"
        of_tier = [item for item in items if item.name.startswith(f"{tier} ")]
        return sorted(of_tier, key=lambda item: int(item.name.partition(" ")[2]))

    def run(self, items: Sequence[Item], directory: Path) -> Outcome:
        from klamm.sim.campaign import silence_logging

        silence_logging()
        began, changed = time.process_time(), 0
        for n, item in enumerate(items):
            if time.process_time() - began > BUDGET_S:
                return Outcome("", n, changed)
            outcome = _run_schedule(item.name)
            if outcome.violation is not None:
                return Outcome(f"{item.name}: {outcome.violation[:200]}", n + 1, changed)
            changed += bool(item.digest) and str(outcome.digest) != item.digest
        return Outcome("", len(items), changed)

    def limits(self, items: Sequence[Item]) -> Limits:
        return Limits(2 * BUDGET_S, 100 * BUDGET_S)  # a loaded machine has little time for each process


def _run_schedule(name: str) -> Any:
    """The outcome of the schedule of a tier and a seed. The simulation is imported by children only."""
    from klamm.sim.campaign import TIERS

    tier, seed = name.split()
    return TIERS[tier].run_schedule(int(seed))
