"""The offset map: last offsets, its bound, keys whose hashes meet."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.log.cleaner.offset_map import KeyHashes, OffsetMap, hash_keys


def hashes(keys: list[bytes]) -> KeyHashes:
    ends = np.cumsum([len(key) for key in keys]).tolist()
    return hash_keys(b"".join(keys), [end - len(key) for key, end in zip(keys, ends, strict=True)], ends)


def offsets(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


@given(st.lists(st.lists(st.binary(max_size=3), max_size=20), max_size=8))
def test_the_cleaners_offset_map_holds_the_last_offset_of_each_key(rounds: list[list[bytes]]) -> None:
    offset_map, offset = OffsetMap(200), 0
    expected: dict[bytes, int] = {}
    for keys in rounds:
        numbers = list(range(offset, offset + len(keys)))
        assert offset_map.add(hashes(keys), offsets(*numbers))
        expected.update(zip(keys, numbers, strict=True))
        offset += len(keys)
    offset_map.seal()
    asked = [*expected, b"unknown"]

    assert offset_map.get(hashes(asked)).tolist() == [*expected.values(), -1]


def test_a_full_cleaner_offset_map_accepts_known_keys_and_refuses_new_keys() -> None:
    offset_map = OffsetMap(3)
    assert offset_map.add(hashes([b"a", b"b", b"c"]), offsets(0, 1, 2))
    assert not offset_map.add(hashes([b"d"]), offsets(3))
    offset_map = OffsetMap(3)
    assert offset_map.add(hashes([b"a", b"a", b"b"]), offsets(0, 1, 2))
    assert offset_map.add(hashes([b"c"]), offsets(3))
    offset_map.seal()
    assert offset_map.get(hashes([b"a", b"b", b"c"])).tolist() == [1, 2, 3]
    assert offset_map.utilization == pytest.approx(1.0)


def test_the_cleaners_offset_map_distinguishes_keys_that_share_half_of_their_hash() -> None:
    """One of them may count as unknown, which keeps its records."""
    offset_map = OffsetMap(4)
    offset_map.add(KeyHashes(offsets(5, 5), offsets(1, 2)), offsets(10, 20))
    offset_map.seal()

    assert offset_map.get(KeyHashes(offsets(5, 5, 5), offsets(1, 2, 3))).tolist() in ([10, -1, -1], [-1, 20, -1])
