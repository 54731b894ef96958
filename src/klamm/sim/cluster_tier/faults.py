"""Every fault of this tier: those that it shares with the tier of controllers, and those of disks.

Disks lose what was not synced, stumble, fill up, die, or change a bit; a new device is empty.
"""

import errno
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from klamm.log.names import LOG
from klamm.model.ids import TopicPartition
from klamm.sim.actions import Draw, ScheduledCluster, call_after, restart
from klamm.sim.cluster_tier.history import TierHistory
from klamm.sim.disk import SimulatedDisk
from klamm.sim.faults.aim import draw_node
from klamm.sim.faults.table import FAULT_ROWS, FaultRow
from klamm.sim.power_loss import PowerLoss

Fault = Callable[[Any, Draw], None]
_MAX_S: Final = 10.0
_CALLS: Final = ("write", "write", "sync", "sync", "truncate", "rename", "open", "read")
_ROOM_BYTES: Final = 2_000
CAPACITY_BYTES: Final = 1 << 40
"""Of a disk that is not full."""


class ClusterWithDisks(ScheduledCluster, Protocol):
    """A cluster of whole nodes, as faults of disks see it."""

    tier: TierHistory

    @property
    def device_s(self) -> float:
        """How long a call to a device takes that is not slow."""
        ...

    @property
    def disks(self) -> dict[str, SimulatedDisk]:
        """The simulated disks by machine name."""
        ...

    def power_off(self, number: int, how: PowerLoss = PowerLoss.BYTES) -> None:
        """Cut the power of the node's machine; `how` tells what becomes of unsynced writes."""
        ...

    def replace_directory(self, number: int, directory: str) -> None:
        """Put a new, empty device in place of a failed log directory."""

    def damage(self, number: int, partition: TopicPartition, path: str, bit: int) -> None:
        """Change one bit of a segment file."""


def power_loss(cluster: ClusterWithDisks, draw: Draw) -> None:
    """A machine loses power: unsynced writes are lost, torn at a byte or sector, or reordered."""
    number, node = draw_node(cluster, draw)
    if node.host.is_alive:
        back_s = draw("back_s", lambda rng: _MAX_S * rng.random())
        how = PowerLoss(draw("how", lambda rng: rng.choice([how.value for how in PowerLoss])))
        cluster.log(f"node {number} loses power, back after {back_s} s; of unsynced writes remain: {how.value}")
        cluster.power_off(number, how)
        call_after(cluster, back_s, restart, cluster, number)


def power_loss_of_several(cluster: ClusterWithDisks, draw: Draw) -> None:
    """Several machines lose power at once, as when they share a supply."""
    numbers = draw("nodes", lambda rng: sorted(rng.sample(sorted(cluster.nodes), rng.randint(2, len(cluster.nodes)))))
    back_s = draw("back_s", lambda rng: _MAX_S * rng.random())
    how = PowerLoss(draw("how", lambda rng: rng.choice([how.value for how in PowerLoss])))
    cluster.log(f"nodes {numbers} lose power together, back after {back_s} s; of unsynced writes remain: {how.value}")
    for number in numbers:
        if cluster.nodes[number].host.is_alive:
            cluster.power_off(number, how)
            call_after(cluster, back_s, restart, cluster, number)


def slow_disk(cluster: ClusterWithDisks, draw: Draw) -> None:
    """Calls that wait for the device take long for a while."""
    number, _ = draw_node(cluster, draw)
    takes_s = draw("takes_s", lambda rng: rng.choice((0.05, 0.5, 3.0)))
    for_s = draw("for_s", lambda rng: _MAX_S * rng.random())
    disk = cluster.disks[f"node-{number}"]
    cluster.log(f"the disk of node {number} is slow: {takes_s} s per call to the device, for {for_s} s")
    disk.latency_s = takes_s
    call_after(cluster, for_s, setattr, disk, "latency_s", cluster.device_s)


