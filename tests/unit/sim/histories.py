"""Histories with some facts, for tests of single invariants."""

from collections.abc import Mapping
from typing import Any

from klamm.sim.history.history import History


def history_of(**parts: Mapping[str, Any]) -> History:
    """A history whose parts (`controllers`, `states`, ...) have these values."""
    history = History()
    for part, facts in parts.items():
        for name, value in facts.items():
            assert hasattr(getattr(history, part), name), name
            setattr(getattr(history, part), name, value)
    return history
