"""`make prove` runs existing make targets and reports failures."""

import re
import sys
from pathlib import Path

import pytest
from tests import prove
from tests.prove import STEPS, Step, main

MAKEFILE = Path(__file__).parents[3] / "Makefile"


def test_every_step_of_make_prove_is_an_existing_make_target() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE.read_text(), re.MULTILINE))

    assert {step.command[2] for step in STEPS if step.command[0] == "make"} <= targets


def test_make_prove_reports_a_failed_step_and_runs_the_next_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(prove, "POLL_S", 0)
    failing = Step("bad", (sys.executable, "-c", "print('why'); raise SystemExit(3)"), "fails")
    passing = Step("good", (sys.executable, "-c", ""), "passes")
    monkeypatch.setattr(prove, "STEPS", (failing, passing))

    assert main([]) == 1

    output = capsys.readouterr().out
    assert "bad                   0:00 min  FAILED (status 3), see .prove/bad.log" in output
    assert "good                  0:00 min  passed" in output
    assert (tmp_path / ".prove" / "bad.log").read_text() == "why\n"


def test_make_lists_at_most_twelve_commands_without_help_all() -> None:
    assert len(re.findall(r"^[a-z-]+:.*## ", MAKEFILE.read_text(), re.MULTILINE)) <= 12
