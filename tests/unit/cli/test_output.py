"""Tables on a terminal."""

import pytest

from klamm.cli import output


def test_a_narrow_terminal_wraps_long_values(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")

    output.print_table(("topic", "topic id"), [("orders", "7LgXkUygR3evvB_9UGhLWg" * 2)])

    told = "".join(c for c in capsys.readouterr().out if c.isalnum() or c == "_")
    assert told.count("7LgXkUygR3evvB_9UGhLWg") == 2
