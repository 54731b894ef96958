"""Processes that die, freeze, stumble or crawl."""

from typing import Final

from klamm.sim.faults.aim import victim
from klamm.sim.stage import Draw, Stage, later, restart
from klamm.sim.traps import Step
from klamm.sim.zookeeper.ensemble import Loss

_LONGEST_S: Final = 20.0
_STEPS: Final = (0.0005, 0.003)


def kill(stage: Stage, draw: Draw) -> None:
    """As SIGKILL; it starts again at once, soon, or after its session has ended."""
    number, node = victim(stage, draw)
    if not node.host.is_alive:
        return
    back_s = draw("back_s", lambda dice: dice.choice((0.0, 0.1, 2.0, _LONGEST_S)) * dice.random())
    stage.tell(f"node {number} is killed, back after {back_s} s")
    stage.loop.kill(node.host)
    later(stage, back_s, restart, stage, number)


def kill_next_controllers(stage: Stage, draw: Draw) -> None:
    """Whoever becomes controller is killed while it takes over; one after another, up to three."""
    left = draw("left", lambda dice: dice.randint(1, 3))
    after_s = draw("after_s", lambda dice: dice.choice((0.0, 0.01, 0.1)) * dice.random())

    def die(number: int) -> None:
        stage.tell(f"node {number} is killed {after_s} s after it became controller")
        stage.loop.kill(stage.nodes[number].host)
        later(stage, _LONGEST_S / 4, restart, stage, number)

    def trap(step: Step) -> Loss | None:
        nonlocal left
        if step.becomes_controller:
            left -= 1
            if not left:
                stage.traps.remove(trap)
            later(stage, after_s, die, step.actor)
        return None

    stage.traps.set(trap)


def power_loss(stage: Stage, draw: Draw) -> None:
    """The machine falls silent; back later, with another process."""
    number, node = victim(stage, draw)
    if not node.host.is_alive:
        return
    back_s = draw("back_s", lambda dice: _LONGEST_S * dice.random())
    stage.tell(f"node {number} loses power, back after {back_s} s")
    stage.network.power_off(node.host)
    later(stage, back_s, restart, stage, number)


def pause(stage: Stage, draw: Draw) -> None:
    """As SIGSTOP, often for longer than the session; everything arrives at once afterwards."""
    number, node = victim(stage, draw)
    if not node.host.is_alive or node.host.is_paused:
        return
    for_s = draw("for_s", lambda dice: _LONGEST_S * dice.random() ** 2)
    stage.tell(f"node {number} is paused for {for_s} s")
    stage.loop.pause(node.host)
    later(stage, for_s, stage.loop.resume, node.host)


def stall(stage: Stage, draw: Draw) -> None:
    """Its event loop is held again and again for about a second."""
    number, _ = victim(stage, draw)
    times = draw("times", lambda dice: dice.randint(2, 8))
    for_s = draw("for_s", lambda dice: 0.5 + dice.random())
    stage.tell(f"the loop of node {number} is held {times} times for {for_s} s")
    for turn in range(times):
        later(stage, 2 * turn * for_s, _hold, stage, number, for_s)


def _hold(stage: Stage, number: int, for_s: float) -> None:
    host = stage.nodes[number].host
    if not stage.is_healed and host.is_alive and not host.is_paused:
        stage.loop.pause(host)
        later(stage, for_s, stage.loop.resume, host)


def slow(stage: Stage, draw: Draw) -> None:
    """Every callback takes long for a while."""
    number, node = victim(stage, draw)
    step_s = draw("step_s", lambda dice: dice.choice(_STEPS))
    stage.tell(f"node {number} takes {step_s} s for each step")
    stage.loop.slow(node.host, step_s)
    later(stage, 5, stage.loop.slow, node.host, 0.0)


def no_descriptors(stage: Stage, draw: Draw) -> None:
    """It can open no connection, and takes none."""
    number, _ = victim(stage, draw)
    for_s = draw("for_s", lambda dice: _LONGEST_S / 2 * dice.random())
    stage.tell(f"node {number} has no file descriptors left for {for_s} s")
    stage.network.exhausted.add(f"node-{number}")
    later(stage, for_s, stage.network.exhausted.discard, f"node-{number}")
