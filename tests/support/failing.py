"""Functions that fail as by a mistake in the code."""

from typing import Any

import pytest


def fail_once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Let the next call of this function of a class or module raise an exception that nobody expects."""
    original = getattr(owner, name)

    def fail(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(owner, name, original)
        raise ZeroDivisionError(name)

    monkeypatch.setattr(owner, name, fail)
