"""Who may look on while a controller works: a simulation, which checks what it sees. In production nobody does."""

from collections.abc import Iterable

from klamm.controller.events import Event
from klamm.controller.term_context import TermContext


class Observer:
    """Told of everything at the moment it happens, in the controller's own task; must not change anything.

    This one does not care.
    """

    def term_begins(self, term: TermContext) -> None:
        """The election is won, the context still empty."""

    def term_ends(self, term: TermContext) -> None:
        """Everything is given up: what `term` holds must be inert."""

    def event_begins(self, event: Event, waiting: Iterable[Event]) -> None:
        """`waiting`: what is queued behind it."""

    def event_ends(self, event: Event) -> None:
        """Whoever waited has an answer."""

    def mistake(self, error: Exception) -> None:
        """An error that nobody foresaw; the controller goes on, having resigned."""
