"""Two hashes of 64 bits for each key, calculated as vectors: one call for all keys of many batches.

A key of at most `MAX_VECTOR_BYTES` is hashed by the multilinear family of Lemire and Kaser ("Strongly universal string
hashing is fast"): the upper half of the sum, modulo 2^64, of its 32-bit words times secret factors. For any two keys,
each of the four sums is equal with a probability of 2^-32, whoever chose the keys, because the factors depend on a
secret of this process. Python's own keyed hash serves longer keys.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from klamm.wire.vectors.varints import WORD_BYTES, Bytes, Longs, words_at

MAX_VECTOR_BYTES: Final = 64
"""Above, a vector step for each word costs more than Python's hash of a whole key."""
_SUMS: Final = 4
_SECOND: Final = b"\x00"

_Words = npt.NDArray[np.uint64]
_LOW: Final = np.uint64(0xFFFF_FFFF)
_HALF: Final = np.uint64(32)
_MASKS: Final = np.array([(1 << 8 * count) - 1 for count in range(WORD_BYTES + 1)], np.uint64)
"""By the number of bytes of a word that belong to the key."""


class KeyHashes(NamedTuple):
    """Two independent hashes of each key."""

    first: Longs
    second: Longs


def _secret_factors() -> _Words:
    """Return one factor per sum and place: a constant, the length of the key, then its 32-bit words.

    They are values of Python's hash, whose key is the secret of this process.
    """
    names = [b"factor %d %d" % (i, place) for i in range(_SUMS) for place in range(2 + MAX_VECTOR_BYTES // 4)]
    return np.fromiter(map(hash, names), np.int64, len(names)).view(np.uint64).reshape(_SUMS, -1)


_FACTORS: Final = _secret_factors()


def hash_each(keys: Sequence[bytes]) -> KeyHashes:
    """The hashes of these keys."""
    ends = np.cumsum([len(key) for key in keys], dtype=np.int64)
    starts = np.concatenate((np.zeros(1, np.int64), ends))[: len(keys)]
    return hash_keys(np.frombuffer(b"".join(keys), np.uint8), starts, ends)


def hash_keys(raw: Bytes, starts: Longs, ends: Longs) -> KeyHashes:
    """The hashes of the keys at these positions of `raw`."""
    lengths = ends - starts
    hashes = _hash_short(raw, starts, np.minimum(lengths, MAX_VECTOR_BYTES))
    long = np.flatnonzero(lengths > MAX_VECTOR_BYTES)
    if long.size:
        spans = zip(starts[long].tolist(), ends[long].tolist(), strict=True)
        keys = [raw[start:end].tobytes() for start, end in spans]
        hashes.first[long] = np.fromiter(map(hash, keys), np.int64, len(keys))
        hashes.second[long] = np.fromiter(map(hash, [_SECOND + key for key in keys]), np.int64, len(keys))
    return hashes


def _hash_short(raw: Bytes, starts: Longs, lengths: Longs) -> KeyHashes:
    """The hashes of keys of at most `MAX_VECTOR_BYTES`: four sums, of whose upper halves the two hashes consist."""
    if len(raw) < WORD_BYTES:
        raw = np.concatenate((raw, np.zeros(WORD_BYTES, np.uint8)))
    sums = [np.full(len(starts), factors[0]) for factors in _FACTORS]
    _add_word(sums, 1, lengths.astype(np.uint64))
    for i in range(-(-int(lengths.max(initial=0)) // WORD_BYTES)):
        words = words_at(raw, starts + i * WORD_BYTES)
        inside = lengths - i * WORD_BYTES
        if inside.min() < WORD_BYTES:
            words &= _MASKS[np.clip(inside, 0, WORD_BYTES)]
        _add_word(sums, 2 + 2 * i, words & _LOW)
        _add_word(sums, 3 + 2 * i, words >> _HALF)
    halves = [total >> _HALF for total in sums]
    first, second = ((upper << _HALF | lower).view(np.int64) for upper, lower in (halves[:2], halves[2:]))
    return KeyHashes(first, second)


def _add_word(sums: Sequence[_Words], place: int, words: _Words) -> None:
    """Add the 32-bit words of all keys at this place to each of the sums, times the sum's factor for the place."""
    for total, factors in zip(sums, _FACTORS, strict=True):
        total += words * factors[place]
