"""Writing the markers of a transaction into its partitions, wherever they are led, and then the end of it.

Source: TransactionMarkerChannelManager.scala, TransactionMarkerRequestCompletionHandler.scala (3.9).
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import structlog

from klamm.client.errors import ConnectionLost, UnsupportedVersion
from klamm.coordinator.transactions.context import TransactionContext
from klamm.coordinator.transactions.decisions import as_stored, plan_complete
from klamm.coordinator.transactions.owned import Owned
from klamm.coordinator.transactions.ports import Marker, NoLeader, by_leader
from klamm.coordinator.transactions.records import transaction_record
from klamm.coordinator.transactions.state_log import append, store
from klamm.coordinator.transactions.states import PREPARE_COMMIT
from klamm.coordinator.transactions.transaction import Transaction, Transition
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition

RETRY_BACKOFF_S: Final = 0.1
_MARKED: Final = (ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION)
"""A partition of an older format never took the producer's records."""
_FENCED: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
_RETRIED: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
log = structlog.get_logger("transactions")


class Fenced(Exception):
    """A newer coordinator or producer took over: this one has nothing more to write."""


def start_completion(context: TransactionContext, owned: Owned, transaction: Transaction) -> None:
    """Write the markers and then the end of a prepared transaction, in the background."""
    transition = _begin_completion(context, transaction)
    context.tasks.start(_complete(context, owned, transaction, transition))


def _begin_completion(context: TransactionContext, transaction: Transaction) -> Transition:
    """Begin the transition that follows the markers: nothing else may change the transaction until then."""
    transition = plan_complete(transaction, context.clock.now_ms())
    transaction.has_failed_fence = False
    transaction.begin(transition.state)
    return transition


def start_loaded_completions(context: TransactionContext, owned: Owned, prepared: Sequence[Transaction]) -> None:
    """Write the markers of prepared transactions that were just loaded, once every replica has their decisions."""
    if prepared:
        ends = [(transaction, _begin_completion(context, transaction)) for transaction in prepared]
        context.tasks.start(_complete_loaded(context, owned, ends))


async def _complete_loaded(
    context: TransactionContext, owned: Owned, ends: Sequence[tuple[Transaction, Transition]]
) -> None:
    """Write the markers and then the end of each of these transactions.

    What is loaded from the end of the log may be on this broker only. If it failed after the first markers, the next
    coordinator would not know the decision, and could take the other one for the remaining partitions. So the first
    decision is stored again: when it is replicated, all that was loaded is.
    """
    record = transaction_record(as_stored(ends[0][0]), ends[0][0].transactional_id, context.clock.now_ms())
    while context.transactions.is_current(owned):
        error = await append(context, owned, [record], ends[0][0].timeout_ms)
        if not error:
            break
        log.info(
            "transaction markers wait: the replicas of __transaction_state do not have all decisions that were loaded",
            partition=owned.number,
            reason=error.name,
        )
        await asyncio.sleep(RETRY_BACKOFF_S)
    if context.transactions.is_current(owned):
        for transaction, transition in ends:
            context.tasks.start(_complete(context, owned, transaction, transition))


def resume_completions(context: TransactionContext, owned: Owned) -> None:
    """Write the markers again that were given up, because this broker leads in a newer leader epoch now."""
    given_up, owned.given_up = owned.given_up, []
    for transaction in given_up:
        transaction.pending = None
        start_completion(context, owned, transaction)


async def _complete(
    context: TransactionContext, owned: Owned, transaction: Transaction, transition: Transition
) -> None:
    """Write the markers of a prepared transaction, then store that it is complete.

    Ends early where this broker no longer coordinates the transaction: the next coordinator does it again. After
    every error but that it is stored again: nobody else ends the transaction as long as this broker leads.
    """
    try:
        await _Delivery(context, owned, transaction).run()
    except Fenced as reason:
        log.warning(
            "transaction markers are no longer written: another coordinator or producer took over",
            transactional_id=transaction.transactional_id,
            reason=str(reason),
        )
        context.journal.transaction(transaction.transactional_id, "markers given up", is_routine=False,
                                    why=str(reason))  # fmt: skip
        owned.given_up.append(transaction)
        return
    while context.transactions.is_current(owned):
        error = await store(context, owned, transaction, transition, is_retried=True)
        if not error:
            return
        context.counts.completion_retries += 1
        try:
            await asyncio.sleep(RETRY_BACKOFF_S)
        finally:
            context.counts.completion_retries -= 1


