"""Timers that queue an event later in the term."""

import asyncio
from collections.abc import Callable, Hashable

from klamm.controller.events import Event


class Timers:
    """At most one timer per name; all are cancelled when the term ends."""

    def __init__(self, put: Callable[[Event], object]) -> None:
        self._put = put
        self._waiting: dict[Hashable, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, name: Hashable) -> bool:
        return name in self._waiting

    def put(self, event: Event) -> None:
        """Queue the event now, after those that wait."""
        self._put(event)

    def after(self, name: Hashable, seconds: float, event: Event) -> None:
        """Queue `event` after this time, unless a timer of this name is running."""
        if name not in self._waiting:
            loop = asyncio.get_running_loop()
            self._waiting[name] = loop.call_later(max(0.0, seconds), self._fire, name, event)

    def cancel(self, name: Hashable) -> None:
        """Cancel the timer of this name, if it is running."""
        handle = self._waiting.pop(name, None)
        if handle is not None:
            handle.cancel()

    def close(self) -> None:
        """Cancel all timers."""
        for name in list(self._waiting):
            self.cancel(name)

    def _fire(self, name: Hashable, event: Event) -> None:
        """Queue the event of a timer that is due."""
        del self._waiting[name]
        self._put(event)
