"""The last offset of each key, in bounded memory. Source: SkimpyOffsetMap.java.

Keys are known by 128 bits of a hash with a secret of this process. Where a hash of 64 bits belongs to two keys, one of
them may count as unknown: its records stay.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from klamm.wire.vectors.varints import Longs

BYTES_PER_KEY: Final = 48
"""24 bytes for hash and offset, and as many while duplicates are removed."""
UNKNOWN: Final = -1
_SECOND: Final = b"\x00"


class KeyHashes(NamedTuple):
    """Two independent hashes of each key."""

    first: Longs
    second: Longs


def hash_keys(content: bytes, starts: Sequence[int], ends: Sequence[int]) -> KeyHashes:
    """The hashes of the keys at these positions of `content`."""
    keys = [content[start:end] for start, end in zip(starts, ends, strict=True)]
    first = np.fromiter(map(hash, keys), np.int64, len(keys))
    second = np.fromiter(map(hash, [_SECOND + key for key in keys]), np.int64, len(keys))
    return KeyHashes(first, second)


class OffsetMap:
    """At most `capacity` keys. Offsets must be added in rising order; `get` works once `seal` was called."""

    def __init__(self, capacity: int) -> None:
        self._first = np.empty(capacity, np.int64)
        self._second = np.empty(capacity, np.int64)
        self._offsets = np.empty(capacity, np.int64)
        self._count = 0
        self.latest_offset = UNKNOWN
        """All records up to this offset are in the map."""

    @property
    def utilization(self) -> float:
        """The used share of the map's capacity, 0 to 1."""
        return self._count / len(self._first)

    def add(self, hashes: KeyHashes, offsets: Longs) -> bool:
        """Add the keys with their offsets. If they do not all fit, add none and return False."""
        more = len(offsets)
        if self._count + more > len(self._first):
            self._remove_duplicates()
        end = self._count + more
        if end > len(self._first):
            return False
        self._first[self._count : end] = hashes.first
        self._second[self._count : end] = hashes.second
        self._offsets[self._count : end] = offsets
        self._count = end
        return True

    def seal(self) -> None:
        """Remove duplicate keys once after the last `add`; `get` is valid from then on."""
        self._remove_duplicates()

    def get(self, hashes: KeyHashes) -> Longs:
        """The last offset of each key; -1 for those that are not in the map."""
        count = self._count
        if not count:
            return np.full(len(hashes.first), UNKNOWN, np.int64)
        slots = np.minimum(np.searchsorted(self._first[:count], hashes.first), count - 1)
        same = (self._first[slots] == hashes.first) & (self._second[slots] == hashes.second)
        found: npt.NDArray[np.int64] = np.where(same, self._offsets[slots], UNKNOWN)
        return found

    def _remove_duplicates(self) -> None:
        """Keep the last offset of each key, in the order of the hashes."""
        count = self._count
        if not count:
            return
        first, second, offsets = self._first[:count], self._second[:count], self._offsets[:count]
        order = np.lexsort((offsets, second, first))
        sorted_first, sorted_second = first[order], second[order]
        is_last = np.ones(count, np.bool_)
        is_last[:-1] = (sorted_first[1:] != sorted_first[:-1]) | (sorted_second[1:] != sorted_second[:-1])
        kept = int(is_last.sum())
        offsets[:kept] = offsets[order][is_last]
        first[:kept] = sorted_first[is_last]
        second[:kept] = sorted_second[is_last]
        self._count = kept
