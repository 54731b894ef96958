"""The entry point of `klamm`, as a process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

INTERRUPTED_IN_A_CLASS = """
import os, signal
class Interrupting:
    def __set_name__(self, owner, name):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(10): pass
class Owner:
    attribute = Interrupting()
"""
INTERRUPTED_WITHIN_TRY = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(10): pass
except:
    pass
"""


@pytest.mark.parametrize(
    ("module", "content"),
    [("typer", INTERRUPTED_IN_A_CLASS), ("typer", INTERRUPTED_WITHIN_TRY), ("pydantic", INTERRUPTED_IN_A_CLASS)],
    ids=["class", "try", "class_imported_late"],
)
def test_pressing_ctrl_c_during_any_import_ends_klamm_without_output(tmp_path: Path, module: str, content: str) -> None:
    """An exception there can be caught, or become another one, as RuntimeError in `__set_name__`."""
    (tmp_path / f"{module}.py").write_text(content)
    paths = [str(tmp_path), *sys.path]
    program = "import signal; signal.signal(2, signal.default_int_handler); import klamm.__main__"

    done = subprocess.run(
        [sys.executable, "-c", program, "topics", "list"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (130, "")


def run_in_shell(words: str, directory: Path) -> "subprocess.CompletedProcess[str]":
    """Run `klamm` with these words in a shell, which redirects its streams."""
    return subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -m klamm {words}"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full")
def test_output_that_a_full_disk_does_not_take_is_an_error_of_one_line(tmp_path: Path) -> None:
    done = run_in_shell("config explain retention.ms > /dev/full", tmp_path)

    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "klamm: Cannot write the output: No space left on device." in done.stderr


def test_a_file_that_a_command_cannot_write_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text(
        '{"brokers": [{"id": 1}], "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}'
    )

    done = run_in_shell("reassign plan --cluster-file cluster.json --save-cluster cluster.json/copy", tmp_path)

    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "klamm: Cannot use cluster.json/copy" in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_whose_standard_streams_are_closed_ends_as_with_open_ones(closed: str, tmp_path: Path) -> None:
    done = run_in_shell(f"topics list -b 127.0.0.1:1 --timeout 0.1 {closed}", tmp_path)

    assert done.returncode == 1
    assert ("2>&-" in closed) or "no broker answers at 127.0.0.1:1" in done.stderr


def test_a_state_of_groups_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    done = run_in_shell("groups list --state nonsense -b 127.0.0.1:1", tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert "--state 'nonsense' is not valid. Give one of PreparingRebalance" in done.stderr
