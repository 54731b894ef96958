"""The table of all faults: number in the catalogue of docs/simulation.md, name by which a seed chooses it, function."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from klamm.sim.actions import ClusterUnderTest, Draw, ScheduledCluster, restart
from klamm.sim.faults import control_requests, ensemble, garbage, links, processes, sessions, writes

Fault = Callable[[ClusterUnderTest, Draw], None]


class FaultRow(NamedTuple):
    """One fault of the table."""

    number: int
    """In the catalogue: docs/simulation.md says which rows there are."""
    name: str
    apply: Callable[[Any, Draw], None]
    """It takes the cluster of its tier."""
    sign: str
    """A part of the line that the fault writes to the log of the run; a test finds by it that the fault took effect."""


FAULT_ROWS: Final[Sequence[FaultRow]] = (
    FaultRow(1, "kill", processes.kill, sign="is killed, back"),
    FaultRow(1, "kill with guard", processes.kill_with_guard, sign="its guard closes its session"),
    FaultRow(1, "kill next controllers", processes.kill_next_controllers, sign="s after it became controller"),
    FaultRow(2, "power loss", processes.power_loss, sign="loses power"),
    FaultRow(3, "pause", processes.pause, sign="is paused for"),
    FaultRow(4, "expire", sessions.expire, sign="is ended"),
    FaultRow(5, "expire twice", sessions.expire_twice, sign="is ended, too"),
    FaultRow(5, "expire during registration", sessions.expire_registering, sign=" registering"),
    FaultRow(5, "expire new controller", sessions.expire_becoming_controller, sign=" its election"),
    FaultRow(5, "expire busy controller", sessions.expire_busy_controller, sign="is busy and has a request"),
    FaultRow(6, "lose write response", writes.lose_write_response, sign="loses its connection"),
    FaultRow(6, "lose first state responses", writes.lose_first_state_responses, sign="first states were written"),
    FaultRow(6, "lose ISR change responses", writes.lose_isr_change_responses, sign="ISR change was written"),
    FaultRow(6, "forbid reading", writes.forbid_failover_reads, sign="no client may read"),
    FaultRow(6, "at step", writes.fault_at_step, sign=" is due: "),
    FaultRow(6, "refuse writes", writes.refuse_writes, sign="is refused to write"),
    FaultRow(7, "server lags", ensemble.lag_behind, sign=" lags by"),
    FaultRow(7, "switch server", ensemble.switch_server, sign="closes its client connections"),
    FaultRow(8, "znodes outlive session", sessions.keep_ephemerals_after_expiry, sign="its znodes stay"),
    FaultRow(
        8, "registration outlives session", sessions.keep_registration_after_expiry, sign="its znode is never removed"
    ),
    FaultRow(8, "lose connect response", sessions.lose_connect_responses, sign="the connect response of"),
    FaultRow(9, "restart server", ensemble.restart_server, sign="stops and starts again"),
    FaultRow(9, "lose quorum", ensemble.lose_quorum, sign="stops and starts again"),
    FaultRow(9, "restart ensemble", ensemble.restart_ensemble, sign="stops and starts again"),
    FaultRow(9, "cut server off", ensemble.partition_server, sign="is cut off from the others"),
    FaultRow(10, "split network", links.split_network, sign=" is cut for"),
    FaultRow(11, "cut link", links.cut_link, sign=" is cut for"),
    FaultRow(11, "isolate from brokers", links.isolate_from_brokers, sign=" is cut for"),
    FaultRow(11, "isolate from ZooKeeper", links.isolate_from_zookeeper, sign=" is cut for"),
    FaultRow(12, "cut links one by one", links.cut_links_one_by_one, sign="are cut in the order"),
    FaultRow(13, "reset", links.reset, sign="are reset"),
    FaultRow(13, "half-open", links.half_open, sign="does not notice"),
    FaultRow(13, "truncate message", links.truncate_message, sign=" is truncated"),
    FaultRow(13, "poor link", links.poor_link, sign="have a latency"),
    FaultRow(14, "slow", processes.slow, sign="s for each step"),
    FaultRow(
        14, "slow control requests", control_requests.handle_control_requests_slowly, sign="s for each control request"
    ),
    FaultRow(15, "delete /controller", control_requests.delete_controller_znode, sign="/controller is deleted"),
    FaultRow(15, "delay control requests", control_requests.delay_control_requests, sign="are delayed"),
    FaultRow(16, "delay broker responses", control_requests.delay_broker_responses, sign=" is cut for"),
    FaultRow(16, "redeliver control requests", control_requests.redeliver_control_requests, sign="once more"),
    FaultRow(
        16,
        "expire follower during ISR change",
        control_requests.expire_follower_during_isr_change,
        sign="of a follower ends",
    ),
    FaultRow(16, "duplicate LeaderAndIsr", control_requests.duplicate_control_requests, sign="comes twice"),
    FaultRow(22, "clock jump", processes.clock_jump, sign=" jumps by"),
    FaultRow(22, "clock drift", processes.clock_drift, sign=" drifts by"),
    FaultRow(23, "stall", processes.stall, sign=" is blocked "),
    FaultRow(23, "no descriptors", processes.no_descriptors, sign="no file descriptors"),
    FaultRow(24, "malformed frames", garbage.malformed_frames, sign="a malformed frame"),
    FaultRow(24, "malformed answers", garbage.malformed_answers, sign="receives a malformed reply"),
)
FAULTS: Final[dict[str, Fault]] = {row.name: row.apply for row in FAULT_ROWS}
ADDED_FAULTS: Final = ("refuse writes",)
"""Faults that came later: a seed draws them beside the others, so that those stay where they were."""
FIRST_FAULTS: Final = tuple(name for name in FAULTS if name not in ADDED_FAULTS)


def faults_as_markdown() -> str:
    """The table of all faults in Markdown, for the documentation."""
    rows = (f"| {r.number} | {r.name} | {(r.apply.__doc__ or '').splitlines()[0]} |" for r in FAULT_ROWS)
    return "\n".join(["| # | fault | what happens |", "|---|---|---|", *rows, ""])


def heal(cluster: ClusterUnderTest) -> None:
    """End every fault: all processes run, all links and disks work, and no server lags."""
    heal_without_restarts(cluster)
    for number, node in list(cluster.nodes.items()):
        if node.broker.replicas.failed:
            cluster.loop.kill(node.host)
        restart(cluster, number)


def heal_without_restarts(cluster: ClusterUnderTest) -> None:
    """End every fault, but leave dead processes dead and failed log directories failed."""
    heal_surroundings(cluster)
    for node in cluster.nodes.values():
        node.broker.lagging.clear()
        node.broker.requests.delay_s = 0.0


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
    """Start all ZooKeeper servers, without lag, and reconnect them."""
    cluster.ensemble.may_answer_connect = lambda session: True
    cluster.ensemble.ephemerals_outlive_session_s = lambda: 0.0
    for server in cluster.servers:
        server.lag_s = lambda: 0.0
        if server.is_cut_off:
            server.reconnect()
        if not server.is_up:
            server.start()
