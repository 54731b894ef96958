"""The result of a decision on partition states: which to write, which stay, and which are refused."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from klamm.controller.context import Partition
from klamm.model.leader_and_isr import LeaderAndIsr

Reasons = tuple[tuple[int, str], ...]


@dataclass(slots=True)
class StatePlan:
    """Planned changes of partition states."""

    writes: dict[Partition, LeaderAndIsr] = field(default_factory=dict)
    unchanged: dict[Partition, LeaderAndIsr] = field(default_factory=dict)
    """States that already are as decided."""
    refused: dict[Partition, str] = field(default_factory=dict)
    """Partitions refused because of their state, with the reason; if the state came from memory, it is read from
    ZooKeeper and decided again."""
    undecidable: dict[Partition, str] = field(default_factory=dict)
    """Partitions for which something else than the state could not be read, with the reason."""

    def reasons(self, partitions: Iterable[Partition]) -> dict[Partition, Reasons]:
        """The brokers that were passed over, with the reason, if the decision was between brokers."""
        return {}
