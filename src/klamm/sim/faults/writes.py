"""Single steps that go wrong: a write to ZooKeeper, an order, a request to the controller."""

import itertools
from collections.abc import Callable
from typing import Final

from klamm.controller.events import AlterPartitionReceived
from klamm.sim.faults.aim import victim
from klamm.sim.stage import Draw, Stage, later
from klamm.sim.step_faults import STEP_FAULTS
from klamm.sim.traps import Step, StepKind
from klamm.sim.zookeeper.ensemble import BREAKS, Loss
from klamm.zk.acl import OPEN_ACL, Acl, Permission
from klamm.zk.znodes import DELETE_TOPICS, ISR_CHANGES, TOPICS

FORBIDDEN: Final = (ISR_CHANGES, TOPICS, DELETE_TOPICS)
"""What a new controller must read."""
_UNREADABLE: Final = (Acl(Permission.ALL & ~Permission.READ, "world", "anyone"),)


def lose_answer(stage: Stage, draw: Draw) -> None:
    """The connection to ZooKeeper breaks around the next write of a node; the write happened, or did not."""
    number, _ = victim(stage, draw)
    loss = Loss(draw("loss", lambda dice: dice.choice([loss.value for loss in BREAKS])))

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


def lose_first_states(stage: Stage, draw: Draw) -> None:
    """The connection breaks when the next partitions got their first leaders: they have them, the answer is lost."""
    left = draw("left", lambda dice: dice.randint(1, 3))
    _lose_answers(stage, left, "its first states were written", lambda step: _creates_states(stage, step))


def lose_isr_changes(stage: Stage, draw: Draw) -> None:
    """The connection breaks when the next changes of ISRs, as leaders ask for them, are written: the answer is lost."""
    left = draw("left", lambda dice: dice.randint(1, 6))
    _lose_answers(stage, left, "its ISR change was written", lambda step: _changes_isrs(stage, step))


def _lose_answers(stage: Stage, left: int, what: str, is_meant: Callable[[Step], bool]) -> None:
    """Of so many writes of nodes that are meant."""

    def trap(step: Step) -> Loss | None:
        nonlocal left
        if step.kind is not StepKind.WRITE or not step.actor or not is_meant(step):
            return None
        left -= 1
        if not left:
            stage.traps.remove(trap)
        stage.tell(f"node {step.actor} is not told that {what}: {step.what}")
        return Loss.AFTER

    stage.traps.set(trap)


def _creates_states(stage: Stage, step: Step) -> bool:
    return any(path.endswith("/state") and stage.tree.get(path) is None for path in step.what.split())


def _changes_isrs(stage: Stage, step: Step) -> bool:
    """It is written by a controller that is busy with an AlterPartition."""
    broker = stage.nodes[step.actor].broker
    doing = stage.history.doing.get((broker.number, broker.incarnation))
    return doing is not None and isinstance(doing.event, AlterPartitionReceived) and "/state" in step.what


def forbid_reading(stage: Stage, draw: Draw) -> None:
    """The next controller may for a while not read what it needs: its session lives, and its failover fails."""
    path = draw("path", lambda dice: dice.choice(FORBIDDEN))
    for_s = draw("for_s", lambda dice: 0.5 * dice.random())

    def trap(step: Step) -> Loss | None:
        if step.becomes_controller:
            stage.traps.remove(trap)
            stage.tell(f"node {step.actor} takes office, and nobody may read {path} for {for_s} s")
            stage.ensemble.write_acl(0, path, _UNREADABLE, -1, ())
            later(stage, for_s, stage.ensemble.write_acl, 0, path, OPEN_ACL, -1, ())
        return None

    stage.traps.set(trap)
