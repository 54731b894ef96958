"""Events that come later, for as long as the term lasts."""

import asyncio
from collections.abc import Callable, Hashable

from klamm.controller.events import Event


class Timers:
    """At most one event waits under each name; all are forgotten with the term."""

    def __init__(self, put: Callable[[Event], object]) -> None:
        self._put = put
        self._waiting: dict[Hashable, asyncio.TimerHandle] = {}

    def __contains__(self, name: Hashable) -> bool:
        return name in self._waiting

    def put(self, event: Event) -> None:
        """At once, behind what waits already."""
        self._put(event)

    def after(self, name: Hashable, seconds: float, event: Event) -> None:
        """Put `event` then; one that waits under this name stays as it is."""
        if name not in self._waiting:
            loop = asyncio.get_running_loop()
            self._waiting[name] = loop.call_later(max(0.0, seconds), self._fire, name, event)

    def cancel(self, name: Hashable) -> None:
        handle = self._waiting.pop(name, None)
        if handle is not None:
            handle.cancel()

    def close(self) -> None:
        for name in list(self._waiting):
            self.cancel(name)

    def _fire(self, name: Hashable, event: Event) -> None:
        del self._waiting[name]
        self._put(event)
