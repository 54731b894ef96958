"""Which batches a `read_committed` reader skips. Source: CompletedFetch.java (clients)."""

from collections.abc import Collection, Iterable
from functools import partial
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from klamm.client.read_committed import Aborted, AbortedTransactions
from klamm.wire.records.batch import CONTROL_BIT, HEADER_BYTES
from klamm.wire.vectors.batches import Run


class AbortedRange(Protocol):
    """An aborted transaction with the offset of its marker, as the transaction index of a log has it."""

    @property
    def producer_id(self) -> int:
        """The producer of the transaction."""
        ...

    @property
    def first_offset(self) -> int:
        """The offset of its first record."""
        ...

    @property
    def last_offset(self) -> int:
        """The offset of its end marker."""
        ...


ABORT: Final = 0  # type of a control record; a commit is 1


def data_batches(run: Run) -> npt.NDArray[np.bool_]:
    """Return, for each batch, whether it holds records of clients and not a transaction's marker."""
    kept: npt.NDArray[np.bool_] = (run.headers["attributes"] & CONTROL_BIT) == 0
    return kept


def committed_batches(run: Run, aborted: Collection[Aborted]) -> npt.NDArray[np.bool_]:
    """Return, for each batch, whether it is a data batch that belongs to no aborted transaction."""
    kept = data_batches(run)
    if not aborted:
        return kept
    transactions = AbortedTransactions(aborted)
    last_offsets = run.last_offsets
    for i, header in enumerate(run.headers):
        is_hidden = transactions.hide(
            int(last_offsets[i]), int(header["producer_id"]), int(header["attributes"]), partial(_is_abort, run, i)
        )
        kept[i] &= not is_hidden
    return kept


def aborted_in(run: Run, transactions: Iterable[AbortedRange]) -> list[Aborted]:
    """Those of the aborted transactions that may have records in the run, as Fetch returns them."""
    first, end = int(run.headers["base_offset"][0]), run.next_offset
    return [
        Aborted(t.first_offset, t.producer_id) for t in transactions if t.first_offset < end and t.last_offset >= first
    ]


def _is_abort(run: Run, i: int) -> bool:
    """Whether a marker aborts its transaction: its one record has a key of two shorts, version and type."""
    key = run.positions[i] + HEADER_BYTES + 5
    return int.from_bytes(run.buffer[key + 2 : key + 4]) == ABORT
