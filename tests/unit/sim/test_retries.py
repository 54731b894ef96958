"""Retries of failed events as the simulation sees them: each pause is twice the one before, up to 16 s."""

import pytest

from klamm.controller.events import Event, IsrChangeNotification, ResumeAfterFailure, TopicChange
from klamm.controller.settings import ControllerSettings
from klamm.model.ids import BrokerId
from klamm.sim.history.history import History
from klamm.sim.history.trace import EventBegan, EventEnded, Term, TermEnded
from klamm.sim.invariants.controllers import retries_pause_longer_each_time

ONE = BrokerId(1)
TERM = Term(ONE, 1, 1, ControllerSettings(ONE))


class Failing:
    """A controller in which one event fails again and again."""

    def __init__(self) -> None:
        self.history = History()
        self.event = TopicChange()

    def end(self, event: Event, *, has_failed: bool = True) -> None:
        """An event ends now."""
        self.history.absorb(EventEnded(ONE, 1, TERM, event, has_failed=has_failed))

    def fail_after(self, *pauses_s: float) -> bool:
        """Whether it is a violation that the event begins again after the last of these pauses; it failed before."""
        found = None
        for pause_s in pauses_s:
            self.end(self.event)
            self.history.at.now_s += pause_s
            found = retries_pause_longer_each_time(self.history, EventBegan(ONE, 1, TERM, self.event, ()))
        return found is not None


@pytest.mark.parametrize(
    ("pauses_s", "is_found"),
    [
        ((1.0,), False),
        ((0.9,), True),
        ((1.0, 2.0), False),
        ((1.0, 1.9), True),
        ((5.0, 1.9), True),
        ((1.0, 2.0, 4.0, 8.0, 16.0, 16.0), False),
        ((1.0, 2.0, 4.0, 8.0, 16.0, 15.9), True),
    ],
)
def test_an_event_that_failed_may_begin_again_only_after_twice_the_pause(
    pauses_s: tuple[float, ...], is_found: bool
) -> None:
    assert Failing().fail_after(*pauses_s) is is_found


def test_another_event_of_the_same_kind_that_is_handled_ends_the_growth_of_pauses() -> None:
    failing = Failing()
    failing.fail_after(1.0, 2.0)
    failing.end(TopicChange(), has_failed=False)

    assert not failing.fail_after(1.0)


def test_the_failure_of_another_event_of_the_same_kind_does_not_double_the_pause() -> None:
    failing = Failing()
    failing.end(failing.event)
    failing.end(TopicChange())
    failing.history.at.now_s += 1.0

    assert retries_pause_longer_each_time(failing.history, EventBegan(ONE, 1, TERM, failing.event, ())) is None


@pytest.mark.parametrize("other", [IsrChangeNotification(), ResumeAfterFailure()])
def test_events_of_other_kinds_and_of_another_term_begin_at_any_time(other: Event) -> None:
    failing = Failing()
    failing.end(failing.event)

    assert retries_pause_longer_each_time(failing.history, EventBegan(ONE, 1, TERM, other, ())) is None
    failing.history.absorb(TermEnded(TERM, None))  # type: ignore[arg-type]
    assert not failing.fail_after(1.0)
