"""What becomes of transactions while a log is cleaned. Source: LogCleaner.scala (CleanedTransactionMetadata)."""

from collections import deque
from collections.abc import Iterable

from klamm.log.transactions import AbortedTransaction
from klamm.wire.records import BatchHeader
from klamm.wire.records.build import ControlType


class TransactionCleaning:
    """Feed it every batch in the order of the log; it tells what may go.

    An end marker stays as long as the log has data of its transaction.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
        self._committed: set[int] = set()
        """Producers of a transaction with data that is not aborted."""
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        """By producer, the aborted transaction that is open here, and whether a batch of it was seen."""
        self._kept: list[AbortedTransaction] = []

    def take_kept(self) -> list[AbortedTransaction]:
        """Return the aborted transactions since the last call whose marker stays, for the new transaction index."""
        kept, self._kept = self._kept, []
        return kept

    def on_data(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction, so that its records are removed."""
        self._open_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._aborted.get(header.producer_id)
        if found is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (found[0], True)
        return True

    def on_control(self, header: BatchHeader, kind: ControlType | None, is_empty: bool) -> bool:
        """Whether no data of the marker's transaction is left.

        `is_empty` tells that an earlier cleaning removed its record.
        """
        self._open_up_to(header.last_offset)
        if is_empty:
            return True
        if kind is ControlType.ABORT:
            transaction, has_data = self._aborted.pop(header.producer_id, (None, False))
            if transaction is not None and has_data:
                self._kept.append(transaction)
                return False
            return True
        if kind is ControlType.COMMIT:
            had_data = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not had_data
        return False

    def _open_up_to(self, offset: int) -> None:
        """Count the aborted transactions that begin at or below `offset` as open for their producers."""
        while self._coming and self._coming[0].first_offset <= offset:
            transaction = self._coming.popleft()
            self._aborted.setdefault(transaction.producer_id, (transaction, False))
