"""The transaction coordinator of one broker. Source: TransactionCoordinator.scala (3.9)."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable

import structlog

from klamm.coordinator.decision_journal import DecisionJournal
from klamm.coordinator.requests import ProducerIdAndEpoch
from klamm.coordinator.settings import TransactionSettings
from klamm.coordinator.topic_partitions import CoordinatorLog
from klamm.coordinator.transactions import admin, expiry, requests
from klamm.coordinator.transactions.context import TransactionContext, TransactionCounts
from klamm.coordinator.transactions.loading import TransactionOwnership
from klamm.coordinator.transactions.owned import OwnedTransactions
from klamm.coordinator.transactions.ports import MarkerChannel, ProducerIdSource
from klamm.coordinator.transactions.states import TransactionState
from klamm.coordinator.transactions.transaction import Partitions
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.replication.leadership import LeadershipChange
from klamm.runtime.clock import Clock
from klamm.runtime.time_slices import Slices

log = structlog.get_logger("transactions")


class TransactionCoordinator:
    """`start` it, tell it which partitions of `__transaction_state` this broker leads, pass it requests, `close` it."""

    def __init__(
        self,
        settings: TransactionSettings,
        state_log: CoordinatorLog,
        clock: Clock,
        producer_ids: ProducerIdSource,
        markers: MarkerChannel,
        slices: Slices,
        journal: DecisionJournal | None = None,
    ) -> None:
        journal = journal or DecisionJournal()
        self._context = TransactionContext(
            settings, OwnedTransactions(), state_log, clock, producer_ids, markers, slices, journal
        )
        self._ownership = TransactionOwnership(self._context)

    # ---- life

    def start(self, partition_count: int) -> None:
        """Begin to serve transactions.

        `partition_count` is that of `__transaction_state`, now or when it is created.
        """
        context, settings = self._context, self._context.settings
        context.transactions.partition_count = partition_count
        context.is_active = True
        abort_interval_ms = settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        context.tasks.start(self._repeat(abort_interval_ms, expiry.abort_timed_out))
        remove_interval_ms = settings.transaction_remove_expired_transaction_cleanup_interval_ms
        context.tasks.start(self._repeat(remove_interval_ms, expiry.remove_expired))

    async def close(self) -> None:
        """Refuse requests from now on, and stop everything that is under way."""
        self._context.is_active = False
        await self._context.tasks.close()

    async def _repeat(self, interval_ms: int, work: Callable[[TransactionContext], Awaitable[None]]) -> None:
        """Run `work` every `interval_ms`; its errors are logged."""
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await work(self._context)
            except (KlammError, OSError) as error:
                log.error(
                    "cannot abort or remove expired transactions; trying again after the cleanup interval",
                    reason=str(error),
                )
            except Exception:
                log.exception(
                    "unexpected error while expired transactions are aborted or removed; trying again after the "
                    "cleanup interval",
                    action="Report this as a bug in klamm, with the stack trace.",
                )

    def on_leadership_change(self, change: LeadershipChange) -> None:
        """Load transactions of partitions that this broker begins to lead, and unload those it no longer leads."""
        self._ownership.on_leadership_change(change)

    def partition_for(self, transactional_id: str) -> int:
        """Return the partition of `__transaction_state` that belongs to the transactional id."""
        return self._context.transactions.partition_of(transactional_id)

    # ---- producers

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None
    ) -> requests.InitResult:
        """Return the producer id and the next epoch of the transactional id, which fences earlier producers.

        A producer that continues sends the id and epoch it knows as `expected` (KIP-360).
        """
        return await requests.init_producer_id(self._context, transactional_id, timeout_ms, expected)

    async def add_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Partitions
    ) -> ErrorCode:
        """Add the partitions to the producer's transaction, and begin it if none is open; returns the error code."""
        return await requests.add_partitions(self._context, transactional_id, producer, partitions)

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Check whether each partition is in the producer's open transaction; returns an error for each (KIP-890)."""
        return requests.verify_partitions(self._context, transactional_id, producer, partitions)

    async def end_transaction(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, is_commit: bool
    ) -> ErrorCode:
        """Commit or abort the producer's transaction; return the error code."""
        return await requests.end_transaction(self._context, transactional_id, producer, is_commit=is_commit)

    # ---- administration

    def describe_transaction(self, transactional_id: str) -> admin.DescribedTransaction:
        """Return state, producer and partitions of the transactional id, or its error."""
        return admin.describe_transaction(self._context, transactional_id)

    async def list_transactions(
        self, producer_ids: Collection[int], states: Collection[str], duration_ms: int
    ) -> admin.ListedTransactions:
        """Return the transactions that pass the filters; empty filters and a negative duration pass all."""
        return await admin.list_transactions(self._context, producer_ids, states, duration_ms)

    # ---- metrics

    @property
    def counts(self) -> TransactionCounts:
        """The counters of the transaction coordinator for the metrics."""
        return self._context.counts

    def count_transactions(self) -> dict[TransactionState, int]:
        """The number of transactional ids in each state."""
        counted = dict.fromkeys(TransactionState, 0)
        for owned in self._context.transactions:
            for transaction in owned.transactions.values():
                counted[transaction.state] += 1
        return counted
