"""What a request makes of a transaction: facts in, a transition or the error out. Source: TransactionCoordinator.scala.

An error of NONE says that there is nothing to do.
"""

from collections.abc import Iterable
from enum import Enum, auto
from typing import Final

from klamm.coordinator.requests import ProducerIdAndEpoch
from klamm.coordinator.transactions.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    MAY_EXPIRE,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    TransactionState,
)
from klamm.coordinator.transactions.transaction import (
    MAX_EPOCH,
    NO_EPOCH,
    NO_TIMESTAMP,
    Partitions,
    Transaction,
    Transition,
    is_exhausted,
)
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition

Plan = Transition | ErrorCode


class InitStep(Enum):
    """What has to happen before InitProducerId can be planned."""

    FENCE = auto()
    """Abort the open transaction; the producer asks again."""
    ROTATE = auto()
    """A new producer id is needed: the epochs of this one are used up."""


# ---- InitProducerId


def plan_init(
    transaction: Transaction,
    expected: ProducerIdAndEpoch | None,
    timeout_ms: int,
    now_ms: int,
    new_producer_id: int | None = None,
) -> Plan | InitStep:
    """Decide about InitProducerId: the next state, an error, or a step that must come before.

    `expected` are the id and epoch that a continuing producer knows; `new_producer_id` is given after ROTATE.
    """
    if transaction.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if expected is not None and not _is_known(transaction, expected):
        return ErrorCode.PRODUCER_FENCED
    if transaction.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.state is ONGOING:
        return ErrorCode.PRODUCER_FENCED if _is_late(transaction, expected) else InitStep.FENCE
    if transaction.is_epoch_exhausted and (expected is None or expected.epoch == transaction.epoch):
        if new_producer_id is None:
            return InitStep.ROTATE
        last_epoch = NO_EPOCH if expected is None else transaction.epoch
        return _begun(transaction, new_producer_id, 0, last_epoch, timeout_ms, now_ms)
    return _plan_epoch(transaction, expected, timeout_ms, now_ms)


def _is_known(transaction: Transaction, expected: ProducerIdAndEpoch) -> bool:
    """Whether the producer may continue: its id is the current one, or the last one with its last epoch (KIP-360)."""
    return (
        transaction.epoch == NO_EPOCH
        or expected.producer_id == transaction.producer_id
        or (expected.producer_id == transaction.last_producer_id and is_exhausted(expected.epoch))
    )


def _is_late(transaction: Transaction, expected: ProducerIdAndEpoch | None) -> bool:
    """Whether the request of a continuing producer is older than the epoch in which the open transaction began.

    It must not abort that transaction. An epoch that was raised to fence its producer, and could not be stored, does
    not count: the producer that asks again goes on with the fencing.
    """
    current = ProducerIdAndEpoch(transaction.producer_id, transaction.epoch)
    return expected not in (None, current) and not transaction.has_failed_fence


def _plan_epoch(transaction: Transaction, expected: ProducerIdAndEpoch | None, timeout_ms: int, now_ms: int) -> Plan:
    """Plan the next producer epoch; the current epoch again for a producer that did not receive it."""
    producer_id, epoch = transaction.producer_id, transaction.epoch
    if expected is None:
        return _begun(transaction, producer_id, epoch + 1, NO_EPOCH, timeout_ms, now_ms)
    if epoch in (NO_EPOCH, expected.epoch):
        return _begun(transaction, producer_id, epoch + 1, epoch, timeout_ms, now_ms)
    if expected.epoch == transaction.last_epoch:
        return _begun(transaction, producer_id, epoch, transaction.last_epoch, timeout_ms, now_ms)
    return ErrorCode.PRODUCER_FENCED


def _begun(
    transaction: Transaction, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
) -> Transition:
    """The transition to an empty transaction with this producer id and epoch."""
    last_id = transaction.producer_id
    return Transition(EMPTY, producer_id, last_id, epoch, last_epoch, timeout_ms, frozenset(), NO_TIMESTAMP, now_ms)


def fenced_epoch(transaction: Transaction) -> int:
    """Return the producer epoch that fences the producer of an open transaction: the next one, at most the highest.

    No producer is given the highest epoch. One that uses it nevertheless is fenced by the next producer id.
    """
    return transaction.epoch if transaction.has_failed_fence else min(transaction.epoch + 1, MAX_EPOCH)


