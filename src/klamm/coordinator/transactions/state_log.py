"""Writing transitions into `__transaction_state`; memory follows once the replicas have them.

Source: TransactionStateManager.appendTransactionToLog (3.9).
"""

from collections.abc import Sequence
from typing import Any, Final

import structlog

from klamm.coordinator.decision_journal import MAX_LISTED
from klamm.coordinator.transactions.context import TransactionContext
from klamm.coordinator.transactions.owned import Owned
from klamm.coordinator.transactions.records import transaction_record
from klamm.coordinator.transactions.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
)
from klamm.coordinator.transactions.transaction import Transaction, Transition
from klamm.model.errors import ErrorCode
from klamm.telemetry.journal import by_topic
from klamm.wire.records import NewRecord, build_batch

log = structlog.get_logger("transactions")

_ALL_REPLICAS: Final = -1
_STEPS: Final = {
    EMPTY: "producer initialized",
    ONGOING: "begun",
    PREPARE_COMMIT: "commit decided",
    PREPARE_ABORT: "abort decided",
    COMPLETE_COMMIT: "committed",
    COMPLETE_ABORT: "aborted",
}
"""What the journal calls the move to a state."""
_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What a producer is told where the log refused a transition."""


async def store(
    context: TransactionContext,
    owned: Owned,
    transaction: Transaction,
    transition: Transition,
    *,
    why: str = "",
    is_retried: bool = False,
) -> ErrorCode:
    """Write the transition that the transaction has begun, then apply it; an error leaves the transaction as it was.

    `why`: for the journal, what ended the transaction where its producer did not. With `is_retried`, the transition
    stays pending after an error, and the caller writes it again.
    """
    if not context.transactions.is_current(owned):
        return ErrorCode.NOT_COORDINATOR
    record = transaction_record(transition, transaction.transactional_id, context.clock.now_ms())
    error = await append(context, owned, [record], transition.timeout_ms)
    if not context.transactions.is_current(owned):
        return error or ErrorCode.NOT_COORDINATOR
    if not error:
        _note(context, transaction, transition, why)
        transaction.complete(transition)
        return ErrorCode.NONE
    log.info(
        "cannot write the state of a transaction to __transaction_state: the producer gets an error and tries again",
        transactional_id=transaction.transactional_id,
        state=transition.state,
        reason=error.name,
    )
    context.journal.transaction(transaction.transactional_id, "not stored", is_routine=False, why=error.name,
                                state=transition.state)  # fmt: skip
    if not is_retried:
        transaction.pending = None
    return error


def _note(context: TransactionContext, transaction: Transaction, transition: Transition, why: str) -> None:
    """Write the transition that is about to be applied to the journal."""
    facts: dict[str, Any] = {"producer_id": transition.producer_id, "epoch": transition.epoch}
    step = _STEPS[transition.state]
    if transition.state is ONGOING:
        added = sorted(transition.partitions - transaction.partitions)
        if not added:
            return  # it is stored again
        step = "partitions added" if transaction.state is ONGOING else step
        facts |= {"partitions": by_topic(added[:MAX_LISTED]), "count": len(added)}
    elif transition.state in PREPARED:
        facts |= {
            "partitions": by_topic(sorted(transition.partitions)[:MAX_LISTED]),
            "count": len(transition.partitions),
            "open_ms": transition.updated_ms - transition.start_ms,
            "why": why or None,
        }
    elif transition.state is not EMPTY:
        facts["markers_ms"] = max(0, context.clock.now_ms() - transaction.updated_ms)
    context.journal.transaction(transaction.transactional_id, step, is_routine=not why, **facts)


async def append(context: TransactionContext, owned: Owned, records: Sequence[NewRecord], timeout_ms: int) -> ErrorCode:
    """Append the records in one batch and wait for the replicas; returns the error for producers."""
    appended = await context.log.append(owned.number, build_batch(records), _ALL_REPLICAS, timeout_ms)
    owned.is_replicated |= not appended.error
    return _ERRORS.get(appended.error, appended.error)
