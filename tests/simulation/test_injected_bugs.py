"""A bug injected into production code is found by `make sim`, made small and printed as a test that runs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.simulation.injected_bugs.clones import INJECTED_BUGS, MAX_ACTIONS, ROOT, inject, search


@pytest.mark.parametrize("name", INJECTED_BUGS)
def test_each_injected_bug_can_still_be_applied_to_the_source_code(name: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))

    inject(tmp_path, INJECTED_BUGS[name])

    assert INJECTED_BUGS[name].wrong in (tmp_path / INJECTED_BUGS[name].file).read_text()


def test_an_injected_bug_is_found_and_its_shrunk_schedule_printed_as_a_runnable_test(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    inject(tmp_path, INJECTED_BUGS["leader epochs do not increase"])

    found = search(tmp_path, 60, cores=1)

    assert found is not None
    assert found.violation.startswith("leader_epoch_is_monotone")
    assert found.actions <= MAX_ACTIONS
    source = found.output[found.output.index("from klamm") : found.output.index("[[regression]]")]
    reproducer = tmp_path / "test_reproducer.py"
    reproducer.write_text(source)
    assert runs(reproducer, tmp_path / "src") == pytest.ExitCode.TESTS_FAILED
    assert runs(reproducer, ROOT / "src") == pytest.ExitCode.OK


def runs(test: Path, source: Path) -> int:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(test.parent), str(test)]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    return subprocess.run(command, env=environment, cwd=test.parent, capture_output=True).returncode
