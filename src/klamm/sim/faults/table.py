"""Every fault there is, with its number in the catalogue of faults; a seed chooses among them by name."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from klamm.sim.actions import ClusterUnderTest, Draw, ScheduledCluster, restart
from klamm.sim.faults import clocks, ensemble, garbage, links, orders, processes, sessions, writes

Fault = Callable[[ClusterUnderTest, Draw], None]


class Row(NamedTuple):
    number: int
    """In the catalogue: docs/simulation.md says which rows there are."""
    name: str
    apply: Fault
    sign: str
    """What the story says where it took effect."""


ROWS: Final[Sequence[Row]] = (
    Row(1, "kill", processes.kill, "is killed, back"),
    Row(1, "kill next controllers", processes.kill_next_controllers, "s after it became controller"),
    Row(2, "power loss", processes.power_loss, "loses power"),
    Row(3, "pause", processes.pause, "is paused for"),
    Row(4, "expire", sessions.expire, "is ended"),
    Row(5, "expire twice", sessions.expire_twice, "is ended, too"),
    Row(5, "expire registering", sessions.expire_registering, " registering"),
    Row(5, "expire taking office", sessions.expire_becoming_controller, " taking office"),
    Row(5, "expire while asked", sessions.expire_while_asked, "which is busy and asked"),
    Row(6, "lose answer", writes.lose_answer, "loses its connection"),
    Row(6, "lose first states", writes.lose_first_states, "first states were written"),
    Row(6, "lose ISR changes", writes.lose_isr_changes, "ISR change was written"),
    Row(6, "forbid reading", writes.forbid_reading, "nobody may read"),
    Row(6, "at step", writes.at_step, " is due: "),
    Row(7, "lag", ensemble.lag, " lags by"),
    Row(7, "switch server", ensemble.switch_server, "drops its clients"),
    Row(8, "outlived session", sessions.outlived_session, "its znodes stay"),
    Row(8, "outlived registration", sessions.outlived_registration, "its znode stays for good"),
    Row(8, "unlearned session", sessions.unlearned_session, "nobody learns of"),
    Row(9, "restart server", ensemble.restart_server, " ends, back"),
    Row(9, "lose quorum", ensemble.lose_quorum, " ends, back"),
    Row(9, "restart ensemble", ensemble.restart_ensemble, " ends, back"),
    Row(9, "cut server off", ensemble.cut_server_off, "is cut off from the others"),
    Row(10, "halves", links.halves, " is cut for"),
    Row(11, "cut", links.cut, " is cut for"),
    Row(11, "only ZooKeeper", links.only_zookeeper, " is cut for"),
    Row(11, "only brokers", links.only_brokers, " is cut for"),
    Row(12, "swizzle", links.swizzle, "are cut in the order"),
    Row(13, "reset", links.reset, "are reset"),
    Row(13, "half-open", links.half_open, "does not know"),
    Row(13, "tear", links.tear, " is torn"),
    Row(13, "poor link", links.poor_link, "have a latency"),
    Row(14, "slow", processes.slow, "s for each step"),
    Row(14, "backlog", orders.backlog, "s for each order"),
    Row(15, "move", orders.move, "/controller is deleted"),
    Row(15, "hold orders", orders.hold_orders, "are held"),
    Row(16, "late answers", orders.late_answers, " is cut for"),
    Row(16, "replay orders", orders.replay_orders, "once more"),
    Row(16, "overtake asker", orders.overtake_asker, "of a follower ends"),
    Row(16, "echo orders", orders.echo_orders, "comes twice"),
    Row(22, "clock jump", clocks.clock_jump, " jumps by"),
    Row(22, "clock drift", clocks.clock_drift, "is wrong by"),
    Row(23, "stall", processes.stall, " is held "),
    Row(23, "no descriptors", processes.no_descriptors, "no file descriptors"),
    Row(24, "malformed frames", garbage.malformed_frames, "a frame that is wrong"),
    Row(24, "malformed answers", garbage.malformed_answers, "an answer from ZooKeeper that is wrong"),
)
FAULTS: Final[dict[str, Fault]] = {row.name: row.apply for row in ROWS}


def drawn() -> str:
    """The table of faults in Markdown, as in the manual."""
    rows = (f"| {r.number} | {r.name} | {(r.apply.__doc__ or '').splitlines()[0]} |" for r in ROWS)
    return "\n".join(["| # | fault | what happens |", "|---|---|---|", *rows, ""])


def heal(cluster: ClusterUnderTest) -> None:
    """End every fault: all processes run, all links and disks work, and no server lags."""
    heal_without_restarts(cluster)
    for number, node in list(cluster.nodes.items()):
        if node.broker.replicas.failed:
            cluster.loop.kill(node.host)
        restart(cluster, number)


def heal_without_restarts(cluster: ClusterUnderTest) -> None:
    """End every fault but leave dead processes dead and failed log directories failed."""
    heal_surroundings(cluster)
    for node in cluster.nodes.values():
        node.broker.lagging.clear()
        node.broker.request_delay_s = 0.0


def heal_surroundings(cluster: ScheduledCluster) -> None:
    """End the faults of network, ZooKeeper and clocks, and let every live process run at its pace."""
    cluster.network.heal()
    cluster.injection_points.clear()
    _heal_zookeeper(cluster)
    for clock in cluster.clocks.values():
        clock.offset_ms = 0
    for node in list(cluster.nodes.values()):
        cluster.loop.slow(node.host, 0.0)
        if node.host.is_alive:
            cluster.loop.resume(node.host)


def _heal_zookeeper(cluster: ScheduledCluster) -> None:
    cluster.ensemble.on_greeting = lambda session: True
    cluster.ensemble.outlived_s = lambda: 0.0
    for server in cluster.servers:
        server.lag_s = lambda: 0.0
        if server.is_cut_off:
            server.join_again()
        if not server.is_up:
            server.start()
