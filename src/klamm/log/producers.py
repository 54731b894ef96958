"""State of idempotent and transactional producers: duplicates, sequence gaps, open transactions.

Source: ProducerStateManager.java, ProducerStateEntry.java, ProducerAppendInfo.java.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from klamm.log.errors import AppendRefused
from klamm.model.errors import ErrorCode
from klamm.wire.records import BatchHeader, EndMarker
from klamm.wire.records.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, add_to_sequence

BATCHES_REMEMBERED: Final = 5
NO_COORDINATOR_EPOCH: Final = -1
_MAX_SEQUENCE: Final = 2**31 - 1


class Origin(Enum):
    """Who appends: a client, a coordinator or a follower; decides which checks apply."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class BatchMark(NamedTuple):
    """Sequence, offsets and maximum timestamp of a recent batch of a producer."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """The sequence of the batch's first record."""
        return add_to_sequence(self.last_sequence, -self.offset_delta)

    @property
    def first_offset(self) -> int:
        """The offset of the batch's first record."""
        return self.last_offset - self.offset_delta


class CompletedTransaction(NamedTuple):
    """A transaction with data that the end marker at `last_offset` completed."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class Producer:
    """One producer's state on one partition. `transaction_start` is None while no transaction is open."""

    __slots__ = ("coordinator_epoch", "epoch", "last_timestamp", "marks", "producer_id", "transaction_start")

    def __init__(
        self,
        producer_id: int,
        epoch: int = NO_PRODUCER_EPOCH,
        marks: Iterable[BatchMark] = (),
        coordinator_epoch: int = NO_COORDINATOR_EPOCH,
        last_timestamp: int = -1,
        transaction_start: int | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.marks: deque[BatchMark] = deque(marks, BATCHES_REMEMBERED)
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.transaction_start = transaction_start

    @property
    def last_sequence(self) -> int:
        """The sequence of the producer's last record; `NO_SEQUENCE` where it has none."""
        return self.marks[-1].last_sequence if self.marks else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """The offset of the producer's last record; -1 where it has none."""
        return self.marks[-1].last_offset if self.marks else -1

    def duplicate_of(self, header: BatchHeader) -> BatchMark | None:
        """The remembered batch with the same epoch and sequences."""
        if header.producer_epoch != self.epoch:
            return None
        last = header.last_sequence
        for mark in self.marks:
            if mark.last_sequence == last and mark.first_sequence == header.base_sequence:
                return mark
        return None


class Verification:
    """Whether a transaction may begin on this partition: its coordinator has to know of the partition (KIP-890).

    It is used up by the first batch of the transaction, and an end marker makes it worthless: a new one has to begin.
    One is kept while the transaction is open, so that its marker leaves one which nobody has confirmed: a late batch of
    the transaction, which needed no confirmation when it came, must not begin another one.
    """

    __slots__ = ("began_ms", "epoch", "is_used", "is_verified", "lowest_sequence")

    def __init__(self, began_ms: int, epoch: int) -> None:
        self.began_ms = began_ms
        self.epoch = epoch
        self.lowest_sequence = _MAX_SEQUENCE
        """That was tried: a later batch must not be written before it."""
        self.is_verified = False
        self.is_used = False
        """Whether a batch of the producer was written since it began."""

    def note_sequence(self, epoch: int, sequence: int) -> None:
        """Remember the lowest sequence seen of the newest producer epoch."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(sequence, self.lowest_sequence)


class Producers:
    """The state of all producers of one log; it includes all batches below `end_offset`."""

    __slots__ = (
        "_newest_offset",
        "_open_transactions",
        "_producers",
        "_unreplicated",
        "_verifications",
        "end_offset",
        "snapshot_offset",
    )

    def __init__(self, end_offset: int = 0) -> None:
        self._producers: dict[int, Producer] = {}
        self._open_transactions: dict[int, int] = {}
        self._unreplicated: deque[CompletedTransaction] = deque()  # closed, but the marker is not below the HW yet
        self._verifications: dict[int, Verification] = {}
        """Of producers whose transaction is about to begin here, or whose batches came while one was open."""
        self._newest_offset = -1
        """No batch of a producer, data or end marker, is known to lie after this offset."""
        self.end_offset = end_offset
        self.snapshot_offset = -1
        """Where the newest snapshot was taken; -1 without one."""

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def by_id(self) -> Mapping[int, Producer]:
        """All known producers by producer id."""
        return self._producers

    # -- before an append --------------------------------------------------------------------------------------------

    def check(self, header: BatchHeader, origin: Origin) -> BatchMark | None:
        """Check a data batch before a leader writes it.

        Returns the mark of an earlier batch that it duplicates, None if it is new. Raises AppendRefused.
        """
        known = self._producers.get(header.producer_id)
        if known is not None and origin is Origin.CLIENT and (mark := known.duplicate_of(header)) is not None:
            return mark
        if self._verifications:
            self._check_verified(known, header, origin)
        if known is None:
            return None  # its state may have expired: any sequence may come
        _check_epoch(known, header)
        if origin is Origin.CLIENT:
            _check_sequence(known, header)
        if known.transaction_start is not None and not header.is_transactional:
            raise AppendRefused(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} sent a batch that is not transactional while its transaction is open. "
                "Commit or abort the transaction first.",
            )
        return None

    def _check_verified(self, known: Producer | None, header: BatchHeader, origin: Origin) -> None:
        """Raise AppendRefused where the batch would begin a transaction that the coordinator did not confirm."""
        verification = self._verifications.get(header.producer_id)
        if verification is None or verification.is_used:
            return
        is_open = known is not None and known.transaction_start is not None
        if header.is_transactional and not is_open and not verification.is_verified:
            raise AppendRefused(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} sent a transactional batch, but its transaction was not "
                "confirmed or has ended. Abort the transaction and begin another one.",
            )
        if origin is Origin.CLIENT and header.base_sequence > verification.lowest_sequence:
            raise AppendRefused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {header.base_sequence} before its sequence "
                f"{verification.lowest_sequence} was written. Send the earlier batch again first.",
            )

    def start_verification(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> Verification | None:
        """Return what the coordinator must confirm before the producer's next batch.

        None if its transaction is open.
        """
        known = self._producers.get(producer_id)
        is_open = known is not None and known.transaction_start is not None
        verification = self._verifications.get(producer_id)
        if verification is None or (verification.is_used and not is_open):
            verification = self._verifications[producer_id] = Verification(now_ms, epoch)
        if is_open:
            verification.is_used = True
            return None
        verification.note_sequence(epoch, sequence)
        return verification

    def check_marker(self, header: BatchHeader, marker: EndMarker) -> None:
        """Check a transaction marker before a leader writes it. Raises AppendRefused."""
        known = self._producers.get(header.producer_id)
        if known is None:
            return
        _check_epoch(known, header)
        if marker.coordinator_epoch < known.coordinator_epoch:
            raise AppendRefused(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"the transaction marker for producer {header.producer_id} has coordinator epoch "
                f"{marker.coordinator_epoch}, but a newer transaction coordinator already wrote with "
                f"{known.coordinator_epoch}: the marker is refused.",
            )

    # -- after an append, and in replay ------------------------------------------------------------------------------

    def on_batch_written(self, header: BatchHeader, first_offset: int, max_timestamp: int) -> None:
        """Update the producer's state for a data batch that was written."""
        producer = self._in_epoch_of(header)
        last_offset = self._newest_offset = first_offset + header.last_offset_delta
        producer.marks.append(BatchMark(header.last_sequence, last_offset, header.last_offset_delta, max_timestamp))
        producer.last_timestamp = max_timestamp
        if header.attributes & 0x10 and producer.transaction_start is None:
            producer.transaction_start = first_offset
            self._open_transactions[header.producer_id] = first_offset
        if (verification := self._verifications.get(header.producer_id)) is not None:
            verification.is_used = True

    def _in_epoch_of(self, header: BatchHeader) -> Producer:
        """Return the state of the batch's producer; with a new epoch its sequence numbers begin again."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = Producer(header.producer_id)
        if producer.epoch != header.producer_epoch:
            producer.marks.clear()
            producer.epoch = header.producer_epoch
        return producer

    def on_marker_written(self, header: BatchHeader, marker: EndMarker, offset: int) -> CompletedTransaction | None:
        """Update the producer's state for a transaction marker that was written.

        Returns the transaction it completed, None where that had no data.
        """
        producer = self._in_epoch_of(header)
        if (old := self._verifications.get(header.producer_id)) is not None:
            # an answer that is still on its way verified the transaction that ends here
            self._verifications[header.producer_id] = Verification(old.began_ms, old.epoch)
        self._newest_offset = offset
        start = producer.transaction_start
        producer.transaction_start = None
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = header.max_timestamp
        if start is None:
            return None
        del self._open_transactions[header.producer_id]
        completed = CompletedTransaction(header.producer_id, start, offset, marker.type == 0)
        self._unreplicated.append(completed)
        return completed

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """The last stable offset once this transaction's marker is replicated."""
        others = [start for pid, start in self._open_transactions.items() if pid != completed.producer_id]
        return min(others, default=completed.last_offset + 1)

    @property
    def oldest_transaction_ms(self) -> int | None:
        """When the transaction that has been open for the longest had its last batch; None where none is open."""
        if not self._open_transactions:
            return None
        oldest = min(self._open_transactions, key=self._open_transactions.__getitem__)
        return self._producers[oldest].last_timestamp

    # -- the last stable offset --------------------------------------------------------------------------------------

    @property
    def first_unstable_offset(self) -> int | None:
        """The start of the oldest transaction that is open, or whose marker is not replicated yet."""
        starts = [*self._open_transactions.values(), *(done.first_offset for done in self._unreplicated)]
        return min(starts, default=None)

    @property
    def has_transactions(self) -> bool:
        """Whether a transaction is open, or its marker lies above the high watermark."""
        return bool(self._open_transactions or self._unreplicated)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Forget completed transactions whose marker is replicated."""
        while self._unreplicated and self._unreplicated[0].last_offset < high_watermark:
            self._unreplicated.popleft()

    # -- keeping -----------------------------------------------------------------------------------------------------

    def restore(self, producers: Iterable[Producer], end_offset: int) -> None:
        """Replace the state by the producers of a snapshot that was taken at `end_offset`."""
        self._producers = {producer.producer_id: producer for producer in producers}
        self._open_transactions = {
            p.producer_id: p.transaction_start for p in self._producers.values() if p.transaction_start is not None
        }
        self._unreplicated.clear()
        self._newest_offset = end_offset - 1 if self._producers else -1
        self.end_offset = end_offset

    def replace_by(self, other: "Producers") -> None:
        """Drop the own state of the producers and take over that of `other`."""
        self._producers = other._producers
        self._open_transactions = other._open_transactions
        self._unreplicated = other._unreplicated
        self._newest_offset = other._newest_offset
        self.end_offset = other.end_offset
        self.snapshot_offset = other.snapshot_offset

    def take_verifications(self, other: "Producers") -> None:
        """Take over what `other` knows of transactions that are about to begin: its log was replaced by ours."""
        self._verifications = other._verifications

    def has_state_from(self, offset: int) -> bool:
        """Whether any state may come from `offset` or later, so that a truncation there needs a replay.

        A transaction marker counts as much as data: without it its transaction is open again.
        """
        return self._newest_offset >= offset

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers that were idle for so long and have no open transaction, and return how many."""
        gone = [
            p.producer_id
            for p in self._producers.values()
            if p.transaction_start is None and now_ms - p.last_timestamp >= expiration_ms
        ]
        for producer_id in gone:
            del self._producers[producer_id]
        self._verifications = {
            producer_id: verification
            for producer_id, verification in self._verifications.items()
            if now_ms - verification.began_ms < expiration_ms
        }
        return len(gone)


def _check_epoch(known: Producer, header: BatchHeader) -> None:
    """Raise AppendRefused where the producer epoch is older than the known one."""
    if header.producer_epoch < known.epoch:
        raise AppendRefused(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {header.producer_id} sent a batch of epoch {header.producer_epoch}, its current epoch is "
            f"{known.epoch}: another instance took over. Restart this producer.",
        )


def _check_sequence(known: Producer, header: BatchHeader) -> None:
    """Raise AppendRefused where the sequence does not follow the last one."""
    sequence = header.base_sequence
    if header.producer_epoch != known.epoch:
        in_order = sequence == 0 or known.epoch == NO_PRODUCER_EPOCH
    else:
        in_order = sequence == add_to_sequence(known.last_sequence, 1)
    if not in_order:
        raise AppendRefused(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id}, epoch {header.producer_epoch}, sent sequence {sequence}, the last one was "
            f"{known.last_sequence} of epoch {known.epoch}: a batch between them is missing. Restart the producer.",
        )
