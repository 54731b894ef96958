"""Faults of node processes and their hosts: kill, power loss, pause, slowness, no file descriptors, wrong wall clocks.

Timeouts are not affected by wrong clocks, because they use the event loop's time.
"""

from typing import Final

from klamm.model.ids import BrokerId
from klamm.sim.actions import Draw, ScheduledCluster, call_after, restart
from klamm.sim.faults.aim import draw_node
from klamm.sim.faults.injection_points import Step
from klamm.sim.zookeeper.ensemble import InjectedFailure
from klamm.zk.operations import Create, Set
from klamm.zk.process_ends import process_end_path
from klamm.zk.znodes import PROCESS_ENDS

_MAX_S: Final = 20.0
_KILLED: Final = b'{"version":1,"signal":9,"timestamp":"1700000000000"}'
_STEPS: Final = (0.0005, 0.003)


def kill(cluster: ScheduledCluster, draw: Draw) -> None:
    """A process is killed as by SIGKILL; it restarts at once, soon, or after its session has expired."""
    number, node = draw_node(cluster, draw)
    if not node.host.is_alive:
        return
    back_s = draw("back_s", lambda rng: rng.choice((0.0, 0.1, 2.0, _MAX_S)) * rng.random())
    cluster.log(f"node {number} is killed, back after {back_s} s")
    cluster.loop.kill(node.host)
    call_after(cluster, back_s, restart, cluster, number)


def kill_with_guard(cluster: ScheduledCluster, draw: Draw) -> None:
    """A process is killed, and its crash guard records that and closes its session; it restarts before or after."""
    number, node = draw_node(cluster, draw)
    if not node.host.is_alive:
        return
    session = node.session
    guard_s = draw("guard_s", lambda rng: rng.choice((0.0, 0.05, 1.0)) * rng.random())
    back_s = draw("back_s", lambda rng: rng.choice((0.0, 0.1, 2.0, _MAX_S)) * rng.random())
    cluster.log(f"node {number} is killed, its guard closes its session after {guard_s} s, back after {back_s} s")

    def close_session() -> None:
        """Record how the process ended and end its session, as a crash guard does, if ZooKeeper has a quorum."""
        if not session or not cluster.ensemble.has_quorum:
            return
        path = process_end_path(BrokerId(number))
        if cluster.ensemble.tree.get(path) is not None:
            cluster.ensemble.write(session, [Set(path, _KILLED)], ())
        elif cluster.ensemble.tree.get(PROCESS_ENDS) is not None:
            cluster.ensemble.write(session, [Create(path, _KILLED)], ())
        cluster.ensemble.end_session(session)

    cluster.loop.kill(node.host)
    call_after(cluster, guard_s, close_session)
    call_after(cluster, back_s, restart, cluster, number)


def kill_next_controllers(cluster: ScheduledCluster, draw: Draw) -> None:
    """The next one to three controllers are killed during failover."""
    left = draw("left", lambda rng: rng.randint(1, 3))
    after_s = draw("after_s", lambda rng: rng.choice((0.0, 0.01, 0.1)) * rng.random())

    def kill_and_restart(number: int) -> None:
        """Kill a node, and restart it later."""
        cluster.log(f"node {number} is killed {after_s} s after it became controller")
        cluster.loop.kill(cluster.nodes[number].host)
        call_after(cluster, _MAX_S / 4, restart, cluster, number)

    def injection(step: Step) -> InjectedFailure | None:
        """Return the failure that the cluster injects at this step; None if the fault is for another step."""
        nonlocal left
        if step.becomes_controller:
            left -= 1
            if not left:
                cluster.injection_points.remove(injection)
            call_after(cluster, after_s, kill_and_restart, step.actor)
        return None

    cluster.injection_points.set(injection)


def power_loss(cluster: ScheduledCluster, draw: Draw) -> None:
    """A machine loses power and unsynced data; a new process starts later."""
    number, node = draw_node(cluster, draw)
    if not node.host.is_alive:
        return
    back_s = draw("back_s", lambda rng: _MAX_S * rng.random())
    cluster.log(f"node {number} loses power, back after {back_s} s")
    cluster.power_off(number)
    call_after(cluster, back_s, restart, cluster, number)


