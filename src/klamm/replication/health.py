"""Counts of a broker's partitions by health. Source: ReplicaManager's gauges (3.9)."""

from dataclasses import dataclass

from klamm.replication.partition import Partition


@dataclass(slots=True)
class PartitionHealth:
    """Counts of the partitions hosted here; the last four fields count only partitions led here."""

    hosted: int = 0
    led: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    reassigning: int = 0

    def add(self, partition: Partition) -> None:
        """Count the partition: hosted, led, under-replicated, under or at min ISR, being reassigned."""
        self.hosted += 1
        if not partition.is_leader or partition.log is None:
            return
        in_sync = len(partition.isr_state.isr)
        self.led += 1
        self.under_replicated += in_sync < len(partition.assignment.origin)
        self.under_min_isr += in_sync < partition.effective_min_isr
        self.at_min_isr += in_sync == partition.effective_min_isr
        self.reassigning += partition.assignment.is_being_reassigned
