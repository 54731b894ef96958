"""Waits between retries, and a limit on their total time. Source: ExponentialBackoff.java."""

from collections.abc import Callable
from typing import Final

from klamm.client.errors import Unreachable

MAX_BACKOFF_S: Final = 1.0
"""The longest wait, unless a client has another limit."""
FIRST_BACKOFF_S: Final = 0.1
"""The first wait."""


class Backoff:
    """Retry waits that double up to `max_s`, within a total time."""

    def __init__(
        self,
        now_s: Callable[[], float],
        total_s: float,
        first_s: float = FIRST_BACKOFF_S,
        max_s: float = MAX_BACKOFF_S,
    ) -> None:
        self._now_s = now_s
        self._total_s = total_s
        self._first_s = first_s
        self._max_s = max_s
        self.restart()

    def restart(self) -> None:
        """Begin again with the first wait and the whole total time, because there was progress."""
        self._next_s = self._first_s
        self._deadline_s = self._now_s() + self._total_s

    def next_wait_s(self, what: str, cause: Exception) -> float:
        """The seconds to wait before the next attempt. Raises Unreachable if the total time would be over by then."""
        wait_s = self._next_s
        if self._now_s() + wait_s > self._deadline_s:
            raise Unreachable(what, self._total_s, cause) from cause
        self._next_s = min(2 * wait_s, self._max_s)
        return wait_s
