"""Events of controllers that failed and are handled again: how often each failed in a row, and when last."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from klamm.controller import events
from klamm.sim.history.controllers import Run
from klamm.sim.history.trace import EventEnded, Position, TermBegan, TermEnded


class Failure(NamedTuple):
    event: events.Event
    times: int
    """How often it failed in a row."""
    at_s: float
    """When it failed last."""


@dataclass(slots=True)
class RetryHistory:
    at: Position
    failures: dict[Run, dict[Hashable, Failure]] = field(default_factory=dict)
    """By process and kind of retry: the event that failed first. Others of that kind fail beside it."""

    def on_event_ended(self, event: EventEnded) -> None:
        """Record a failure, or that an event of its kind was handled."""
        failed, handled = self.failures.setdefault((event.broker, event.incarnation), {}), event.event
        known = failed.get(handled.retry_key)
        if not event.has_failed:
            failed.pop(handled.retry_key, None)
        elif known is None or known.event is handled:
            times = 1 if known is None else known.times + 1
            failed[handled.retry_key] = Failure(handled, times, self.at.now_s)

    def on_term(self, event: TermBegan | TermEnded) -> None:
        """Forget what failed: the pauses of another term begin anew."""
        self.failures.pop((event.term.broker, event.term.incarnation), None)
