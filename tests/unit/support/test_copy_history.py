"""The comparison of a committed copy notices each kind of anomaly, and nothing else."""

from tests.support.copy_history import (
    CommittedCopy,
    Copied,
    OffsetRead,
    aborted_reads,
    doubled,
    lost,
    lost_commits,
    old_offsets,
    torn,
    unconfirmed,
    withdrawn,
)

COPY = [
    Copied(0, 0, 1, "a", 3), Copied(0, 1, 2, "a", 3), Copied(1, 0, 1, "a", 3), Copied(0, 3, 3, "b", 1),
]  # fmt: skip
SOURCE = {0: [1, 2, 3], 1: [1]}


def test_a_complete_copy_in_order_has_no_anomaly() -> None:
    assert lost(SOURCE, COPY) == []
    assert doubled(SOURCE, reversed(COPY)) == []
    assert torn(COPY) == []
    assert aborted_reads({"c"}, COPY) == []
    assert withdrawn(COPY[1:], COPY) == []


def test_a_record_that_is_not_in_the_copy_is_lost() -> None:
    assert lost({0: [1, 2, 3, 4], 1: [1], 2: [9]}, COPY) == [
        "partition 0: record 4 is not in the copy", "partition 2: record 9 is not in the copy"
    ]  # fmt: skip


def test_a_record_that_is_copied_twice_or_before_an_earlier_one_is_an_anomaly() -> None:
    again = [*COPY, Copied(0, 4, 3, "c", 1)]
    assert doubled(SOURCE, again) == ["partition 0: record 3 is copied 1 times too often"]
    assert doubled({0: [1, 3, 2], 1: [1]}, COPY) == ["partition 0: record 2 is out of order"]


def test_a_record_that_the_source_has_twice_may_be_copied_twice() -> None:
    assert doubled({0: [1, 2, 3, 3], 1: [1]}, [*COPY, Copied(0, 4, 3, "c", 1)]) == []


def test_a_lost_record_leaves_the_others_in_order() -> None:
    assert doubled({0: [1, 2, 3, 4], 1: [0, 1]}, COPY) == []


def test_a_transaction_with_a_missing_record_is_torn() -> None:
    assert torn(COPY[1:]) == ["a: 2 of 3 records"]


def test_a_visible_record_of_an_aborted_transaction_is_an_aborted_read() -> None:
    assert aborted_reads({"b"}, COPY) == ["0 at 3: of aborted b"]


def test_a_record_that_was_read_and_is_not_committed_afterwards_is_an_aborted_read() -> None:
    assert withdrawn([*COPY, Copied(1, 5, 6, "d", 1)], COPY) == ["1 at 5: seen once, of d"]


def test_a_record_whose_commit_was_refused_is_unconfirmed_and_not_lost_where_the_group_is_at_the_end() -> None:
    committed = [(0, 0), (0, 2), (1, 0)]
    assert unconfirmed([(0, 0), (0, 1), (0, 1), (0, 2), (1, 0)], committed) == {(0, 1)}
    assert lost_commits(committed, {"readers": {0: 3, 1: 1}}, {0: 3, 1: 1}) == []


def test_a_group_whose_offset_is_before_the_end_that_it_has_read_has_lost_a_commit() -> None:
    assert lost_commits([], {"readers": {0: 3, 1: 1}, "copiers": {0: 2}}, {0: 3, 1: 1}) == [
        "partition 0: it ends at 3 and was read to its end, 2 is stored for the group copiers",
        "partition 1: it ends at 1 and was read to its end, None is stored for the group copiers",
    ]


def test_a_record_that_was_committed_twice_is_a_lost_commit() -> None:
    assert lost_commits([(0, 4), (0, 4)], {}, {}) == ["partition 0: offset 4 was committed 2 times"]


def test_a_committed_offset_older_than_one_committed_before_it_was_asked_for_is_an_anomaly() -> None:
    copies = [CommittedCopy("one", "a", 0, 0, 20, 1.0), CommittedCopy("two", "b", 0, 20, 40, 2.0)]
    current = [OffsetRead("one", "an abort", 0, 20, 1.5), OffsetRead("one", "an abort", 0, 40, 2.5)]
    assert old_offsets(copies, [*current, OffsetRead("one", "an abort", 1, -1, 2.5)]) == []
    assert old_offsets(copies, [OffsetRead("one", "an abort", 0, 20, 2.5)]) == [
        "partition 0: after an abort, one was told 20 at 2.500 s; two committed 40 at 2.000 s"
    ]


def test_a_transaction_that_begins_before_the_end_of_an_earlier_one_is_an_anomaly() -> None:
    copies = [CommittedCopy("one", "a", 0, 0, 20, 1.0), CommittedCopy("two", "b", 0, 10, 30, 2.0)]
    assert old_offsets(copies, []) == [
        "partition 0: two copied 10 to 30 in b, ended at 2.000 s; one had copied up to 20 in a, ended at 1.000 s"
    ]
