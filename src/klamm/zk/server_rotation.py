"""Which server a session connects to next, when, and with which timeout. Source: StaticHostProvider.java."""

from collections.abc import Sequence
from typing import Final, Protocol

from klamm.zk.hosts import Server

FIRST_ATTEMPT_TIMEOUT_S: Final = 2.0
"""The timeout of an attempt in the first round."""
MIN_BACKOFF_S: Final = 0.05
MAX_BACKOFF_S: Final = 1.0
_MAX_DOUBLINGS: Final = 16


class Rng(Protocol):
    """The random numbers that a rotation uses."""

    def shuffle(self, x: list[Server]) -> None:
        """Put the servers into a random order, in place."""

    def random(self) -> float:
        """Return a random number, at least 0 and below 1."""


class ServerRotation:
    """Goes through the servers in a random order, so that clients spread over the ensemble."""

    __slots__ = ("_failures", "_next", "_rng", "_servers", "server")

    def __init__(self, servers: Sequence[Server], rng: Rng) -> None:
        self._servers = list(servers)
        rng.shuffle(self._servers)
        self._rng = rng
        self._next = 0
        self._failures = 0
        self.server = self._servers[0]

    def advance(self) -> None:
        """Make the next server the current one."""
        self.server = self._servers[self._next]
        self._next = (self._next + 1) % len(self._servers)

    def attempt_timeout_s(self, timeout_ms: int) -> float:
        """The time in which a server must grant the session; it doubles with each round through all servers.

        A starting server can drop the connect request. Kafka's client with a single server would then wait as long as
        the session timeout, and lose the session.
        """
        share = timeout_ms / 1000 / max(2, len(self._servers))
        return min(share, FIRST_ATTEMPT_TIMEOUT_S * 2.0 ** min(self._failed_rounds, _MAX_DOUBLINGS))

    def on_failure(self) -> float:
        """Count a failed attempt; returns the seconds to wait before the next: 0 in the first round, later more."""
        rounds, self._failures = self._failed_rounds, self._failures + 1
        if not rounds:
            return 0.0
        longest = min(MAX_BACKOFF_S, MIN_BACKOFF_S * 2.0 ** min(rounds - 1, _MAX_DOUBLINGS))
        return longest * (0.5 + self._rng.random() / 2)

    def on_connection_end(self, lasted_s: float) -> None:
        """Reset the backoff if the connection lasted longer than the longest wait."""
        if lasted_s > MAX_BACKOFF_S:
            self._failures = 0

    @property
    def _failed_rounds(self) -> int:
        """How often every server has failed since the last good connection."""
        return self._failures // len(self._servers)
