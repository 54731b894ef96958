"""Where a transaction may go next; no other code decides it. Source: TransactionMetadata.scala (3.9)."""

from enum import StrEnum
from typing import Final


class TransactionState(StrEnum):
    EMPTY = "Empty"  # the transactional id has no open transaction
    ONGOING = "Ongoing"  # partitions were added
    PREPARE_COMMIT = "PrepareCommit"  # the decision is in the log; markers are being written
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"  # every partition has its marker
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"  # the transactional id has expired
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"  # the epoch is raised against the producer, before the abort


(
    EMPTY,
    ONGOING,
    PREPARE_COMMIT,
    PREPARE_ABORT,
    COMPLETE_COMMIT,
    COMPLETE_ABORT,
    DEAD,
    PREPARE_EPOCH_FENCE,
) = TransactionState

STATE_IDS: Final = {state: number for number, state in enumerate(TransactionState)}
"""As the records of `__transaction_state` have them."""
BY_ID: Final = tuple(TransactionState)

VALID_PREVIOUS: Final = {
    EMPTY: {EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
    ONGOING: {ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
    PREPARE_COMMIT: {ONGOING},
    PREPARE_ABORT: {ONGOING, PREPARE_EPOCH_FENCE},
    COMPLETE_COMMIT: {PREPARE_COMMIT},
    COMPLETE_ABORT: {PREPARE_ABORT},
    DEAD: {EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
    PREPARE_EPOCH_FENCE: {ONGOING},
}
MAY_EXPIRE: Final = frozenset((EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT))
PREPARED: Final = {PREPARE_COMMIT: COMPLETE_COMMIT, PREPARE_ABORT: COMPLETE_ABORT}
"""The states in which markers are written, and the one that follows once all are."""


def can_move(state: TransactionState, target: TransactionState) -> bool:
    """Whether a transaction may change from `state` to `target`."""
    return state in VALID_PREVIOUS[target]
