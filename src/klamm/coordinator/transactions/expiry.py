"""What the clock does to transactions: open ones time out, idle transactional ids are forgotten.

Source: TransactionCoordinator.abortTimedOutTransactions, TransactionStateManager.removeExpiredTransactionalIds (3.9).
"""

from collections.abc import Sequence
from typing import Final

import structlog

from klamm.coordinator.transactions.context import TransactionContext
from klamm.coordinator.transactions.decisions import has_expired, has_timed_out
from klamm.coordinator.transactions.owned import Owned
from klamm.coordinator.transactions.records import transaction_key
from klamm.coordinator.transactions.requests import fence
from klamm.coordinator.transactions.state_log import append
from klamm.coordinator.transactions.states import DEAD
from klamm.coordinator.transactions.transaction import Transaction
from klamm.wire.records import NewRecord

TOMBSTONES_IN_BATCH: Final = 500
log = structlog.get_logger("transactions")


async def abort_timed_out(context: TransactionContext) -> None:
    """Fence the producer of every transaction that is open for too long, and abort it."""
    for owned in list(context.transactions):
        for transaction in list(owned.transactions.values()):
            await context.slices.checkpoint()
            if has_timed_out(transaction, context.clock.now_ms()) and context.transactions.is_current(owned):
                context.tasks.start(_abort(context, owned, transaction))


async def _abort(context: TransactionContext, owned: Owned, transaction: Transaction) -> None:
    """Fence the producer of a transaction that has timed out, and abort the transaction."""
    if not has_timed_out(transaction, context.clock.now_ms()):
        return
    open_ms = context.clock.now_ms() - transaction.start_ms
    why = f"timed out: open for {open_ms} ms, transaction.timeout.ms is {transaction.timeout_ms}"
    if not await fence(context, owned, transaction, why):
        log.info(
            "transaction aborted: its producer did not end it within transaction.timeout.ms",
            transactional_id=transaction.transactional_id,
            timeout_ms=transaction.timeout_ms,
        )


async def remove_expired(context: TransactionContext) -> None:
    """Write tombstones for idle transactional ids and forget them."""
    for owned in list(context.transactions):
        expired: list[Transaction] = []
        for transaction in list(owned.transactions.values()):
            await context.slices.checkpoint()
            now_ms = context.clock.now_ms()
            if has_expired(transaction, now_ms, context.settings.transactional_id_expiration_ms):
                expired.append(transaction)
        for start in range(0, len(expired), TOMBSTONES_IN_BATCH):
            await _remove(context, owned, expired[start : start + TOMBSTONES_IN_BATCH])


async def _remove(context: TransactionContext, owned: Owned, candidates: Sequence[Transaction]) -> None:
    """Write tombstones for those transactional ids that are still idle, and remove them from memory."""
    now_ms = context.clock.now_ms()
    idle_ms = context.settings.transactional_id_expiration_ms
    expired = [transaction for transaction in candidates if has_expired(transaction, now_ms, idle_ms)]
    if not expired or not context.transactions.is_current(owned):
        return
    for transaction in expired:
        transaction.begin(DEAD)
    records = [NewRecord(None, transaction_key(transaction.transactional_id), now_ms) for transaction in expired]
    error = await append(context, owned, records, context.settings.request_timeout_ms)
    for transaction in expired:
        if error:
            transaction.pending = None
        elif context.transactions.is_current(owned):
            del owned.transactions[transaction.transactional_id]
            context.journal.transaction(transaction.transactional_id, "expired", is_routine=False,
                                        why="idle for transactional.id.expiration.ms")  # fmt: skip
    if error:
        log.warning(
            "cannot remove expired transactional ids from __transaction_state; trying again after the cleanup interval",
            reason=error.name,
        )
