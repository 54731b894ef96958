"""`pytest --workers` on a small project: what its workers do, the first process reports."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CONFTEST = """
import os
import sys
import pytest

sys.path.insert(0, ROOT)
from tests.support.forked_workers import ForkedWorkers


def pytest_configure(config):
    config.pluginmanager.register(ForkedWorkers(2, lambda item: item.nodeid.partition("::")[0]))


@pytest.fixture(scope="session")
def session(pytestconfig):
    yield
    with open(pytestconfig.rootpath / "closed", "a") as file:
        print(os.getpid(), file=file)
"""
TESTS = """
import os
import warnings
import pytest


@pytest.fixture(autouse=True)
def process(session, pytestconfig):
    with open(pytestconfig.rootpath / "ran", "a") as file:
        print(__name__, os.getpid(), file=file)


@pytest.mark.parametrize("number", range(4))
def test_output(number, tmp_path, capfd):
    os.write(1, b"a line")
    assert capfd.readouterr().out == "a line"
    assert not list(tmp_path.iterdir())


def test_failure():
    print("a line before the failure")
    warnings.warn("it fails")
    assert False


def test_dying():
    DYING


@pytest.mark.skip(reason="never runs")
def test_skipped():
    pass


def test_behind_it():
    pass
"""


def run(project: Path, *options: str, status: int = 1) -> str:
    """What pytest prints, with few plugins."""
    without = [
        f"-pno:{name}" for name in ("cacheprovider", "xdist", "hypothesispytest", "asyncio", "pytest_cov", "klamm")
    ]
    command = [sys.executable, "-m", "pytest", *without, "-q", "-rs", *options]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "conftest.py").write_text(CONFTEST.replace("ROOT", repr(str(ROOT))))
    (tmp_path / "test_one.py").write_text(TESTS.replace("DYING", "os.kill(os.getpid(), 9)"))
    (tmp_path / "test_two.py").write_text(TESTS.replace("DYING", "pass"))
    return tmp_path


def test_first_process_reports_what_workers_did(project: Path) -> None:
    printed = run(project)
    assert "3 failed, 11 passed, 2 skipped, 2 warnings" in printed
    assert printed.count("\na line before the failure\n") == 2
    assert printed.count("UserWarning: it fails") == 2
    assert "the process that ran this test ended with status -9" in printed
    assert "SKIPPED [1] test_two.py" in printed
    tests = Counter(lines(project / "ran"))  # a worker runs a file to its end
    killed, behind = (key for key in tests if key.startswith("test_one"))
    assert (tests[killed], tests[behind]) == (6, 1)
    assert sorted(tests.values()) == [1, 6, 7]
    closed = lines(project / "closed")  # each worker closes what its session opened
    assert len(closed) == len(set(closed)) == 2
    assert not any(killed.endswith(pid) for pid in closed)


def test_first_failure_stops_all_workers(project: Path) -> None:
    printed = run(project, "-x")
    assert "stopping after 1 failures" in printed
    assert len(lines(project / "closed")) == 2


def test_error_of_the_collection_runs_no_test(project: Path) -> None:
    (project / "test_two.py").write_text("import nothing_of_this_name")
    run(project, status=2)
    assert not (project / "ran").exists()
