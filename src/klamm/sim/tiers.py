"""The tiers of the simulation: what is real in each, and how its schedules are run."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from klamm.sim import cluster
from klamm.sim.cluster import Outcome
from klamm.sim.cluster_tier import run
from klamm.sim.cluster_tier.options import Options as ClusterOptions
from klamm.sim.scripts.options import Options
from klamm.sim.scripts.script import Script


class Tier(NamedTuple):
    name: str
    options: Any
    """The class of its options."""
    run_schedule: Callable[..., Outcome]
    """By seed."""
    run_script: Callable[[Script], Outcome]
    has_goals: bool
    """Whether a long campaign must reach each of the coverage goals."""


CONTROLLER: Final = Tier("controller", Options, cluster.run_schedule, cluster.run_script, has_goals=True)
CLUSTER: Final = Tier("cluster", ClusterOptions, run.run_schedule, run.run_script, has_goals=False)
TIERS: Final = {tier.name: tier for tier in (CONTROLLER, CLUSTER)}
