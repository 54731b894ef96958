"""Which batches a `read_committed` reader passes over. Source: CompletedFetch.java (clients)."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from klamm.wire.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader, Buffer
from klamm.wire.records.build import ControlType, end_marker_of


class Aborted(NamedTuple):
    """A transaction that Fetch reports as aborted, as far as it reaches into what was fetched."""

    first_offset: int
    producer_id: int


class AbortedTransactions:
    """The aborted transactions of one fetch: each holds from its first offset to its producer's next abort marker."""

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._waiting = deque(sorted(aborted))
        self._open: set[int] = set()

    def hide(self, last_offset: int, producer_id: int, attributes: int, is_abort: Callable[[], bool]) -> bool:
        """Whether a batch is of an aborted transaction; call it for every batch, in order.

        `is_abort`: whether a control batch aborts its transaction; it is called for control batches only.
        """
        while self._waiting and self._waiting[0].first_offset <= last_offset:
            self._open.add(self._waiting.popleft().producer_id)
        if attributes & CONTROL_BIT:
            if producer_id in self._open and is_abort():
                self._open.discard(producer_id)
            return False
        return bool(attributes & TRANSACTIONAL_BIT) and producer_id in self._open


def is_abort_marker(buffer: Buffer, header: BatchHeader) -> bool:
    """Whether a control batch is the abort marker of its transaction. Raises CorruptRecords."""
    marker = end_marker_of(buffer, header)
    return marker is not None and marker.type is ControlType.ABORT
