"""What the coordinator knows of one transactional id. Source: TransactionMetadata.scala (3.9)."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from klamm.coordinator.transactions.states import EMPTY, TransactionState, can_move
from klamm.model.ids import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1
MAX_EPOCH: Final = 2**15 - 1
"""Never given to a producer: the coordinator must be able to fence the one below it."""

Partitions = frozenset[TopicPartition]


class Transition(NamedTuple):
    """What a transactional id becomes once the log has it."""

    state: TransactionState
    producer_id: int
    last_producer_id: int
    epoch: int
    last_epoch: int
    timeout_ms: int
    partitions: Partitions
    start_ms: int
    updated_ms: int


@dataclass(slots=True, eq=False)
class Transaction:
    transactional_id: str
    producer_id: int
    timeout_ms: int
    updated_ms: int
    epoch: int = NO_EPOCH
    last_producer_id: int = NO_PRODUCER_ID
    last_epoch: int = NO_EPOCH
    """Before the last InitProducerId of the same producer, which may ask again."""
    state: TransactionState = EMPTY
    partitions: Partitions = frozenset()
    start_ms: int = NO_TIMESTAMP
    pending: TransactionState | None = None
    """The state that is on its way into the log; until it is there, nothing else may change."""
    has_failed_fence: bool = False
    """The epoch was raised, and the log does not have it yet: it is not raised again."""

    def __post_init__(self) -> None:
        assert self.producer_id >= 0

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the producer needs a new producer id, because its epoch cannot rise further."""
        return is_exhausted(self.epoch)

    def begin(self, target: TransactionState) -> None:
        """Record that the transition to `target` is being written to the log."""
        assert self.pending is None, f"{self.transactional_id}: {target} while {self.pending} is pending"
        assert can_move(self.state, target), f"{self.transactional_id}: no move from {self.state} to {target}"
        self.pending = target

    def begin_fence(self, target: TransactionState, epoch: int) -> None:
        """Raise the epoch to fence the producer, as part of the transition to `target`."""
        self.pending = None
        self.epoch, self.last_epoch = epoch, NO_EPOCH
        self.begin(target)

    def complete(self, transition: Transition) -> None:
        """Apply the transition that was written to the log."""
        assert self.pending is transition.state, f"{self.transactional_id}: {transition.state} did not begin"
        self.pending = None
        (
            self.state,
            self.producer_id,
            self.last_producer_id,
            self.epoch,
            self.last_epoch,
            self.timeout_ms,
            self.partitions,
            self.start_ms,
            self.updated_ms,
        ) = transition


def is_exhausted(epoch: int) -> bool:
    """Whether a producer epoch is so high that the next one needs a new producer id."""
    return epoch >= MAX_EPOCH - 1
