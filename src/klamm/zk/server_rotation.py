"""Which server is tried next, when, and for how long. Source: StaticHostProvider.java."""

from collections.abc import Sequence
from typing import Final, Protocol

from klamm.zk.hosts import Server

FIRST_ATTEMPT_TIMEOUT_S: Final = 2.0
MIN_BACKOFF_S: Final = 0.05
MAX_BACKOFF_S: Final = 1.0
_MAX_DOUBLINGS: Final = 16


class Rng(Protocol):
    def shuffle(self, x: list[Server]) -> None: ...
    def random(self) -> float: ...


class ServerRotation:
    """Goes round the servers, shuffled once, so that the clients of an ensemble spread over it."""

    __slots__ = ("_dice", "_failures", "_next", "_servers", "server")

    def __init__(self, servers: Sequence[Server], dice: Rng) -> None:
        self._servers = list(servers)
        dice.shuffle(self._servers)
        self._dice = dice
        self._next = 0
        self._failures = 0
        self.server = self._servers[0]

    def advance(self) -> None:
        """Make the next server the one to try."""
        self.server = self._servers[self._next]
        self._next = (self._next + 1) % len(self._servers)

    def attempt_s(self, timeout_ms: int) -> float:
        """How long one server may take to give the session: short at first, longer each round, all in their turn.

        A server that starts may swallow the one packet that it is sent too early; waiting for as long as the session
        lives, as Kafka's client does with a single server, would then lose the session.
        """
        share = timeout_ms / 1000 / max(2, len(self._servers))
        return min(share, FIRST_ATTEMPT_TIMEOUT_S * 2.0 ** min(self._rounds, _MAX_DOUBLINGS))

    def failed(self) -> float:
        """How long to wait now: not at all while there are servers not tried yet, then longer each round."""
        rounds, self._failures = self._rounds, self._failures + 1
        if not rounds:
            return 0.0
        longest = min(MAX_BACKOFF_S, MIN_BACKOFF_S * 2.0 ** min(rounds - 1, _MAX_DOUBLINGS))
        return longest * (0.5 + self._dice.random() / 2)

    def connection_lasted(self, lasted_s: float) -> None:
        """Note how long a connection lasted; after one that was not short, the next try comes without backoff."""
        if lasted_s > MAX_BACKOFF_S:
            self._failures = 0

    @property
    def _rounds(self) -> int:
        """How often every server has failed since the last good connection."""
        return self._failures // len(self._servers)