def disk_error(cluster: ClusterWithDisks, draw: Draw) -> None:
    """One of the next calls on a log directory fails with EIO."""
    number, _ = draw_node(cluster, draw)
    call = draw("call", lambda rng: rng.choice(_CALLS))
    left = draw("left", lambda rng: rng.randint(1, 20))
    disk = cluster.disks[f"node-{number}"]

    def fault(what: str, path: str) -> int | None:
        """Return EIO for the chosen call on the disk; None for all others."""
        nonlocal left
        if what != call or cluster.is_healed:
            return None
        left -= 1
        if left:
            return None
        disk.fault = lambda call, path: None
        cluster.log(f"{what} of {path} on node {number} fails with EIO")
        return errno.EIO

    disk.fault = fault


def disk_full(cluster: ClusterWithDisks, draw: Draw) -> None:
    """A machine's disk is full for a while, so that writes to it fail."""
    number, _ = draw_node(cluster, draw)
    for_s = draw("for_s", lambda rng: _MAX_S * rng.random())
    disk = cluster.disks[f"node-{number}"]
    cluster.log(f"the disk of node {number} is full for {for_s} s")
    disk.capacity_bytes = disk.used_bytes() + _ROOM_BYTES
    call_after(cluster, for_s, setattr, disk, "capacity_bytes", CAPACITY_BYTES)


def log_directory_fails(cluster: ClusterWithDisks, draw: Draw) -> None:
    """The device of one log directory fails; later an empty one replaces it, and the node is restarted."""
    number, _ = draw_node(cluster, draw)
    disk = cluster.disks[f"node-{number}"]
    roots = [f"/{name}" for name in disk.children("/")]
    directory = draw("directory", lambda rng: rng.choice(roots) if roots else "")
    after_s = draw("after_s", lambda rng: 1.0 + _MAX_S * rng.random())
    if directory and not disk.is_failed(directory):
        cluster.log(f"{directory} of node {number} is dead, replaced after {after_s} s")
        disk.fail(directory)
        call_after(cluster, after_s, cluster.replace_directory, number, directory)


def flip_bit(cluster: ClusterWithDisks, draw: Draw) -> None:
    """One bit of a segment file changes, on one replica of a partition."""
    number, _ = draw_node(cluster, draw)
    disk = cluster.disks[f"node-{number}"]
    logs = cluster.tier.disks[number]
    files = [
        (p, f"{log.directory}/{name}")
        for p in logs.partitions()
        if (log := logs.of(p)) is not None
        for name in disk.children(log.directory)
        if name.endswith(LOG) and (inode := disk.inode(f"{log.directory}/{name}")) is not None and inode.content
    ]
    index = draw("file", lambda rng: rng.randrange(max(1, len(files))))
    part = draw("part", lambda rng: rng.random())
    if index < len(files):
        p, path = files[index]
        inode = disk.inode(path)
        assert inode is not None
        bit = int(part * (8 * len(inode.content) - 1))
        cluster.log(f"node {number}: a bit flips in {path}, bit {bit}")
        cluster.damage(number, p, path, bit)


DISK_FAULTS: Final[Sequence[FaultRow]] = (
    FaultRow(2, "power loss", power_loss, sign="loses power"),
    FaultRow(2, "power loss of several", power_loss_of_several, sign="lose power together"),
    FaultRow(17, "slow disk", slow_disk, sign="is slow: "),
    FaultRow(18, "disk error", disk_error, sign="fails with EIO"),
    FaultRow(18, "disk full", disk_full, sign="is full"),
    FaultRow(18, "log directory fails", log_directory_fails, sign="is dead"),
    FaultRow(20, "flip bit", flip_bit, sign="a bit flips"),
)
NOT_SHARED: Final = frozenset({
    "power loss", "expire busy controller", "lose first state responses", "lose ISR change responses",
    "forbid reading", "at step", "registration outlives session", "lose connect response", "restart ensemble",
    "cut server off", "slow control requests", "redeliver control requests", "expire follower during ISR change",
    "duplicate LeaderAndIsr", "refuse writes",
})  # fmt: skip
"""Faults that need the stub broker, or an operator's hand afterwards."""
FAULTS: Final[dict[str, Fault]] = {
    **{row.name: row.apply for row in FAULT_ROWS if row.name not in NOT_SHARED},
    **{row.name: row.apply for row in DISK_FAULTS},
}
