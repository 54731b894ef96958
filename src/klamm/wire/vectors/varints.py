"""Zig-zag varints, decoded as vectors: one call for all records. Source: ByteUtils.java."""

import numpy as np
import numpy.typing as npt

from klamm.wire.vectors.batches import CorruptBatch

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]

LONGEST = 10  # bytes of a varint that holds 64 bits


def read_varints(raw: Bytes, at: Longs) -> tuple[Longs, Longs]:
    """The varint at each position of `at`, and the position after it.

    Raises CorruptBatch where one passes the end of the buffer or has more than ten bytes.
    """
    try:
        first = raw[at]
        if first.size and first.max() > 127:
            bits, behind = _read_long_varints(raw, at, first)
        else:
            bits, behind = first.astype(np.int64), at + 1
    except IndexError as error:
        raise CorruptBatch(
            f"a record is cut off: its number at byte {int(at.max())} of the batches passes their end, byte {len(raw)}"
        ) from error
    return ((bits >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(bits & 1), behind


def _read_long_varints(raw: Bytes, at: Longs, first: Bytes) -> tuple[Longs, Longs]:
    """Return the bits of the varints at the positions `at`, before zig-zag decoding, and the positions after them.

    `first` has the byte at each position. Raises CorruptBatch for a varint longer than ten bytes.
    """
    bits = (first & 127).astype(np.int64)
    behind = at + 1
    open_ones = np.flatnonzero(first > 127)
    for k in range(1, LONGEST):
        more = raw[at[open_ones] + k]
        bits[open_ones] |= (more & 127).astype(np.int64) << (7 * k)
        behind[open_ones] += 1
        open_ones = open_ones[more > 127]
        if not open_ones.size:
            return bits, behind
    raise CorruptBatch(f"the varint at byte {int(at[open_ones[0]])} of the batches is longer than ten bytes")
