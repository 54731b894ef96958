"""Single steps that go wrong: a write to ZooKeeper, an order, a request to the controller."""

import itertools

from klamm.sim.faults.aim import victim
from klamm.sim.stage import Draw, Stage
from klamm.sim.step_faults import STEP_FAULTS
from klamm.sim.traps import Step, StepKind
from klamm.sim.zookeeper.ensemble import Loss


def lose_answer(stage: Stage, draw: Draw) -> None:
    """The connection to ZooKeeper breaks around the next write of a node; the write happened, or did not."""
    number, _ = victim(stage, draw)
    loss = Loss(draw("loss", lambda dice: dice.choice([loss.value for loss in Loss])))

    def trap(step: Step) -> Loss | None:
        if step.kind is not StepKind.WRITE or step.actor != number:
            return None
        stage.traps.remove(trap)
        stage.tell(f"node {number} loses its connection {loss.value} writing {step.what}")
        return loss

    stage.traps.set(trap)


def at_step(stage: Stage, draw: Draw) -> None:
    """Something befalls whoever takes the n-th step from now on: a write to ZooKeeper, or an order to a broker."""
    kind = StepKind(draw("kind", lambda dice: dice.choice([kind.value for kind in StepKind])))
    number = draw("number", lambda dice: dice.randint(1, 20))
    what = draw("what", lambda dice: dice.choice(tuple(STEP_FAULTS)))
    count = itertools.count(1)

    def trap(step: Step) -> Loss | None:
        if step.kind is not kind or not step.actor or next(count) != number:
            return None
        stage.traps.remove(trap)
        stage.tell(f"{what} as {kind.value} {number} is due: {step.what} by node {step.actor}")
        return STEP_FAULTS[what](stage, step)

    stage.traps.set(trap)
