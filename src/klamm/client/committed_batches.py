"""Which batches a `read_committed` reader skips. Source: CompletedFetch.java (clients)."""

from collections.abc import Collection
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from klamm.client.read_committed import Aborted, AbortedTransactions
from klamm.wire.records.batch import CONTROL_BIT, HEADER_BYTES
from klamm.wire.vectors.batches import Run

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


def _is_abort(run: Run, i: int) -> bool:
    """Whether a marker aborts its transaction: its one record has a key of two shorts, version and type."""
    key = run.positions[i] + HEADER_BYTES + 5
    return int.from_bytes(run.buffer[key + 2 : key + 4]) == ABORT
