"""What a decision makes of partition states: which are written, which stay, which are refused and why."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from klamm.controller.context import Partition
from klamm.model.leader_and_isr import LeaderAndIsr

Reasons = tuple[tuple[int, str], ...]


@dataclass(slots=True)
class StatePlan:
    writes: dict[Partition, LeaderAndIsr] = field(default_factory=dict)
    unchanged: dict[Partition, LeaderAndIsr] = field(default_factory=dict)
    """States that are as they should be already."""
    refused: dict[Partition, str] = field(default_factory=dict)
    """By what the state says: decided once more on the znode, where memory was asked first."""
    undecidable: dict[Partition, str] = field(default_factory=dict)
    """What the decision needs besides the state cannot be read."""

    def reasons(self, partitions: Iterable[Partition]) -> dict[Partition, Reasons]:
        """Why single brokers were passed over, where the decision was about brokers."""
        return {}
