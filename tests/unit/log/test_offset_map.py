"""The offset map: last offsets, its bound, keys whose hashes meet; the hashes of keys."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.log.cleaner.key_hashes import MAX_VECTOR_BYTES, KeyHashes, hash_each, hash_keys
from klamm.log.cleaner.offset_map import OffsetMap


def add(offset_map: OffsetMap, hashes: KeyHashes, offsets: np.ndarray[tuple[int], np.dtype[np.int64]]) -> bool:
    return offset_map.add(hashes, offsets, np.zeros(len(offsets), np.bool_))


def offsets(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


@given(st.lists(st.lists(st.binary(max_size=3), max_size=20), max_size=8))
def test_the_cleaners_offset_map_holds_the_last_offset_of_each_key(rounds: list[list[bytes]]) -> None:
    offset_map, offset = OffsetMap(200), 0
    expected: dict[bytes, int] = {}
    for keys in rounds:
        numbers = list(range(offset, offset + len(keys)))
        assert add(offset_map, hash_each(keys), offsets(*numbers))
        expected.update(zip(keys, numbers, strict=True))
        offset += len(keys)
    offset_map.seal()
    asked = [*expected, b"unknown"]

    assert offset_map.get(hash_each(asked)).tolist() == [*expected.values(), -1]


def test_a_full_cleaner_offset_map_accepts_known_keys_and_refuses_new_keys() -> None:
    offset_map = OffsetMap(3)
    assert add(offset_map, hash_each([b"a", b"b", b"c"]), offsets(0, 1, 2))
    assert not add(offset_map, hash_each([b"d"]), offsets(3))
    offset_map = OffsetMap(3)
    assert add(offset_map, hash_each([b"a", b"a", b"b"]), offsets(0, 1, 2))
    assert add(offset_map, hash_each([b"c"]), offsets(3))
    offset_map.seal()
    assert offset_map.get(hash_each([b"a", b"b", b"c"])).tolist() == [1, 2, 3]
    assert offset_map.utilization == pytest.approx(1.0)


def test_the_cleaners_offset_map_distinguishes_keys_that_share_half_of_their_hash() -> None:
    """One of them may count as unknown, which keeps its records."""
    offset_map = OffsetMap(4)
    add(offset_map, KeyHashes(offsets(5, 5), offsets(1, 2)), offsets(10, 20))
    offset_map.seal()

    assert offset_map.get(KeyHashes(offsets(5, 5, 5), offsets(1, 2, 3))).tolist() in ([10, -1, -1], [-1, 20, -1])


def as_pairs(hashes: KeyHashes) -> list[tuple[int, int]]:
    return list(zip(hashes.first.tolist(), hashes.second.tolist(), strict=True))


@given(st.lists(st.binary(max_size=2 * MAX_VECTOR_BYTES), max_size=10, unique=True), st.binary(max_size=20))
def test_the_hash_of_a_key_depends_on_its_bytes_and_not_on_its_place(keys: list[bytes], before: bytes) -> None:
    """Neither what stands before it, nor the end of the buffer, nor longer keys beside it."""
    alone = [pair for key in keys for pair in as_pairs(hash_each([key]))]
    raw = np.frombuffer(before + b"".join(keys), np.uint8)
    ends = np.cumsum([len(key) for key in keys], dtype=np.int64) + len(before)
    starts = ends - np.array([len(key) for key in keys], np.int64)

    assert as_pairs(hash_keys(raw, starts, ends)) == alone


def test_keys_that_differ_in_a_byte_or_in_their_length_have_different_hashes() -> None:
    keys = {bytes(length) for length in range(2 * MAX_VECTOR_BYTES)}
    for length in range(1, 2 * MAX_VECTOR_BYTES, 7):
        keys |= {bytes(place) + b"\x01" + bytes(length - place - 1) for place in range(length)}
    pairs = as_pairs(hash_each(list(keys)))

    assert len({first for first, _ in pairs}) == len({second for _, second in pairs}) == len(keys)
    assert all(first != second for first, second in pairs)
