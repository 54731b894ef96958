"""Which records of the dirty range are the last ones of their keys."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from klamm.log.cleaner.key_hashes import hash_each
from klamm.log.cleaner.latest_records import LatestRecords
from klamm.log.cleaner.offset_map import OffsetMap

FAR = 2**62  # twice this offset has no place in 63 bits


def latest_of(records: list[tuple[bytes, bool]], start: int) -> LatestRecords:
    """`records` are keys with whether the value is null."""
    offset_map = OffsetMap(100, start)
    offsets = np.arange(start, start + len(records), dtype=np.int64)
    assert offset_map.add(
        hash_each([key for key, _ in records]), offsets, np.array([is_null for _, is_null in records], np.bool_)
    )
    offset_map.seal()
    return offset_map.latest


@given(
    st.lists(st.tuples(st.binary(max_size=1), st.booleans()), max_size=40),
    st.sampled_from([0, 1_000, FAR]),
    st.integers(0, 45),
    st.integers(0, 45),
)
def test_the_last_records_of_all_keys_are_found_and_counted_by_offset(
    records: list[tuple[bytes, bool]], start: int, first: int, last: int
) -> None:
    expected = {key: (start + i, is_null) for i, (key, is_null) in enumerate(records)}
    in_range = [is_null for offset, is_null in expected.values() if start + first <= offset <= start + last]
    latest = latest_of(records, start)
    ranges = np.array([start + first], np.int64), np.array([start + max(first - 1, last)], np.int64)
    every = np.arange(start, start + 45, dtype=np.int64)
    is_latest, is_tombstone = latest.find(every)

    assert latest.count(*ranges).tolist() == [len(in_range)]
    assert latest.count_tombstones(*ranges).tolist() == [sum(in_range)]
    assert set(every[is_latest].tolist()) == {offset for offset, _ in expected.values()}
    assert set(every[is_tombstone].tolist()) == {offset for offset, is_null in expected.values() if is_null}