def pause(cluster: ScheduledCluster, draw: Draw) -> None:
    """A process stops as by SIGSTOP, often for longer than its session; all messages arrive at once afterwards."""
    number, node = draw_node(cluster, draw)
    if not node.host.is_alive or node.host.is_paused:
        return
    for_s = draw("for_s", lambda rng: _MAX_S * rng.random() ** 2)
    cluster.log(f"node {number} is paused for {for_s} s")
    cluster.loop.pause(node.host)
    call_after(cluster, for_s, cluster.loop.resume, node.host)


def stall(cluster: ScheduledCluster, draw: Draw) -> None:
    """A process is paused for about a second, several times."""
    number, _ = draw_node(cluster, draw)
    times = draw("times", lambda rng: rng.randint(2, 8))
    for_s = draw("for_s", lambda rng: 0.5 + rng.random())
    cluster.log(f"the event loop of node {number} is blocked {times} times for {for_s} s")
    for turn in range(times):
        call_after(cluster, 2 * turn * for_s, _pause_process, cluster, number, for_s)


def _pause_process(cluster: ScheduledCluster, number: int, for_s: float) -> None:
    """Pause a node's process for this long, unless the cluster is healed by then."""
    host = cluster.nodes[number].host
    if not cluster.is_healed and host.is_alive and not host.is_paused:
        cluster.loop.pause(host)
        call_after(cluster, for_s, cluster.loop.resume, host)


def slow(cluster: ScheduledCluster, draw: Draw) -> None:
    """Every callback of a process takes milliseconds, for a while."""
    number, node = draw_node(cluster, draw)
    step_s = draw("step_s", lambda rng: rng.choice(_STEPS))
    cluster.log(f"node {number} takes {step_s} s for each step")
    cluster.loop.slow(node.host, step_s)
    call_after(cluster, 5, cluster.loop.slow, node.host, 0.0)


def no_descriptors(cluster: ScheduledCluster, draw: Draw) -> None:
    """A process has no file descriptors left: it can neither open nor accept connections."""
    number, _ = draw_node(cluster, draw)
    for_s = draw("for_s", lambda rng: _MAX_S / 2 * rng.random())
    cluster.log(f"node {number} has no file descriptors left for {for_s} s")
    cluster.network.exhausted.add(f"node-{number}")
    call_after(cluster, for_s, cluster.network.exhausted.discard, f"node-{number}")


_HOUR_MS: Final = 3_600_000
_DRIFTS_S: Final = 10


def clock_jump(cluster: ScheduledCluster, draw: Draw) -> None:
    """A node's wall clock jumps by up to an hour, forwards or backwards, once or repeatedly."""
    number, _ = draw_node(cluster, draw)
    times = draw("times", lambda rng: rng.choice((1, 1, 6)))
    by_ms = draw("by_ms", lambda rng: rng.randint(-_HOUR_MS, _HOUR_MS))
    cluster.log(f"the clock of node {number} jumps by {by_ms} ms and back, {times} times")
    for turn in range(times):
        call_after(cluster, 0.3 * turn, _shift, cluster, number, by_ms if turn % 2 == 0 else -by_ms)


def clock_drift(cluster: ScheduledCluster, draw: Draw) -> None:
    """A node's wall clock runs too fast or too slowly."""
    number, _ = draw_node(cluster, draw)
    rate = draw("rate", lambda rng: rng.choice((-0.5, -0.01, 0.01, 0.5)))
    cluster.log(f"the clock of node {number} drifts by {rate} s in each second")
    for second in range(_DRIFTS_S):
        call_after(cluster, second, _shift, cluster, number, int(rate * 1000))


def _shift(cluster: ScheduledCluster, number: int, by_ms: int) -> None:
    """Move a node's wall clock by this many milliseconds, unless the cluster is healed."""
    if not cluster.is_healed:
        cluster.clocks[f"node-{number}"].shift(by_ms)
