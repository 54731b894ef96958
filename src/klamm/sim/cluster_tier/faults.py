"""Every fault of this tier: those that it shares with the controllers' tier, and those of disks."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from klamm.sim.actions import Draw
from klamm.sim.cluster_tier import disk_faults
from klamm.sim.faults import clocks, ensemble, garbage, links, orders, processes, sessions, writes

Fault = Callable[[Any, Draw], None]


class Row(NamedTuple):
    number: int
    """In the catalogue of faults."""
    name: str
    apply: Fault
    sign: str
    """What the story says where it took effect."""


ROWS: Final[Sequence[Row]] = (
    Row(1, "kill", processes.kill, "is killed, back"),
    Row(1, "kill next controllers", processes.kill_next_controllers, "s after it became controller"),
    Row(2, "power loss", disk_faults.power_loss, "loses power"),
    Row(2, "power loss of several", disk_faults.power_loss_of_several, "lose power together"),
    Row(3, "pause", processes.pause, "is paused for"),
    Row(4, "expire", sessions.expire, "is ended"),
    Row(5, "expire twice", sessions.expire_twice, "is ended, too"),
    Row(5, "expire registering", sessions.expire_registering, " registering"),
    Row(5, "expire taking office", sessions.expire_becoming_controller, " taking office"),
    Row(6, "lose answer", writes.lose_answer, "loses its connection"),
    Row(7, "lag", ensemble.lag, " lags by"),
    Row(7, "switch server", ensemble.switch_server, "drops its clients"),
    Row(8, "outlived session", sessions.outlived_session, "its znodes stay"),
    Row(9, "restart server", ensemble.restart_server, " ends, back"),
    Row(9, "lose quorum", ensemble.lose_quorum, " ends, back"),
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
    Row(15, "move", orders.move, "/controller is deleted"),
    Row(15, "hold orders", orders.hold_orders, "are held"),
    Row(16, "late answers", orders.late_answers, " is cut for"),
    Row(17, "slow disk", disk_faults.slow_disk, "s for each call to the device"),
    Row(18, "disk error", disk_faults.disk_error, "fails with EIO"),
    Row(18, "disk full", disk_faults.disk_full, "is full"),
    Row(18, "directory dies", disk_faults.directory_dies, "is dead"),
    Row(20, "flip bit", disk_faults.flip_bit, "a bit flips"),
    Row(22, "clock jump", clocks.clock_jump, " jumps by"),
    Row(22, "clock drift", clocks.clock_drift, "is wrong by"),
    Row(23, "stall", processes.stall, " is held "),
    Row(23, "no descriptors", processes.no_descriptors, "no file descriptors"),
    Row(24, "malformed frames", garbage.malformed_frames, "a frame that is wrong"),
    Row(24, "malformed answers", garbage.malformed_answers, "an answer from ZooKeeper that is wrong"),
)
FAULTS: Final[dict[str, Fault]] = {row.name: row.apply for row in ROWS}
