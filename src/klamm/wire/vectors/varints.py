"""Zig-zag varints, decoded as vectors: one call for all records. Source: ByteUtils.java."""

from typing import Final

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

    `first` has the byte at each position. Raises CorruptBatch for a varint longer than ten bytes, IndexError.
    """
    if len(raw) >= WORD_BYTES:
        words = words_at(raw, at).view(np.int64)
        second = words >> 7 & 1
        third = second & words >> 15
        if not (third & words >> 23).any():  # at most three bytes
            bits = words & 0x7F | (words >> 1 & 0x3F80) * second | (words >> 2 & 0x1F_C000) * third
            behind = at + 1 + second + third
            if int(behind.max()) > len(raw):
                raise IndexError
            return bits, behind
    return _read_any_varints(raw, at, first)


def _read_any_varints(raw: Bytes, at: Longs, first: Bytes) -> tuple[Longs, Longs]:
    """Do the same as `_read_long_varints` for varints of any length, a byte of all of them at a time."""
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


WORD_BYTES: Final = 8


def words_at(raw: Bytes, at: Longs) -> npt.NDArray[np.uint64]:
    """The eight bytes from each position on as a number, the first byte lowest; zeros follow the end of `raw`.

    `raw` has at least eight bytes, and the positions are inside it.
    """
    last = len(raw) - WORD_BYTES
    words = np.ndarray((last + 1,), "<u8", raw, strides=(1,))
    if int(at.max(initial=0)) <= last:
        return words[at].astype(np.uint64, copy=False)
    beyond = np.clip(at - last, 0, WORD_BYTES - 1).astype(np.uint64)
    return words[np.minimum(at, last)].astype(np.uint64, copy=False) >> (beyond * np.uint64(8))
