"""The wall-clock time. Durations are measured with the event loop's time (`loop.time()`)."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """The wall clock time in milliseconds since 1970, as in record and znode timestamps; may jump."""
        ...


class RealClock:
    def now_ms(self) -> int:
        """Return the wall clock time in milliseconds since 1970."""
        return time.time_ns() // 1_000_000
