"""Processes that die, freeze, stumble or crawl."""

from typing import Final

from klamm.sim.actions import Draw, ScheduledCluster, later, restart
from klamm.sim.faults.aim import victim
from klamm.sim.faults.injection_points import Step
from klamm.sim.zookeeper.ensemble import Loss

_MAX_S: Final = 20.0
_STEPS: Final = (0.0005, 0.003)


def kill(cluster: ScheduledCluster, draw: Draw) -> None:
    """A process is killed as by SIGKILL; it restarts at once, soon, or after its session has expired."""
    number, node = victim(cluster, draw)
    if not node.host.is_alive:
        return
    back_s = draw("back_s", lambda rng: rng.choice((0.0, 0.1, 2.0, _MAX_S)) * rng.random())
    cluster.log(f"node {number} is killed, back after {back_s} s")
    cluster.loop.kill(node.host)
    later(cluster, back_s, restart, cluster, number)


def kill_next_controllers(cluster: ScheduledCluster, draw: Draw) -> None:
    """The next one to three controllers are killed during failover."""
    left = draw("left", lambda rng: rng.randint(1, 3))
    after_s = draw("after_s", lambda rng: rng.choice((0.0, 0.01, 0.1)) * rng.random())

    def die(number: int) -> None:
        cluster.log(f"node {number} is killed {after_s} s after it became controller")
        cluster.loop.kill(cluster.nodes[number].host)
        later(cluster, _MAX_S / 4, restart, cluster, number)

    def injection(step: Step) -> Loss | None:
        nonlocal left
        if step.becomes_controller:
            left -= 1
            if not left:
                cluster.injection_points.remove(injection)
            later(cluster, after_s, die, step.actor)
        return None

    cluster.injection_points.set(injection)


def power_loss(cluster: ScheduledCluster, draw: Draw) -> None:
    """A machine loses power and unsynced data; a new process starts later."""
    number, node = victim(cluster, draw)
    if not node.host.is_alive:
        return
    back_s = draw("back_s", lambda rng: _MAX_S * rng.random())
    cluster.log(f"node {number} loses power, back after {back_s} s")
    cluster.power_off(number)
    later(cluster, back_s, restart, cluster, number)


def pause(cluster: ScheduledCluster, draw: Draw) -> None:
    """A process stops as by SIGSTOP, often for longer than its session; all messages arrive at once afterwards."""
    number, node = victim(cluster, draw)
    if not node.host.is_alive or node.host.is_paused:
        return
    for_s = draw("for_s", lambda rng: _MAX_S * rng.random() ** 2)
    cluster.log(f"node {number} is paused for {for_s} s")
    cluster.loop.pause(node.host)
    later(cluster, for_s, cluster.loop.resume, node.host)


def stall(cluster: ScheduledCluster, draw: Draw) -> None:
    """A process is held for about a second, several times."""
    number, _ = victim(cluster, draw)
    times = draw("times", lambda rng: rng.randint(2, 8))
    for_s = draw("for_s", lambda rng: 0.5 + rng.random())
    cluster.log(f"the loop of node {number} is held {times} times for {for_s} s")
    for turn in range(times):
        later(cluster, 2 * turn * for_s, _pause_process, cluster, number, for_s)


def _pause_process(cluster: ScheduledCluster, number: int, for_s: float) -> None:
    """Pause a node's process for this long, unless the cluster is healed by then."""
    host = cluster.nodes[number].host
    if not cluster.is_healed and host.is_alive and not host.is_paused:
        cluster.loop.pause(host)
        later(cluster, for_s, cluster.loop.resume, host)


def slow(cluster: ScheduledCluster, draw: Draw) -> None:
    """Every callback of a process takes long for a while."""
    number, node = victim(cluster, draw)
    step_s = draw("step_s", lambda rng: rng.choice(_STEPS))
    cluster.log(f"node {number} takes {step_s} s for each step")
    cluster.loop.slow(node.host, step_s)
    later(cluster, 5, cluster.loop.slow, node.host, 0.0)


def no_descriptors(cluster: ScheduledCluster, draw: Draw) -> None:
    """A process can open and accept no connection: it has no file descriptors left."""
    number, _ = victim(cluster, draw)
    for_s = draw("for_s", lambda rng: _MAX_S / 2 * rng.random())
    cluster.log(f"node {number} has no file descriptors left for {for_s} s")
    cluster.network.exhausted.add(f"node-{number}")
    later(cluster, for_s, cluster.network.exhausted.discard, f"node-{number}")
