"""A known bug is noticed by each killer that runs its line, and unchanged code by none; in processes of their own."""

import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import pytest
from tests.mutants.children import Ended, Limits, in_child

LAST_MEMBER = "controller/decisions/plans.py:constant-changed:plan_isr_removal:2"
TEST = "tests/unit/controller/test_topics.py::test_a_topics_unclean_election_config_overrides_the_brokers_default"
SCRIPT = """
    import sys
    from functools import partial
    from tests.mutants.children import Limits, in_child
    from tests.mutants.hunt import _killer, _run_mutated
    from tests.mutants.killers import Item
    from tests.mutants.mutations import mutants_of
    killer, mutant_id, items = _killer(sys.argv[1]), sys.argv[2], [Item(name, 1.0) for name in sys.argv[3:]]
    mutant = next(m for m in mutants_of(mutant_id.partition(":")[0]) if m.id == mutant_id)
    print(mutant.before)
    outcome, _ = in_child(partial(_run_mutated, mutant, killer, items), Limits(60, 240))
    print(outcome.failed or "survived")
"""
"""In a fresh process: this one has imported the rooms already."""


def noticed(killer: str, mutant_id: str, *items: str) -> list[str]:
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), killer, mutant_id, *items]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()


def test_the_simulation_kills_a_mutant_that_removes_the_last_isr_member() -> None:
    before, failed = noticed("simulation", LAST_MEMBER, *(f"controller {seed}" for seed in range(1, 5)))

    assert before == "1"
    assert "isr_is_never_empty" in failed


def test_the_unit_tests_kill_a_mutant_that_removes_the_last_isr_member() -> None:
    assert noticed("unit", LAST_MEMBER, TEST)[1] == TEST


def test_a_mutant_of_code_that_no_test_runs_is_counted_as_surviving() -> None:
    assert noticed("unit", LAST_MEMBER, "tests/unit/model/test_topic_ids.py::nothing")[1] == "survived"


def test_a_mutant_process_that_computes_or_waits_too_long_is_ended() -> None:
    endless, waiting = in_child(_compute, Limits(1, 60))[0], in_child(_wait, Limits(10, 0.2))[0]

    assert endless == Ended("more than 1 s of processor time")
    assert waiting == Ended("more than 0 s")


def test_the_directory_of_a_mutant_process_is_removed_at_its_end() -> None:
    directory, _ = in_child(partial(_write, "text"), Limits(10, 60))

    assert isinstance(directory, Path)
    assert not directory.exists()


def test_an_error_in_the_mutant_runner_is_raised_and_not_counted_as_a_killed_mutant() -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        in_child(_fail, Limits(10, 60))


def _compute(directory: Path) -> None:
    while True:
        pass


def _wait(directory: Path) -> None:
    import time

    time.sleep(60)


def _write(text: str, directory: Path) -> Path:
    (directory / "file").write_text(text)
    return directory


def _fail(directory: Path) -> None:
    raise ZeroDivisionError