class _Delivery:
    """One transaction's markers; each partition is retried until it has its marker, or is deleted."""

    def __init__(self, context: TransactionContext, owned: Owned, transaction: Transaction) -> None:
        self._context = context
        self._owned = owned
        self._transaction = transaction
        self._is_commit = transaction.state is PREPARE_COMMIT

    async def run(self) -> None:
        """Write the marker to every partition of the transaction, retrying until all have it. Raises Fenced."""
        attempts: set[asyncio.Task[list[TopicPartition]]] = set()
        left: Iterable[TopicPartition] = self._transaction.partitions
        loop = asyncio.get_running_loop()
        try:
            while self._context.transactions.is_current(self._owned):
                for leader, partitions in by_leader(self._context.markers, left).items():
                    attempts.add(loop.create_task(self._attempt(leader, partitions)))
                if not attempts:
                    return
                done, attempts = await asyncio.wait(attempts, return_when=asyncio.FIRST_COMPLETED)
                left = [partition for attempt in done for partition in attempt.result()]
        finally:
            for attempt in attempts:
                attempt.cancel()

    async def _attempt(self, leader: Address | NoLeader, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Send one marker; returns the partitions that need another attempt, after a pause. Raises Fenced."""
        if leader is NoLeader.UNKNOWN:
            partitions = await self._without_deleted(partitions)
            if not partitions:
                return []
        left = await self._wait_for_leader(partitions) if isinstance(leader, NoLeader) else None
        if left is None:
            assert not isinstance(leader, NoLeader)
            left = await self._send(leader, partitions)
        if left:
            await asyncio.sleep(RETRY_BACKOFF_S)
        return left

    async def _without_deleted(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Remove the partitions that are deleted from the transaction; returns the others.

        Unlike Apache Kafka, a partition that the metadata lacks is not taken for deleted: after a registration the
        first UpdateMetadata of a new controller names no partition, and the marker would be missing for ever.
        """
        try:
            deleted = await self._context.markers.deleted(frozenset(partitions))
        except KlammError as error:
            log.info(
                "cannot find out whether partitions are deleted; their transaction markers wait",
                transactional_id=self._transaction.transactional_id,
                partitions=",".join(map(str, partitions)),
                reason=str(error),
            )
            return partitions
        if deleted:
            log.info(
                "transaction markers are skipped: the partitions are deleted",
                transactional_id=self._transaction.transactional_id,
                partitions=",".join(map(str, sorted(deleted))),
            )
            self._remove(deleted)
        return [p for p in partitions if p not in deleted]

    async def _wait_for_leader(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Wait for the retry backoff, and return the same partitions to be tried again."""
        counts = self._context.counts
        counts.unavailable_leaders += 1
        try:
            await asyncio.sleep(RETRY_BACKOFF_S)
        finally:
            counts.unavailable_leaders -= 1
        return partitions

    async def _send(self, leader: Address, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Send the marker to the leader; returns the partitions where it was not written. Raises Fenced."""
        transaction = self._transaction
        marker = Marker(
            transaction.producer_id,
            transaction.epoch,
            self._is_commit,
            self._owned.coordinator_epoch,
            frozenset(partitions),
        )
        try:
            errors = await self._context.markers.write_marker(leader, marker)
        except (ConnectionLost, UnsupportedVersion) as error:
            log.info(
                "no answer to WriteTxnMarkers; it is sent again",
                transactional_id=transaction.transactional_id,
                reason=str(error),
            )
            return partitions
        self._remove([p for p in partitions if errors.get(p) in _MARKED])
        if marker.coordinator_epoch == self._owned.coordinator_epoch:  # else it was sent before the newest election
            self._check_fenced(errors)
        return [p for p in partitions if errors.get(p) not in _MARKED]

    def _check_fenced(self, errors: Mapping[TopicPartition, ErrorCode]) -> None:
        """Raise Fenced where a leader answers that the coordinator is fenced.

        Other errors that a retry may not repair are logged.
        """
        for partition, error in errors.items():
            if error in _FENCED:
                raise Fenced(f"the leader of {partition} answered WriteTxnMarkers with {error.name}")
            if error not in _MARKED and error not in _RETRIED:
                self._note_refused(partition, error)
                log.error(
                    "a transaction marker was refused; it is sent again, and until it is written read_committed "
                    "consumers wait",
                    transactional_id=self._transaction.transactional_id,
                    partition=str(partition),
                    reason=error.name,
                    action="Repair the cause at the partition's leader, see its log.",
                )

    def _note_refused(self, partition: TopicPartition, error: ErrorCode) -> None:
        """Write to the journal that a partition's leader refused the marker."""
        name = self._transaction.transactional_id
        facts = {"partition": str(partition), "why": error.name}
        self._context.journal.transaction(name, "marker refused", is_routine=False, **facts)

    def _remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions that have their marker, or need none, from the transaction."""
        if self._context.transactions.is_current(self._owned):
            self._transaction.partitions -= frozenset(partitions)
