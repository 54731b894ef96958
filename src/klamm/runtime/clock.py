"""What time it is. Durations are the event loop's (`loop.time()`); only wall-clock time comes from here."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970, as Kafka stamps records and znodes; may jump."""
        ...


class RealClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
