"""What a controlled shutdown of a broker would do to its partitions."""

import pytest

from klamm.controller.decisions.shutdown_verdict import PartitionFacts, Verdict, assess_shutdown
from klamm.model.ids import BrokerId, TopicPartition

A0 = TopicPartition("a", 0)


def judged(leader: int, replicas: str, isr: str, min_isr: int, live: str = "123") -> Verdict:
    """The prediction for broker 1 and one partition; each digit is a broker."""
    brokers = [tuple(map(BrokerId, map(int, text))) for text in (replicas, isr, live)]
    facts = PartitionFacts(A0, BrokerId(leader), brokers[0], brokers[1], min_isr)
    return assess_shutdown(BrokerId(1), frozenset(brokers[2]), [facts])


CASES = {
    "another in-sync replica takes over": (judged(1, "123", "123", 2), (0, 0, 1)),
    "it only follows": (judged(2, "123", "123", 2), (0, 0, 0)),
    "it holds nothing": (judged(2, "23", "23", 2), (0, 0, 0)),
    "the only replica": (judged(1, "1", "1", 1), (1, 0, 0)),
    "nobody else is in sync": (judged(1, "123", "1", 1), (1, 0, 0)),
    "the others in sync are away": (judged(1, "12", "12", 1, live="13"), (1, 0, 0)),
    "too few in sync are left": (judged(1, "123", "12", 2), (0, 1, 1)),
    "a follower less is too few": (judged(2, "123", "12", 2), (0, 1, 0)),
    "a follower that is not in sync changes nothing": (judged(2, "123", "2", 2), (0, 0, 0)),
}


@pytest.mark.parametrize(("verdict", "expected"), CASES.values(), ids=CASES)
def test_stopping_a_broker_is_unsafe_if_partitions_lose_their_leader_or_min_isr(
    verdict: Verdict, expected: tuple[int, int, int]
) -> None:
    assert (len(verdict.leaderless), len(verdict.below_min_isr), len(verdict.moves)) == expected
    assert verdict.is_safe is (expected[:2] == (0, 0))


def test_the_report_of_an_unsafe_broker_stop_gives_the_remaining_in_sync_replicas() -> None:
    assert judged(1, "123", "12", 2).below_min_isr == {A0: "1 of 2 in-sync replicas would be left"}
    assert judged(1, "123", "12", 3).below_min_isr == {
        A0: "1 of 3 in-sync replicas would be left (it is below already)"
    }
    assert judged(1, "1", "1", 1).leaderless == {A0: "it is the only replica"}
    assert judged(1, "123", "1", 1).leaderless == {A0: "no other replica is in sync: 2, 3"}
