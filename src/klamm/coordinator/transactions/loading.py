"""Loading the transactions of a partition that this broker leads now, and giving them up.

Source: TransactionStateManager.loadTransactionMetadata, TransactionCoordinator.onElection (3.9).
"""

from collections.abc import Iterator

import structlog

from klamm.coordinator.ownership import Loading, PartitionOwnership
from klamm.coordinator.topic_partitions import TRANSACTIONS_TOPIC
from klamm.coordinator.transactions.context import TransactionContext
from klamm.coordinator.transactions.markers import resume_completions, start_loaded_completions
from klamm.coordinator.transactions.owned import Owned, StatePartition
from klamm.coordinator.transactions.records import read_key, read_value
from klamm.coordinator.transactions.states import PREPARED
from klamm.coordinator.transactions.transaction import Transaction
from klamm.coordinator.versioned_records import UnknownRecord
from klamm.runtime.disk import Buffer
from klamm.runtime.time_slices import PIECE
from klamm.wire.records import BatchHeader
from klamm.wire.records.record import Record, records

log = structlog.get_logger("transactions")


class LoadedTransactions:
    """Give it the batches in the order of the log; the last record of each id counts."""

    def __init__(self) -> None:
        self.by_id: dict[str, Transaction] = {}

    def add_batch(self, buffer: Buffer, header: BatchHeader) -> Iterator[int]:
        """Apply the records of one batch to the transactions loaded so far.

        Yields before each further piece of a large batch the number of its records. Raises CorruptRecords.
        """
        if header.is_control:
            return
        for number, record in enumerate(records(buffer, header), start=1):
            try:
                self._add_record(record)
            except UnknownRecord as error:
                log.error(
                    "unreadable record of __transaction_state skipped while loading transactions",
                    offset=record.offset,
                    reason=str(error),
                    action="Check which program wrote to __transaction_state.",
                )
            if number % PIECE == 0:
                yield PIECE

    def _add_record(self, record: Record) -> None:
        """Apply one record to the loaded transactions. Raises UnknownRecord."""
        if record.key is None:
            raise UnknownRecord(f"the record at offset {record.offset} of __transaction_state has no key")
        transactional_id = read_key(record.key)
        if transactional_id is None:
            log.warning(
                "record of an unknown newer kind ignored while loading __transaction_state",
                offset=record.offset,
                action="Nothing, if a newer broker wrote it. Else check which program wrote to __transaction_state.",
            )
        elif record.value is None:
            self.by_id.pop(transactional_id, None)
        else:
            self.by_id[transactional_id] = read_value(transactional_id, record.value)


class TransactionOwnership(PartitionOwnership):
    def __init__(self, context: TransactionContext) -> None:
        size = context.settings.transaction_state_log_load_buffer_size
        super().__init__(TRANSACTIONS_TOPIC, context.log, context.tasks, context.slices, size, context.journal)
        self._context = context

    def partition(self, number: int) -> StatePartition:
        """Return the state of partition `number` of `__transaction_state` on this broker."""
        return self._context.transactions.partition(number)

    def elected(self, number: int, epoch: int) -> None:
        """Load the partition, see `PartitionOwnership.elected`; one that is served writes markers in the new epoch.

        Another broker may have led the partition in between, and written markers with its epoch, which fence those of
        the old one: what was given up for that reason begins again.
        """
        super().elected(number, epoch)
        partition = self.partition(number)
        owned = partition.owned
        if owned is not None and partition.epoch is not None and partition.epoch > owned.coordinator_epoch:
            owned.coordinator_epoch = partition.epoch
            resume_completions(self._context, owned)

    async def load(self, number: int, loading: Loading) -> int:
        """Read partition `number` of `__transaction_state` and add its transactions; returns their number."""
        loaded = LoadedTransactions()
        await self.read_all(number, loading, loaded.add_batch)
        if not self.is_wanted(number, loading):
            return 0
        owned = self.partition(number).owned = Owned(number, loading.epoch, loaded.by_id)
        # the task begins once the partition is served
        prepared = [transaction for transaction in owned.transactions.values() if transaction.state in PREPARED]
        start_loaded_completions(self._context, owned, prepared)
        return len(owned.transactions)

    def unload(self, number: int) -> int:
        """Remove the transactions of partition `number` from memory; return their number."""
        partition = self.partition(number)
        owned, partition.owned = partition.owned, None
        return 0 if owned is None else len(owned.transactions)

    def observe_load(self, duration_ms: float) -> None:
        """Record, for the metrics, a loaded partition and how long it took."""
        self._context.counts.partition_loads.observe(duration_ms)
