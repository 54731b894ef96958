"""Mutants that each remove a guard of transactions; the simulated clusters of whole nodes must notice them."""

from typing import Any, Final

from tests.simulation.injected_bugs.mutant import Mutant, Patch, together

from klamm.broker import transaction_verification
from klamm.coordinator.committed_offsets import CommittedOffset, GroupOffsets
from klamm.coordinator.transactions import decisions, loading, markers, requests
from klamm.log import producers
from klamm.log.log import Log
from klamm.model.errors import ErrorCode


def undecided_records_are_served(patch: Patch) -> None:
    """The last stable offset is the high watermark: undecided records are read as if they were committed."""
    patch.setattr(Log, "last_stable_offset", property(lambda self: self.high_watermark))


def aborted_transactions_are_not_reported(patch: Patch) -> None:
    """A Fetch does not say which transactions were aborted."""
    patch.setattr(Log, "aborted_in", lambda self, result, offset, bound: [])


def transactions_are_not_loaded(patch: Patch) -> None:
    """A new coordinator does not read the transactions that its predecessor stored."""
    patch.setattr(loading.LoadedTransactions, "add_batch", lambda self, buffer, header: None)


def open_transaction_is_forgotten_by_the_next_producer(patch: Patch) -> None:
    """InitProducerId gives the next epoch without the abort of the open transaction."""
    plan_init = decisions.plan_init

    def plan(transaction: Any, expected: Any, timeout_ms: int, now_ms: int, new_producer_id: Any = None) -> Any:
        found = plan_init(transaction, expected, timeout_ms, now_ms, new_producer_id)
        if found is decisions.InitStep.FENCE:
            return decisions._plan_epoch(transaction, expected, timeout_ms, now_ms)
        return found

    patch.setattr(requests, "plan_init", plan)


def producer_epochs_are_not_checked_by_the_log(patch: Patch) -> None:
    """A leader appends batches of older producer epochs."""
    patch.setattr(producers, "_check_epoch", lambda known, header: None)


def producer_epochs_are_not_checked_by_the_coordinator(patch: Patch) -> None:
    """The coordinator serves producers of older epochs."""
    patch.setattr(decisions, "_check_producer", lambda transaction, producer: ErrorCode.NONE)


def aborts_become_commits(patch: Patch) -> None:
    """Each transaction gets commit markers, however it ends."""
    init = markers._Delivery.__init__

    def begin(self: Any, *parts: Any) -> None:
        init(self, *parts)
        self._is_commit = True

    patch.setattr(markers._Delivery, "__init__", begin)


def offsets_count_before_the_commit(patch: Patch) -> None:
    """Offsets that a transaction stores are the group's at once, whatever becomes of the transaction."""

    def complete(self: Any, producer_id: int, offsets: Any, record_offset: int) -> None:
        self.fail_transactional(producer_id, offsets)
        for partition, offset in offsets.items():
            self.keep_newest(partition, CommittedOffset(offset, record_offset))

    patch.setattr(GroupOffsets, "complete_transactional", complete)


def markers_are_sent_once(patch: Patch) -> None:
    """A marker that could not be written is not sent again."""
    attempt = markers._Delivery._attempt

    async def once(self: Any, leader: Any, partitions: Any) -> Any:
        await attempt(self, leader, partitions)
        return []

    patch.setattr(markers._Delivery, "_attempt", once)


def transactions_are_not_verified(patch: Patch) -> None:
    """A leader accepts a transaction's first batch without asking the coordinator (before KIP-890)."""

    async def trust(self: Any, batches: Any, partitions: Any) -> Any:
        return {}

    verification = transaction_verification.TransactionVerification
    patch.setattr(verification, "_ask", trust)


def markers_clear_sequences(patch: Patch) -> None:
    """The end of a transaction makes a log forget which sequence its producer sends next."""
    on_marker_written = producers.Producers.on_marker_written

    def forget(self: Any, header: Any, marker: Any, offset: int) -> Any:
        completed = on_marker_written(self, header, marker, offset)
        self.by_id[header.producer_id].marks.clear()
        return completed

    patch.setattr(producers.Producers, "on_marker_written", forget)


def loaded_decisions_are_not_replicated(patch: Patch) -> None:
    """A new coordinator writes the markers of decisions that it loaded, and that other replicas may not have."""

    async def complete(context: Any, owned: Any, ends: Any) -> None:
        for transaction, transition in ends:
            context.tasks.start(markers._complete(context, owned, transaction, transition))

    patch.setattr(markers, "_complete_loaded", complete)


def loaded_partitions_are_not_replicated(patch: Patch) -> None:
    """A new coordinator answers AddPartitionsToTxn from what it loaded, which other replicas may not have."""
    patch.setattr(requests, "as_stored", lambda transaction: ErrorCode.NONE)


MUTANTS: Final = (
    Mutant("55", "KAFKA-9807", "undecided records are served", undecided_records_are_served, (51, 69)),
    Mutant("t1", "", "Fetch names no aborted transaction", aborted_transactions_are_not_reported, (51, 47)),
    Mutant("t2", "", "a new coordinator loads no transactions", transactions_are_not_loaded, (47, 50, 51, 69)),
    Mutant("t3", "", "the next producer aborts nothing", open_transaction_is_forgotten_by_the_next_producer, (51, 69)),
    Mutant(
        "t4",
        "",
        "producers of older epochs are served",
        together(
            producer_epochs_are_not_checked_by_the_log,
            producer_epochs_are_not_checked_by_the_coordinator,
        ),
        (50, 51),
    ),
    Mutant("t5", "", "aborted transactions get commit markers", aborts_become_commits, (47, 51)),
    Mutant("t6", "", "offsets count before the commit", offsets_count_before_the_commit, (50,)),
    Mutant("t7", "", "markers are sent once", markers_are_sent_once, (47, 69)),
    Mutant("t8", "KIP-890", "transactions are not verified", transactions_are_not_verified, (51, 69)),
    Mutant("t9", "", "the end of a transaction clears sequences", markers_clear_sequences, (71,)),
    Mutant("t10", "", "loaded partitions are not replicated", loaded_partitions_are_not_replicated, (47, 51)),
    Mutant("t11", "", "loaded decisions are not replicated", loaded_decisions_are_not_replicated, (47, 50, 51)),
)
