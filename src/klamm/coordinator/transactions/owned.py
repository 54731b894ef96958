"""The transactions of the partitions that this broker leads. Source: TransactionStateManager.scala (3.9)."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from klamm.coordinator.ownership import CoordinatedPartition
from klamm.coordinator.topic_partitions import partition_for
from klamm.coordinator.transactions.transaction import Transaction
from klamm.model.errors import ErrorCode


@dataclass(slots=True, eq=False)
class Owned:
    """What one partition holds, during one leadership of this broker."""

    number: int
    coordinator_epoch: int
    """The leader epoch of the partition: markers of an older coordinator are fenced by it."""
    transactions: dict[str, Transaction] = field(default_factory=dict)
    given_up: list[Transaction] = field(default_factory=list)
    """Prepared ones whose markers were fenced: they stay so as long as the leader epoch does."""
    is_replicated: bool = False
    """Whether the in-sync replicas are known to have all that was loaded: they have something that was stored later."""


@dataclass(slots=True, eq=False)
class StatePartition(CoordinatedPartition):
    owned: Owned | None = None


class OwnedTransactions:
    def __init__(self, partition_count: int = 1) -> None:
        self.partition_count = partition_count
        """Set once, at the start: another count puts transactional ids elsewhere."""
        self._partitions: dict[int, StatePartition] = {}

    def partition_of(self, transactional_id: str) -> int:
        """Return the partition of `__transaction_state` that belongs to the transactional id."""
        return partition_for(transactional_id, self.partition_count)

    def partition(self, number: int) -> StatePartition:
        """Return this broker's state of partition `number` of `__transaction_state`, created where it is missing."""
        return self._partitions.setdefault(number, StatePartition())

    @property
    def is_loading(self) -> bool:
        """Whether any partition of `__transaction_state` is being loaded."""
        return any(partition.loading for partition in self._partitions.values())

    def find(self, transactional_id: str) -> Owned | ErrorCode:
        """The partition that keeps the transactional id.

        COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR if not served here.
        """
        partition = self._partitions.get(self.partition_of(transactional_id))
        if partition is None:
            return ErrorCode.NOT_COORDINATOR
        if error := partition.availability:
            return error
        return ErrorCode.NOT_COORDINATOR if partition.owned is None else partition.owned

    def get(self, transactional_id: str) -> Transaction | ErrorCode | None:
        """The transaction; None where the id is unknown, an error where this broker does not coordinate it."""
        found = self.find(transactional_id)
        return found.transactions.get(transactional_id) if isinstance(found, Owned) else found

    def is_current(self, owned: Owned) -> bool:
        """Whether this broker has led the partition without interruption since `owned` was read."""
        partition = self._partitions.get(owned.number)
        return partition is not None and partition.owned is owned and not partition.availability

    def __iter__(self) -> Iterator[Owned]:
        for partition in self._partitions.values():
            if partition.owned is not None and not partition.availability:
                yield partition.owned
