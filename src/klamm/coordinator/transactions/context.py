"""What every handler of the transaction coordinator works with."""

from dataclasses import dataclass, field

from klamm.coordinator.decision_journal import DecisionJournal
from klamm.coordinator.settings import TransactionSettings
from klamm.coordinator.tasks import Tasks
from klamm.coordinator.topic_partitions import CoordinatorLog
from klamm.coordinator.transactions.owned import OwnedTransactions
from klamm.coordinator.transactions.ports import MarkerChannel, ProducerIdSource
from klamm.runtime.clock import Clock
from klamm.runtime.time_slices import Slices
from klamm.telemetry.meters import Timer


@dataclass(slots=True)
class TransactionCounts:
    """What happened since the start."""

    partition_loads: Timer = field(default_factory=Timer)
    unavailable_leaders: int = 0
    """Markers that wait now because no leader of their partition is known."""
    completion_retries: int = 0
    """Complete transactions that wait now to be written into the log again."""


@dataclass(slots=True, eq=False)
class TransactionContext:
    settings: TransactionSettings
    transactions: OwnedTransactions
    log: CoordinatorLog
    clock: Clock
    producer_ids: ProducerIdSource
    markers: MarkerChannel
    slices: Slices
    journal: DecisionJournal
    tasks: Tasks = field(default_factory=lambda: Tasks("transactions"))
    counts: TransactionCounts = field(default_factory=TransactionCounts)
    is_active: bool = False
