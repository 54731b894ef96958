"""The replication throttle: bytes per second to replicas that are not in sync (KIP-73).

Source: ReplicationQuotaManager.scala, SimpleRate.java, SampledStat.java (3.9). Times are the event loop's, in
milliseconds. Nothing here waits: throttled callers get the time at which to try again.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from klamm.model.ids import TopicPartition

UNLIMITED: Final = 2**63 - 1
"""Bytes per second where nothing is configured."""
ALL: Final = None
"""In place of partitions: every partition of the topic, those to come as well."""
_MIN_PAUSE_MS: Final = 1.0
_ROUNDING_MS: Final = 0.001
"""Callers wait in seconds: what they wait for may be a rounding error away when they wake."""


class _Sample:
    """The bytes recorded in one window."""

    __slots__ = ("amount", "last_ms", "start_ms")

    def __init__(self, now_ms: float) -> None:
        self.restart(now_ms)

    def restart(self, now_ms: float) -> None:
        """Begin a new sample window with no bytes at this time."""
        self.amount = 0
        self.start_ms = now_ms
        self.last_ms = now_ms


class ByteRate:
    """Bytes per second since the oldest of the last `samples` windows began, but over one whole window at least.

    One window more is kept: the one that the beginning of that time lies in.
    """

    def __init__(self, samples: int, window_ms: float) -> None:
        self._most = samples + 1
        self._window_ms = window_ms
        self._span_ms = samples * window_ms
        self._ring: list[_Sample] = []
        self._current = 0

    def record(self, amount: int, now_ms: float) -> None:
        """Count bytes in the current window."""
        if not self._ring:
            self._ring.append(_Sample(now_ms))
        sample = self._ring[self._current]
        if now_ms - sample.start_ms >= self._window_ms:
            sample = self._start_sample(now_ms)
        sample.amount += amount
        sample.last_ms = now_ms

    def _start_sample(self, now_ms: float) -> _Sample:
        """Open the next sample window; if all are used, it replaces the oldest."""
        self._current = (self._current + 1) % self._most
        if self._current == len(self._ring):
            self._ring.append(_Sample(now_ms))
        else:
            self._ring[self._current].restart(now_ms)
        return self._ring[self._current]

    def rate_at(self, now_ms: float) -> float:
        """Bytes per second at this time; expired windows are reset first."""
        if not self._ring:
            return 0.0
        for sample in self._ring:
            if now_ms - sample.last_ms >= self._span_ms:
                sample.restart(now_ms)
        elapsed_ms = now_ms - min(s.start_ms for s in self._ring)
        return self._total_bytes() * 1000 / max(elapsed_ms, self._window_ms)

    def earliest_below(self, limit: int, now_ms: float) -> float:
        """The earliest time at which the rate can have fallen to `limit`. Call `rate_at` first."""
        total = self._total_bytes()
        expires_ms = min(s.last_ms for s in self._ring if s.amount) + self._span_ms
        falls_ms = min(s.start_ms for s in self._ring) + total * 1000 / limit if limit > 0 else expires_ms
        return max(min(falls_ms, expires_ms), now_ms + _MIN_PAUSE_MS)

    def _total_bytes(self) -> int:
        """Return the number of bytes in all samples of the window."""
        return sum(s.amount for s in self._ring)


class ReplicationQuota:
    """The throttle of one side, leader or follower: its throttled partitions, limit and measured rate.

    All bytes of throttled partitions count; only replicas that are not in sync have to wait.
    """

    def __init__(self, now_ms: Callable[[], float], samples: int = 11, window_s: int = 1) -> None:
        self._now_ms = now_ms
        self._rate = ByteRate(samples, window_s * 1000.0)
        self._partitions: dict[str, frozenset[int] | None] = {}
        self._exceeded_until_ms = 0.0
        self.limit = UNLIMITED
        self.is_on = False
        """Whether any partition is throttled; where none is, nothing else needs to be asked."""

    def set_limit(self, bytes_per_second: int) -> None:
        """Set the limit in bytes per second; traffic is checked against it from now on."""
        self.limit = bytes_per_second
        self._exceeded_until_ms = 0.0

    def throttle(self, topic: str, partitions: frozenset[int] | None) -> None:
        """Set which partitions of a topic are throttled; None means all, an empty set none."""
        if partitions is ALL or partitions:
            self._partitions[topic] = partitions
        else:
            self._partitions.pop(topic, None)
        self.is_on = bool(self._partitions)

    def covers(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition is throttled."""
        topic, partition = topic_partition
        if topic not in self._partitions:
            return False
        partitions = self._partitions[topic]
        return partitions is ALL or partition in partitions

    def record(self, size: int) -> None:
        """Add `size` bytes of throttled partitions to the measured rate."""
        self._rate.record(size, self._now_ms())

    def is_exceeded(self) -> bool:
        """Whether the measured rate exceeds the limit now."""
        now_ms = self._now_ms()
        if now_ms < self._exceeded_until_ms - _ROUNDING_MS:
            return True
        if self._rate.rate_at(now_ms) <= self.limit:
            return False
        self._exceeded_until_ms = self._rate.earliest_below(self.limit, now_ms)
        return True

    @property
    def exceeded_until_ms(self) -> float:
        """Return the time in ms until which the exceeded quota refuses traffic, unless the limit is raised."""
        return self._exceeded_until_ms

    def byte_rate(self) -> float:
        """Return the current rate in bytes per second."""
        return self._rate.rate_at(self._now_ms())


class ReplicationQuotas(NamedTuple):
    """The quotas of one broker: what it sends as leader, fetches as follower, copies between log directories."""

    leader: ReplicationQuota
    follower: ReplicationQuota
    log_dir_moves: ReplicationQuota
    """For what is copied between log directories, whatever the partition."""

    @classmethod
    def new(cls, now_ms: Callable[[], float], samples: int = 11, window_s: int = 1) -> "ReplicationQuotas":
        """Create the quotas of leader and follower replication, without a limit."""
        return cls(*(ReplicationQuota(now_ms, samples, window_s) for _ in cls._fields))