# ---- partitions


def plan_add(transaction: Transaction, producer: ProducerIdAndEpoch, added: Partitions, now_ms: int) -> Plan:
    """Plan the addition of partitions to the producer's transaction; NONE where it has them, else an error."""
    if error := _check_producer(transaction, producer):
        return error
    if transaction.pending is not None or transaction.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.state is ONGOING and added <= transaction.partitions:
        return ErrorCode.NONE
    start_ms = transaction.start_ms if transaction.state is ONGOING else now_ms
    return _moved(transaction, ONGOING, now_ms)._replace(partitions=transaction.partitions | added, start_ms=start_ms)


def verify(
    transaction: Transaction, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Check whether each partition is in the producer's open transaction; returns an error for each (KIP-890)."""
    error = _check_producer(transaction, producer)
    if not error and transaction.state in PREPARED:
        error = ErrorCode.CONCURRENT_TRANSACTIONS
    if error:
        return dict.fromkeys(partitions, error)
    return {p: ErrorCode.NONE if p in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE for p in partitions}


def _check_producer(transaction: Transaction, producer: ProducerIdAndEpoch) -> ErrorCode:
    """Return INVALID_PRODUCER_ID_MAPPING or PRODUCER_FENCED if id or epoch are not the transaction's, else NONE."""
    if transaction.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if transaction.epoch == producer.epoch else ErrorCode.PRODUCER_FENCED


# ---- the end


_ENDED: Final = {
    (COMPLETE_COMMIT, True): ErrorCode.NONE,
    (COMPLETE_ABORT, False): ErrorCode.NONE,
    (PREPARE_COMMIT, True): ErrorCode.CONCURRENT_TRANSACTIONS,
    (PREPARE_ABORT, False): ErrorCode.CONCURRENT_TRANSACTIONS,
}
"""(state, whether it shall commit) -> the answer to an EndTxn that comes again; in all else INVALID_TXN_STATE."""


def plan_end(transaction: Transaction, producer: ProducerIdAndEpoch, now_ms: int, *, is_commit: bool) -> Plan:
    """Plan the commit or abort that a producer requests with EndTxn, or return the error."""
    if error := _check_producer(transaction, producer):
        return error
    if transaction.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.state is not ONGOING:
        return _ENDED.get((transaction.state, is_commit), ErrorCode.INVALID_TXN_STATE)
    return _moved(transaction, PREPARE_COMMIT if is_commit else PREPARE_ABORT, now_ms)


def plan_fenced_abort(transaction: Transaction, epoch: int, now_ms: int) -> Transition:
    """Plan the abort of a transaction whose producer was fenced; the raised epoch is stored with it."""
    return _moved(transaction, PREPARE_ABORT, now_ms)._replace(epoch=epoch, last_epoch=NO_EPOCH)


def plan_complete(transaction: Transaction, now_ms: int) -> Transition:
    """Plan the end of a transaction whose markers are all written."""
    return _moved(transaction, PREPARED[transaction.state], now_ms)._replace(partitions=frozenset())


def as_stored(transaction: Transaction) -> Transition:
    """Return what the log has of a transaction, to be stored again."""
    return _moved(transaction, transaction.state, transaction.updated_ms)


def _moved(transaction: Transaction, state: TransactionState, now_ms: int) -> Transition:
    """The transition to another state that changes nothing else of the transaction."""
    return Transition(
        state,
        transaction.producer_id,
        transaction.last_producer_id,
        transaction.epoch,
        transaction.last_epoch,
        transaction.timeout_ms,
        transaction.partitions,
        transaction.start_ms,
        now_ms,
    )


# ---- time


def has_timed_out(transaction: Transaction, now_ms: int) -> bool:
    """Whether the transaction is open for longer than its timeout, so that it has to be aborted."""
    is_open = transaction.pending is None and transaction.state is ONGOING
    return is_open and transaction.start_ms + transaction.timeout_ms < now_ms


def has_expired(transaction: Transaction, now_ms: int, expiration_ms: int) -> bool:
    """Whether the transactional id was idle for longer than `expiration_ms`, so that it is removed."""
    may_expire = transaction.pending is None and transaction.state in MAY_EXPIRE
    return may_expire and transaction.updated_ms <= now_ms - expiration_ms
