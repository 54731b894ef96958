"""`make prove` and `make bench`: what they run exists, all of it runs, and failures are named."""

import re
import sys
from pathlib import Path

import pytest
from benchmarks.all import APART, PARTS_OF_OTHERS, benchmarks
from tests.prove import STEPS
from tests.support import steps as steps_module
from tests.support.steps import Step, run, run_chosen

ROOT = Path(__file__).parents[2]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_each_step_of_make_prove_names_existing_files_and_make_targets(step: Step) -> None:
    paths = [word for word in step.command if word.startswith("tests/")]

    assert [path for path in paths if not (ROOT / path).exists()] == []
    if step.command[0] == "make":
        assert step.command[2] in TARGETS
    else:
        modules = [word for word in step.command if word.startswith("tests.")]
        assert all((ROOT / module.replace(".", "/")).with_suffix(".py").exists() for module in modules)
        assert paths or modules


def test_make_bench_runs_every_benchmark_module_that_is_a_program_of_its_own() -> None:
    modules = {p.stem for p in (ROOT / "benchmarks").glob("*.py")}

    assert modules - {step.name for step in benchmarks()} == {"__init__", "all", *PARTS_OF_OTHERS, *APART}


def test_make_lists_at_most_twelve_commands_without_help_all() -> None:
    assert len(re.findall(r"^[a-z-]+:.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)) <= 12


def test_all_steps_run_and_one_that_fails_is_named_with_its_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    durations_s = iter([0.5, 3.2, 0.5])
    monkeypatch.setattr(steps_module, "run", lambda step, path: (run(step, path)[0], next(durations_s)))
    steps = [
        Step("bad", (sys.executable, "-c", "print('three'); raise SystemExit(3)"), "fails"),
        Step("good", (sys.executable, "-c", "print('seven')"), "passes"),
    ]

    assert run_chosen(None, steps, tmp_path, [], prints_output=True) == 1
    printed = capfd.readouterr().out
    assert f"bad                   0:00 min  FAILED (status 3), see {tmp_path}/bad.log" in printed
    assert "good                  0:03 min  passed" in printed
    assert "three" in printed
    assert "seven" in printed
    assert run_chosen(None, steps, tmp_path, ["--only", "good"]) == 0
