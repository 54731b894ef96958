"""Every fault of this tier: those that it shares with the tier of controllers, and those of disks."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from klamm.sim.actions import Draw
from klamm.sim.cluster_tier import disk_faults
from klamm.sim.faults.table import FAULT_ROWS

Fault = Callable[[Any, Draw], None]


class DiskFaultRow(NamedTuple):
    """As `FaultRow`."""

    number: int
    name: str
    apply: Fault
    sign: str
    """What the story says where it took effect."""


DISK_FAULTS: Final[Sequence[DiskFaultRow]] = (
    DiskFaultRow(2, "power loss", disk_faults.power_loss, "loses power"),
    DiskFaultRow(2, "power loss of several", disk_faults.power_loss_of_several, "lose power together"),
    DiskFaultRow(17, "slow disk", disk_faults.slow_disk, "is slow: "),
    DiskFaultRow(18, "disk error", disk_faults.disk_error, "fails with EIO"),
    DiskFaultRow(18, "disk full", disk_faults.disk_full, "is full"),
    DiskFaultRow(18, "directory dies", disk_faults.directory_dies, "is dead"),
    DiskFaultRow(20, "flip bit", disk_faults.flip_bit, "a bit flips"),
)
NOT_SHARED: Final = frozenset({
    "power loss", "expire while asked", "lose first states", "lose ISR changes", "forbid reading", "at step",
    "outlived registration", "unlearned session", "restart ensemble", "cut server off", "backlog", "replay orders",
    "overtake asker", "echo orders",
})  # fmt: skip
"""Faults that need the stub broker, or an operator's hand afterwards."""
FAULTS: Final[dict[str, Fault]] = {
    **{row.name: row.apply for row in FAULT_ROWS if row.name not in NOT_SHARED},
    **{row.name: row.apply for row in DISK_FAULTS},
}
