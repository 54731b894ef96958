"""The end of a micro-batch: limits shared in proportion, and a minimum with a longest wait."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.model.ids import TopicPartition
from klamm.spark.options import TriggerLimits
from klamm.spark.rate_limits import is_enough, limit_offsets

P0, P1, P2 = (TopicPartition("orders", n) for n in range(3))


def limits(
    max_offsets: int | None = None, max_bytes: int | None = None, min_offsets: int | None = None
) -> TriggerLimits:
    return TriggerLimits(max_offsets, max_bytes, min_offsets, 60.0)


def test_a_micro_batch_without_limits_ends_at_the_log_ends() -> None:
    assert limit_offsets({P0: 3}, {P0: 99}, limits(), {}) == {P0: 99}


def test_max_offsets_per_trigger_are_shared_in_proportion_to_each_partitions_backlog() -> None:
    ends = limit_offsets({P0: 0, P1: 100, P2: 7}, {P0: 300, P1: 400, P2: 7}, limits(60), {})

    assert ends == {P0: 30, P1: 130, P2: 7}


def test_each_partition_with_records_gets_at_least_one_offset_of_a_limited_batch() -> None:
    assert limit_offsets({P0: 0, P1: 0}, {P0: 10_000, P1: 1}, limits(10), {}) == {P0: 9, P1: 1}


def test_max_bytes_per_trigger_are_converted_to_offsets_by_average_record_size() -> None:
    ends = limit_offsets({P0: 0, P1: 0}, {P0: 1_000, P1: 1_000}, limits(max_bytes=55_000), {P0: 100.0, P1: 1_000.0})

    assert ends == {P0: 50, P1: 50}


def test_a_micro_batch_respects_both_the_offset_limit_and_the_byte_limit() -> None:
    assert limit_offsets({P0: 0}, {P0: 1_000}, limits(500, 10_000), {P0: 100.0}) == {P0: 100}
    assert limit_offsets({P0: 0}, {P0: 1_000}, limits(50, 10_000), {P0: 100.0}) == {P0: 50}


offsets = st.dictionaries(st.sampled_from([P0, P1, P2]), st.tuples(st.integers(0, 50), st.integers(0, 500)), min_size=1)


@given(offsets, st.integers(1, 600))
def test_a_limited_micro_batch_advances_every_partition_and_stays_within_the_limit(
    given_offsets: dict[TopicPartition, tuple[int, int]], most: int
) -> None:
    begins = {p: begin for p, (begin, _) in given_offsets.items()}
    latest = {p: begin + size for p, (begin, size) in given_offsets.items()}

    ends = limit_offsets(begins, latest, limits(most), {})

    assert all(begins[p] < ends[p] <= latest[p] if begins[p] < latest[p] else ends[p] == latest[p] for p in ends)
    assert sum(ends[p] - begins[p] for p in ends) <= max(most, sum(begins[p] < latest[p] for p in ends)) + len(ends)


DUE = {
    "no minimum": (None, 0, 0.0, True),
    "enough": (100, 100, 0.0, True),
    "too few": (100, 99, 59.0, False),
    "too few for too long": (100, 1, 60.0, True),
    "the first batch of a run": (100, 1, None, True),
}


@pytest.mark.parametrize(("least", "available", "waited_s", "due"), DUE.values(), ids=DUE)
def test_a_micro_batch_begins_with_enough_rows_or_after_the_maximum_delay(
    least: int | None, available: int, waited_s: float | None, due: bool
) -> None:
    assert is_enough({P0: 5}, {P0: 5 + available}, limits(min_offsets=least), waited_s) is due
