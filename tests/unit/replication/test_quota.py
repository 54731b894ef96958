"""The throttle of replication: a rate over sliding windows, and what it applies to."""

import pytest

from klamm.model.ids import TopicPartition
from klamm.replication.quota import ALL, UNLIMITED, ByteRate, ReplicationQuota

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Clock:
    def __init__(self) -> None:
        self.ms = 0.0

    def __call__(self) -> float:
        return self.ms


def test_a_quota_rate_is_computed_over_at_least_one_whole_window() -> None:
    rate = ByteRate(11, 1000)
    assert rate.rate_at(0) == 0
    rate.record(500, 10)
    assert [rate.rate_at(t) for t in (10, 510, 1010, 2010, 5010)] == [500, 500, 500, 250, 100]


def test_a_quota_rate_ignores_bytes_of_expired_windows() -> None:
    rate = ByteRate(3, 1000)
    for second in range(10):
        rate.record(100, second * 1000)
        if second >= 3:  # three windows, and the one that the beginning lies in
            assert rate.rate_at(second * 1000 + 999) == pytest.approx(300 * 1000 / 2999)


def test_a_quota_rate_counts_the_oldest_window_completely() -> None:
    rate = ByteRate(3, 1000)
    for ms in (0, 900, 1000, 1900, 2000, 2900, 3000):
        rate.record(100, ms)
    assert rate.rate_at(3000) == pytest.approx(700 / 3)


def test_a_quota_window_expires_after_its_last_recorded_event() -> None:
    rate = ByteRate(2, 1000)
    rate.record(50, 0)
    rate.record(50, 900)
    assert rate.rate_at(2899) == pytest.approx(100 * 1000 / 2899)
    assert rate.rate_at(2900) == 0


def test_a_quota_rate_starts_again_after_all_windows_expired() -> None:
    rate = ByteRate(11, 1000)
    rate.record(1_000_000, 0)
    assert rate.rate_at(11_000) == 0
    rate.record(70, 11_500)
    assert rate.rate_at(11_500) == 70


def quota(limit: int, samples: int = 11) -> tuple[ReplicationQuota, Clock]:
    clock = Clock()
    made = ReplicationQuota(clock, samples)
    made.set_limit(limit)
    return made, clock


def test_a_replication_quota_is_exceeded_only_above_its_limit() -> None:
    q, _ = quota(100)
    q.record(100)
    assert not q.is_exceeded()
    q.record(1)
    assert q.is_exceeded()


@pytest.mark.parametrize(
    ("size", "allowed_ms"),
    [(101, 1010), (350, 3500), (1000, 10_000), (5000, 11_000)],
    ids=["soon", "later", "within the windows", "forgotten by the windows"],
)
def test_an_exceeded_quota_gives_the_time_when_bytes_are_allowed_again(size: int, allowed_ms: float) -> None:
    q, clock = quota(100)
    q.record(size)
    assert q.is_exceeded()
    assert q.exceeded_until_ms == allowed_ms
    clock.ms = allowed_ms - 1
    assert q.is_exceeded()
    clock.ms = allowed_ms
    assert not q.is_exceeded()


def test_an_exceeded_quota_never_gives_a_retry_time_in_the_past() -> None:
    q, clock = quota(3)
    q.record(10_000)
    asked = 0
    while q.is_exceeded():
        assert q.exceeded_until_ms >= clock.ms + 1
        clock.ms = q.exceeded_until_ms
        asked += 1
    assert asked < 20
    rate = ByteRate(11, 1000)
    rate.record(101, 0)
    assert rate.earliest_below(100, 1010) == 1011  # it has, but for a rounding


def test_a_sender_that_respects_the_quota_keeps_the_configured_rate_over_200_seconds() -> None:
    """Whoever sends 300 bytes whenever it may, sends 100 in a second."""
    q, clock = quota(100)
    sent = 0
    while clock.ms < 200_000:
        if q.is_exceeded():
            clock.ms = q.exceeded_until_ms
        else:
            q.record(300)
            sent += 300
    assert sent == pytest.approx(100 * 200, rel=0.1)


def test_a_quota_of_zero_allows_bytes_only_after_all_windows_expired() -> None:
    q, clock = quota(0)
    assert not q.is_exceeded()
    q.record(1)
    assert q.is_exceeded()
    assert q.exceeded_until_ms == 11_000
    clock.ms = 11_000
    assert not q.is_exceeded()


def test_a_changed_quota_limit_applies_at_once() -> None:
    q, _ = quota(1)
    q.record(1000)
    assert q.is_exceeded()
    q.set_limit(1000)
    assert not q.is_exceeded()
    q.set_limit(999)
    assert q.is_exceeded()
    q.set_limit(UNLIMITED)
    assert not q.is_exceeded()


def test_a_replication_quota_covers_the_listed_partitions_or_the_whole_topic() -> None:
    q, _ = quota(1)
    assert not q.is_on
    q.throttle("orders", frozenset([0]))
    assert q.is_on
    assert (q.covers(P0), q.covers(P1), q.covers(TopicPartition("clicks", 0))) == (True, False, False)
    q.throttle("orders", ALL)
    assert (q.covers(P0), q.covers(P1), q.covers(TopicPartition("clicks", 0))) == (True, True, False)
    q.throttle("orders", frozenset())
    assert not q.is_on
    assert not q.covers(P0)
