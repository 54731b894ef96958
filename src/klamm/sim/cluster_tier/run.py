"""Running a schedule of the cluster tier from its seed or script to the end."""

from typing import Final

from klamm.sim.cluster import Outcome
from klamm.sim.cluster_tier.cluster import ClusterTier
from klamm.sim.cluster_tier.options import Options, write_script
from klamm.sim.cluster_tier.watch import unexpected_errors
from klamm.sim.loop import SimulatedLoop
from klamm.sim.scheduled_run import Violation
from klamm.sim.scripts.script import Script

_MAX_STEPS: Final = 400_000


def run_schedule(seed: int, with_story: bool = False) -> Outcome:
    """Run the schedule of a seed; with `with_story` keep its log."""
    return run_script(write_script(Options.of(seed)), with_story)


def run_script(script: Script, with_story: bool = False) -> Outcome:
    """Run a script to its end; a violation, error, deadlock or overrun is in `violation` of the result."""
    loop = SimulatedLoop(script.options.seed, script.options.policy)
    cluster = ClusterTier(script, loop, records_story=with_story)
    violation = None
    with unexpected_errors(cluster.on_mistake):
        try:
            loop.run(cluster.run(), limit_s=1_000, max_steps=_MAX_STEPS)
        except Exception as error:  # whatever went wrong is what we look for
            violation = str(error) if isinstance(error, Violation) else repr(error)
    action_log = [f"{at:9.3f}  {what}" for at, what in cluster.story if isinstance(what, str)] if with_story else []
    return Outcome(
        script._replace(actions=cluster.performed),
        violation,
        loop.digest,
        loop.steps,
        cluster.checks,
        cluster.history.controllers.epoch,
        cluster.effects,
        loop.now,
        {
            "records lost by power, as no promise forbids": cluster.tier.lost,
            "records removed by compaction": cluster.tier.removed_by_compaction,
            "logs moved to another directory": cluster.tier.logs_replaced,
            "reads of the compacted topic": cluster.tier.tables_read,
            "records read from followers": cluster.tier.read_from_followers,
        },
        action_log,
        action_log,
        b"",
    )
