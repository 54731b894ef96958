"""What producers ask for: their id and epoch, partitions in the transaction, its end.

Source: TransactionCoordinator.scala (3.9).
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import structlog

from klamm.coordinator.requests import ProducerIdAndEpoch
from klamm.coordinator.transactions.context import TransactionContext
from klamm.coordinator.transactions.decisions import (
    InitStep,
    Plan,
    as_stored,
    fenced_epoch,
    plan_add,
    plan_end,
    plan_fenced_abort,
    plan_init,
    verify,
)
from klamm.coordinator.transactions.markers import start_completion
from klamm.coordinator.transactions.owned import Owned
from klamm.coordinator.transactions.state_log import store
from klamm.coordinator.transactions.states import PREPARE_EPOCH_FENCE
from klamm.coordinator.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID, Partitions, Transaction, Transition
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition

_FENCED_BY_INIT: Final = "another producer with this transactional id began (InitProducerId): this one is fenced"
log = structlog.get_logger("transactions")


class InitResult(NamedTuple):
    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


class _Found(NamedTuple):
    owned: Owned
    transaction: Transaction


# ---- InitProducerId


async def init_producer_id(
    context: TransactionContext, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None
) -> InitResult:
    """Handle InitProducerId: return the id with a new epoch, which fences earlier producers of the transactional id."""
    if not transactional_id:
        return InitResult(ErrorCode.INVALID_REQUEST)
    if not 0 < timeout_ms <= context.settings.transaction_max_timeout_ms:
        return InitResult(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    found = await _find_or_create(context, transactional_id, timeout_ms)
    if isinstance(found, ErrorCode):
        return InitResult(found)
    plan = plan_init(found.transaction, expected, timeout_ms, context.clock.now_ms())
    if plan is InitStep.ROTATE:
        new_id = await context.producer_ids.next_id()
        if new_id is None:
            return InitResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        plan = plan_init(found.transaction, expected, timeout_ms, context.clock.now_ms(), new_id)
    if plan is InitStep.FENCE:
        return InitResult(await fence(context, *found, _FENCED_BY_INIT) or ErrorCode.CONCURRENT_TRANSACTIONS)
    assert not isinstance(plan, InitStep)
    if error := await _store_plan(context, *found, plan):
        return InitResult(error)
    assert isinstance(plan, Transition)
    log.info("producer initialized", transactional_id=transactional_id, producer_id=plan.producer_id, epoch=plan.epoch)
    return InitResult(ErrorCode.NONE, plan.producer_id, plan.epoch)


async def _find_or_create(context: TransactionContext, transactional_id: str, timeout_ms: int) -> _Found | ErrorCode:
    """Find the transaction; where the id is unknown, make a new one, which is not yet in the log."""
    found = _find(context, transactional_id)
    if found is not ErrorCode.INVALID_PRODUCER_ID_MAPPING:
        return found
    producer_id = await context.producer_ids.next_id()
    if producer_id is None:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    owned = context.transactions.find(transactional_id)
    if isinstance(owned, ErrorCode):
        return owned
    new = Transaction(transactional_id, producer_id, timeout_ms, context.clock.now_ms())
    return _Found(owned, owned.transactions.setdefault(transactional_id, new))


def _find(context: TransactionContext, transactional_id: str) -> _Found | ErrorCode:
    """Find the transaction; INVALID_REQUEST without an id, INVALID_PRODUCER_ID_MAPPING where the id is unknown."""
    if not transactional_id:
        return ErrorCode.INVALID_REQUEST
    owned = context.transactions.find(transactional_id)
    if isinstance(owned, ErrorCode):
        return owned
    transaction = owned.transactions.get(transactional_id)
    return ErrorCode.INVALID_PRODUCER_ID_MAPPING if transaction is None else _Found(owned, transaction)


async def _store_plan(context: TransactionContext, owned: Owned, transaction: Transaction, plan: Plan) -> ErrorCode:
    """Store a planned transition; returns the error if the plan is an error or the write failed.

    Where there is nothing to store, NONE is an answer from memory: a coordinator that was replaced and does not know it
    would take the end of a later transaction for that of an earlier one.
    """
    if plan is ErrorCode.NONE:
        return ErrorCode.NONE if await context.log.confirm_leadership(owned.number) else ErrorCode.NOT_COORDINATOR
    if isinstance(plan, ErrorCode):
        return plan
    transaction.begin(plan.state)
    return await store(context, owned, transaction, plan)


# ---- partitions


async def add_partitions(
    context: TransactionContext, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Partitions
) -> ErrorCode:
    """Add the partitions to the producer's transaction and store it; return the error code.

    Partitions that it has may be on this broker only, if they were loaded from the end of the log: the transaction is
    stored again. If this broker failed, the next coordinator would not know of them, and they would get no marker.
    """
    found = _find(context, transactional_id)
    if isinstance(found, ErrorCode):
        return found
    plan = plan_add(found.transaction, producer, partitions, context.clock.now_ms())
    if plan is ErrorCode.NONE and not found.owned.is_replicated:
        plan = as_stored(found.transaction)
    return await _store_plan(context, *found, plan)


def verify_partitions(
    context: TransactionContext,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: Iterable[TopicPartition],
) -> dict[TopicPartition, ErrorCode]:
    """Check whether each partition is in the producer's open transaction; returns an error for each."""
    found = _find(context, transactional_id)
    if isinstance(found, ErrorCode):
        return dict.fromkeys(partitions, found)
    return verify(found.transaction, producer, partitions)


# ---- the end


async def end_transaction(
    context: TransactionContext, transactional_id: str, producer: ProducerIdAndEpoch, *, is_commit: bool
) -> ErrorCode:
    """Handle EndTxn: answer once the decision is in the log; the markers are written afterwards."""
    found = _find(context, transactional_id)
    if isinstance(found, ErrorCode):
        return found
    plan = plan_end(found.transaction, producer, context.clock.now_ms(), is_commit=is_commit)
    error = await _store_plan(context, *found, plan)
    if isinstance(plan, Transition) and not error:
        start_completion(context, *found)
    return error


async def fence(context: TransactionContext, owned: Owned, transaction: Transaction, why: str) -> ErrorCode:
    """Raise the epoch above that of the producer of an open transaction, and abort the transaction because of `why`."""
    epoch = fenced_epoch(transaction)
    transition = plan_fenced_abort(transaction, epoch, context.clock.now_ms())
    transaction.begin(PREPARE_EPOCH_FENCE)
    transaction.begin_fence(transition.state, epoch)
    error = await store(context, owned, transaction, transition, why=why)
    if not error:
        start_completion(context, owned, transaction)
    elif context.transactions.is_current(owned):
        transaction.has_failed_fence = True
        log.warning(
            "cannot store the raised epoch that fences a producer: its transaction stays open until the next attempt",
            transactional_id=transaction.transactional_id,
            epoch=epoch,
            reason=error.name,
        )
    return error
