import pytest

from klamm.log.epochs import EpochEnd
from klamm.replication.truncation import truncation_offset

CASES = {
    "leader knows no end": (EpochEnd(-1, -1), EpochEnd(2, 8), 4),
    "leader tells no epoch": (EpochEnd(-1, 6), EpochEnd(-1, -1), 6),
    "same epoch, leader's end is lower": (EpochEnd(2, 6), EpochEnd(2, 8), 6),
    "same epoch, our end of it is lower": (EpochEnd(2, 9), EpochEnd(2, 8), 8),
    "same epoch, both beyond our log": (EpochEnd(2, 30), EpochEnd(2, 20), 10),
    "an epoch we never had": (EpochEnd(3, 9), EpochEnd(2, 5), 5),
    "an epoch we never had, whose end lies inside an older one of ours": (EpochEnd(3, 4), EpochEnd(2, 5), 5),
    "no epoch of ours is that old": (EpochEnd(0, 7), EpochEnd(-1, -1), 7),
    "no epoch of ours is that old, leader's end beyond our log": (EpochEnd(0, 17), EpochEnd(-1, -1), 10),
}


@pytest.mark.parametrize(("leader", "own", "expected"), CASES.values(), ids=CASES)
def test_the_truncation_offset_is_the_end_of_the_largest_common_leader_epoch(
    leader: EpochEnd, own: EpochEnd, expected: int
) -> None:
    assert truncation_offset(leader, own, 10, 4) == expected
