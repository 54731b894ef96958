"""One queue of events: put at the end, or clear and put. Source: ControllerEventManager.scala (3.9).

Kafka forgets the callers of most events that it clears; here every caller is answered.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Final

from klamm.controller.events import Event
from klamm.model.errors import ErrorCode

CAPACITY: Final = 10_000
"""Callers beyond that are refused. Other events are few by nature: watches fire once, answers come one by one."""


class QueuedEvent:
    """An event and how far it got; handled or preempted, never both."""

    __slots__ = ("enqueued_at", "event", "spent", "started")

    def __init__(self, event: Event, enqueued_at: float) -> None:
        self.event = event
        self.enqueued_at = enqueued_at
        self.spent = False
        self.started = asyncio.Event()
        """Set once handling began, or never will."""

    def begin(self) -> bool:
        """True exactly once, and never after `preempt`."""
        if self.spent:
            return False
        self.spent = True
        self.started.set()
        return True

    def preempt(self) -> None:
        """Refuse this event's caller because another event preempts it."""
        if not self.spent:
            self.spent = True
            self.started.set()
            self.event.refuse(ErrorCode.NOT_CONTROLLER)


class EventQueue:
    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._waiting: deque[QueuedEvent] = deque()
        self._arrived = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Event]:
        """What waits, in order."""
        return (queued.event for queued in self._waiting)

    def put(self, event: Event) -> QueuedEvent:
        """A full or closed queue answers the caller at once: the first with a time-out, the second NOT_CONTROLLER."""
        queued = QueuedEvent(event, asyncio.get_running_loop().time())
        if self._closed:
            queued.preempt()
        elif event.owes_answer and len(self._waiting) >= self._capacity:
            queued.spent = True
            event.refuse(ErrorCode.REQUEST_TIMED_OUT)
        else:
            self._waiting.append(queued)
            self._arrived.set()
        return queued

    def clear_and_put(self, event: Event) -> QueuedEvent:
        """Preempt all that wait, then put. A closed queue keeps its last event: whoever stops waits for that."""
        while self._waiting and not self._closed:
            self._waiting.popleft().preempt()
        return self.put(event)

    def close(self, last: Event) -> None:
        """Preempt all that wait; `last` is the last event ever taken."""
        self.clear_and_put(last)
        self._closed = True

    async def take(self) -> QueuedEvent:
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        return self._waiting.popleft()
