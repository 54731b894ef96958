"""What tools ask about transactions. Source: TransactionCoordinator.scala (3.9)."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from klamm.coordinator.transactions.context import TransactionContext
from klamm.coordinator.transactions.states import DEAD, TransactionState
from klamm.coordinator.transactions.transaction import Partitions, Transaction
from klamm.model.errors import ErrorCode


class DescribedTransaction(NamedTuple):
    error: ErrorCode
    transactional_id: str
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = 0
    producer_id: int = 0
    epoch: int = 0
    partitions: Partitions = frozenset()


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: TransactionState


class ListedTransactions(NamedTuple):
    error: ErrorCode
    unknown_states: Sequence[str] = ()
    transactions: Sequence[ListedTransaction] = ()


def describe_transaction(context: TransactionContext, transactional_id: str) -> DescribedTransaction:
    """Return state, producer and partitions of the transactional id, or its error."""
    if not context.is_active:
        return DescribedTransaction(ErrorCode.COORDINATOR_NOT_AVAILABLE, transactional_id)
    if not transactional_id:
        return DescribedTransaction(ErrorCode.INVALID_REQUEST, transactional_id)
    found = context.transactions.get(transactional_id)
    if isinstance(found, ErrorCode):
        return DescribedTransaction(found, transactional_id)
    if found is None:
        return DescribedTransaction(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
    return DescribedTransaction(
        ErrorCode.NONE,
        transactional_id,
        found.state,
        found.timeout_ms,
        found.start_ms,
        found.producer_id,
        found.epoch,
        found.partitions,
    )


async def list_transactions(
    context: TransactionContext, producer_ids: Collection[int], states: Collection[str], duration_ms: int
) -> ListedTransactions:
    """Return the transactions that pass all filters, in time slices; each as of its slice.

    An empty filter and a negative duration pass all.
    """
    if not context.is_active:
        return ListedTransactions(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if context.transactions.is_loading:
        return ListedTransactions(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    now_ms = context.clock.now_ms()

    def is_included(transaction: Transaction) -> bool:
        """Whether the transaction passes the filters of producer id, state and duration."""
        if transaction.state is DEAD or (producer_ids and transaction.producer_id not in producer_ids):
            return False
        if states and transaction.state not in states:
            return False
        return duration_ms < 0 or now_ms - transaction.start_ms > duration_ms

    known = frozenset(TransactionState)
    unknown = await context.slices.list_of(state for state in dict.fromkeys(states) if state not in known)
    listed: list[ListedTransaction] = []
    for owned in list(context.transactions):
        async for transaction in context.slices.each(list(owned.transactions.values())):
            if is_included(transaction):
                name, producer_id, state = transaction.transactional_id, transaction.producer_id, transaction.state
                listed.append(ListedTransaction(name, producer_id, state))
    return ListedTransactions(ErrorCode.NONE, unknown, listed)
