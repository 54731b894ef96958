"""Compares replicas batch by batch: every byte of the headers, and every checksum.

Followers store the batches of their leader as they are, so logs that were never compacted are equal. Only as much is in
memory as one read of each replica has. Source: ReplicaVerificationTool.scala.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from klamm.audit.replicas.replica_log import BrokenReplica, ReplicaLog
from klamm.wire.records.batch import HEADER_BYTES
from klamm.wire.vectors.batches import CorruptBatch, Headers, Run, check_crc


class Difference(NamedTuple):
    """The replicas have different batches at this offset; each group has equal ones, the largest group first."""

    offset: int
    groups: tuple[tuple[tuple[ReplicaLog, ...], str], ...]
    """Replicas, and their batch as text."""


class Comparison(NamedTuple):
    broken: list[tuple[ReplicaLog, BrokenReplica]]
    difference: Difference | None
    """The first one among the replicas that are not broken before it."""


class _Cursor:
    """The headers of one replica that are not compared yet."""

    def __init__(self, replica: ReplicaLog, start: int, end: int) -> None:
        self.replica = replica
        self.headers: Headers | None = None
        """None at the end."""
        self._found = _verified_headers(replica, start, end)
        self.advance(0)

    def advance(self, count: int) -> None:
        """Drop the first headers, and read more where none is left. Raises BrokenReplica."""
        self.headers = None if self.headers is None else self.headers[count:]
        if self.headers is None or not len(self.headers):
            self.headers = next(self._found, None)


def compare_batches(replicas: Sequence[ReplicaLog], start: int, end: int) -> Comparison:
    """Compare the replicas from `start` to before `end`. Raises ReplicaUnavailable, RangeMoved.

    A broken replica is reported and left out, the others are compared on.
    """
    broken: list[tuple[ReplicaLog, BrokenReplica]] = []
    cursors: list[_Cursor] = []
    for replica in replicas:
        try:
            cursors.append(_Cursor(replica, start, end))
        except BrokenReplica as error:
            broken.append((replica, error))
    while any(cursor.headers is not None for cursor in cursors):
        count, is_equal = _common_prefix([cursor.headers for cursor in cursors])
        if not is_equal:
            return Comparison(broken, _difference_at(cursors, count))
        for cursor in list(cursors):
            try:
                cursor.advance(count)
            except BrokenReplica as error:
                broken.append((cursor.replica, error))
                cursors.remove(cursor)
    return Comparison(broken, None)


def _common_prefix(found: Sequence[Headers | None]) -> tuple[int, bool]:
    """How many headers at the beginning are equal, and whether that is all that can be compared now."""
    present = [headers for headers in found if headers is not None]
    if len(present) < len(found):
        return 0, False
    count = min(map(len, present))
    rows = [_rows(headers[:count]) for headers in present]
    differs = np.zeros(count, np.bool_)
    for other in rows[1:]:
        differs |= (rows[0] != other).any(axis=1)
    return (int(np.argmax(differs)), False) if differs.any() else (count, True)


def _rows(headers: Headers) -> npt.NDArray[np.uint8]:
    """The headers as rows of bytes."""
    return np.ascontiguousarray(headers).view(np.uint8).reshape(len(headers), HEADER_BYTES)


def _difference_at(cursors: Sequence[_Cursor], at: int) -> Difference:
    """The batches of all replicas at this place, grouped."""
    groups: dict[bytes, list[ReplicaLog]] = {}
    texts: dict[bytes, str] = {}
    offsets = []
    for cursor in cursors:
        headers = cursor.headers
        key = b"" if headers is None else _rows(headers[at : at + 1]).tobytes()
        texts[key] = "no batch" if headers is None else _as_text(headers[at])
        groups.setdefault(key, []).append(cursor.replica)
        if headers is not None:
            offsets.append(int(headers[at]["base_offset"]))
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return Difference(min(offsets), tuple((tuple(members), texts[key]) for key, members in ordered))


def _as_text(header: np.void) -> str:
    """A batch as reports name it."""
    first = int(header["base_offset"])
    last = first + int(header["last_offset_delta"])
    return (
        f"offsets {first} to {last}, leader epoch {header['leader_epoch']}, "
        f"{int(header['batch_length']) + 12} bytes, checksum {int(header['crc']):#010x}"
    )


def _verified_headers(replica: ReplicaLog, start: int, end: int) -> Iterator[Headers]:
    """The headers of the replica's batches, after their checksums were verified. Raises BrokenReplica."""
    for piece in replica.read(start, end, committed=False):
        damage = damaged_batch(piece.run)
        if damage is None:
            yield piece.run.headers
            continue
        intact = piece.run.headers[: damage[0]]
        if len(intact):
            yield intact
        raise BrokenReplica(int(piece.run.headers[damage[0]]["base_offset"]), damage[1])


def damaged_batch(run: Run) -> tuple[int, str] | None:
    """The number of the first batch with a wrong checksum, and what is wrong; None where all are right."""
    try:
        check_crc(run)
    except CorruptBatch as error:
        return run.positions.index(error.position or 0), str(error)
    return None
