"""The queue of controller events: an event is put at the end, or replaces all that wait.

Kafka forgets the callers of most events that are replaced; here every caller gets an answer. Source:
ControllerEventManager.scala (3.9).
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Final

from klamm.controller.events import Event
from klamm.model.errors import ErrorCode

CAPACITY: Final = 10_000
"""Further events with a waiting caller are refused. Other events are few: a watch fires once, and each request has one
response."""


class QueuedEvent:
    """An event in the queue; it is either handled or preempted, never both."""

    __slots__ = ("enqueued_at", "event", "spent", "started")

    def __init__(self, event: Event, enqueued_at: float) -> None:
        self.event = event
        self.enqueued_at = enqueued_at
        self.spent = False
        self.started = asyncio.Event()
        """Set when handling begins, or when the event is preempted."""

    def begin(self) -> bool:
        """Mark the event as taken by the handler; false if it was taken or preempted before."""
        if self.spent:
            return False
        self.spent = True
        self.started.set()
        return True

    def preempt(self) -> None:
        """Refuse this event's caller because another event replaces it."""
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
        """The waiting events, in order."""
        return (queued.event for queued in self._waiting)

    def put(self, event: Event) -> QueuedEvent:
        """Append an event. A full queue refuses the caller with REQUEST_TIMED_OUT, a closed one with NOT_CONTROLLER."""
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
        """Refuse the callers of all waiting events and append this event. The last event of a closed queue stays."""
        while self._waiting and not self._closed:
            self._waiting.popleft().preempt()
        return self.put(event)

    def close(self, last: Event) -> None:
        """Refuse the callers of all waiting events; `last` is the last event that the controller handles."""
        self.clear_and_put(last)
        self._closed = True

    async def take(self) -> QueuedEvent:
        """Wait for the next event, and remove it from the queue."""
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        return self._waiting.popleft()
