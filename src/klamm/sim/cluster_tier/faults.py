"""Every fault of this tier: those that it shares with the tier of controllers, and those of disks."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from klamm.sim.actions import Draw
from klamm.sim.cluster_tier import disk_faults
from klamm.sim.faults.table import FAULT_ROWS, FaultRow

Fault = Callable[[Any, Draw], None]

DISK_FAULTS: Final[Sequence[FaultRow]] = (
    FaultRow(2, "power loss", disk_faults.power_loss, "loses power"),
    FaultRow(2, "power loss of several", disk_faults.power_loss_of_several, "lose power together"),
    FaultRow(17, "slow disk", disk_faults.slow_disk, "is slow: "),
    FaultRow(18, "disk error", disk_faults.disk_error, "fails with EIO"),
    FaultRow(18, "disk full", disk_faults.disk_full, "is full"),
    FaultRow(18, "directory dies", disk_faults.directory_dies, "is dead"),
    FaultRow(20, "flip bit", disk_faults.flip_bit, "a bit flips"),
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
