"""The judge is judged: each planted anomaly is found, and a clean history stays clean."""

import pytest
from tests.support.history import Acknowledged, Found, compare, last_of_each_key

CLEAN = {0: [Found(0, 1), Found(1, 2), Found(3, 3)], 1: [Found(0, 1)]}
PROMISED = [Acknowledged(0, 1, 0), Acknowledged(0, 3, 3), Acknowledged(1, 1, 0)]


def test_the_checker_of_client_histories_accepts_a_history_without_anomalies() -> None:
    verdict = compare(PROMISED, CLEAN)

    assert verdict.is_clean
    assert str(verdict).startswith("3 acknowledged, 4 found, 0 lost, 0 duplicated")


def test_the_checker_of_client_histories_accepts_unacknowledged_records_present_or_absent() -> None:
    assert compare(PROMISED[:1], CLEAN).is_clean


PLANTED = {
    "lost": ({0: [Found(0, 1), Found(1, 2)], 1: [Found(0, 1)]}, "lost"),
    "partition gone": ({0: CLEAN[0]}, "lost"),
    "twice": ({0: [*CLEAN[0], Found(4, 3)], 1: CLEAN[1]}, "duplicated"),
    "order": ({0: [Found(0, 2), Found(1, 1), Found(3, 3)], 1: CLEAN[1]}, "reordered"),
    "offset again": ({0: [Found(0, 1), Found(0, 2), Found(3, 3)], 1: CLEAN[1]}, "reordered"),
    "another offset": ({0: [Found(0, 1), Found(1, 2), Found(4, 3)], 1: CLEAN[1]}, "misplaced"),
}


@pytest.mark.parametrize(("found", "anomaly"), PLANTED.values(), ids=PLANTED)
def test_the_checker_of_client_histories_finds_each_injected_anomaly(
    found: dict[int, list[Found]], anomaly: str
) -> None:
    verdict = compare(PROMISED, found)

    assert getattr(verdict, anomaly)
    assert not verdict.is_clean


def test_of_a_compacted_topic_only_the_last_record_of_each_key_is_expected() -> None:
    acknowledged = [Acknowledged(p, number, number * 2) for p in (0, 1) for number in (1, 2, 4, 3, 5)]

    expected = last_of_each_key(acknowledged, keys=2)

    assert sorted(expected) == [Acknowledged(p, number, number * 2) for p in (0, 1) for number in (4, 5)]
