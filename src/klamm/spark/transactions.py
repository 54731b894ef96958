"""Which batches a `read_committed` reader passes over. Source: CompletedFetch.java (clients)."""

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from klamm.wire.records.batch import CONTROL_BIT, HEADER_BYTES, TRANSACTIONAL_BIT
from klamm.wire.vectors.batches import Run

ABORT: Final = 0  # type of a control record; a commit is 1


class Aborted(NamedTuple):
    """A transaction that Fetch reports as aborted, as far as it reaches into what was fetched."""

    first_offset: int
    producer_id: int


def data_batches(run: Run) -> npt.NDArray[np.bool_]:
    """Return, for each batch, whether it holds records of clients and not a transaction's marker."""
    kept: npt.NDArray[np.bool_] = (run.headers["attributes"] & CONTROL_BIT) == 0
    return kept


def committed_batches(run: Run, aborted: Iterable[Aborted]) -> npt.NDArray[np.bool_]:
    """Return, for each batch, whether it is a data batch that belongs to no aborted transaction.

    An aborted transaction holds from its first offset to its producer's next abort marker.
    """
    kept = data_batches(run)
    waiting = deque(sorted(aborted))
    if not waiting:
        return kept
    open_aborts: set[int] = set()
    last_offsets = run.last_offsets
    for i, header in enumerate(run.headers):
        while waiting and waiting[0].first_offset <= last_offsets[i]:
            open_aborts.add(waiting.popleft().producer_id)
        producer = int(header["producer_id"])
        if header["attributes"] & CONTROL_BIT:
            if _is_abort(run, i):
                open_aborts.discard(producer)
        elif header["attributes"] & TRANSACTIONAL_BIT and producer in open_aborts:
            kept[i] = False
    return kept


def _is_abort(run: Run, i: int) -> bool:
    """Whether a marker aborts its transaction: its one record has a key of two shorts, version and type."""
    key = run.positions[i] + HEADER_BYTES + 5
    return int.from_bytes(run.buffer[key + 2 : key + 4]) == ABORT
