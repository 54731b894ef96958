"""Child processes: start, signals, log, and their end with the parent."""

import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from tests.support.ended_processes import has_ended

from klamm.runtime import processes
from klamm.runtime.processes import Child, run, spawn, ticks

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
BUSY = """
import hashlib, threading
def work():
    while True: hashlib.sha256(bytes(1 << 20))
for _ in range(4): threading.Thread(target=work).start()
print("up", flush=True)
"""


def test_a_child_process_has_exit_status_and_output_after_its_end(tmp_path: Path) -> None:
    child = spawn("speaker", [sys.executable, "-c", "print('hello'); raise SystemExit(3)"], str(tmp_path / "log"))

    assert child.wait(60) == 3
    assert child.log_tail() == "hello\n"


def test_spawning_a_program_that_does_not_exist_raises_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        spawn("nothing", ["no-such-program"], str(tmp_path / "log"))


def test_stop_terminates_a_paused_child_process(tmp_path: Path) -> None:
    child = spawn("sleeper", SLEEPER, str(tmp_path / "log"))
    assert any("up" in child.log_tail() for _ in ticks(60))
    child.pause()

    assert child.stop(60) == -15
    assert not child.is_running


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_all_threads_of_a_child_process_have_stopped_when_it_is_paused(tmp_path: Path) -> None:
    """The kernel stops each one when it runs next, on a busy machine much later than the signal is sent."""
    child = spawn("busy", [sys.executable, "-c", BUSY], str(tmp_path / "log"))
    assert any("up" in child.log_tail() for _ in ticks(60))

    for _ in range(2):
        child.pause()
        states = [path.read_text() for path in Path(f"/proc/{child.pid}/task").glob("*/status")]
        child.resume()
        assert ["State:\tT" in state for state in states] == [True] * 5

    child.kill()
    child.pause()  # does nothing


def test_stop_kills_a_child_process_that_ignores_sigterm(tmp_path: Path) -> None:
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    child = spawn("deaf", [sys.executable, "-c", deaf], str(tmp_path / "log"))
    assert any("up" in child.log_tail() for _ in ticks(60))

    assert child.stop(0.2) == -9


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
def test_a_child_process_is_killed_when_its_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from klamm.runtime.processes import spawn;"
        f"print(spawn('sleeper', {SLEEPER!r}, {str(tmp_path / 'log')!r}).pid, flush=True); time.sleep(600)"
    )
    parent = spawn("parent", [sys.executable, "-c", code], str(tmp_path / "parent-log"))
    assert any(parent.log_tail().strip() for _ in ticks(60))
    grandchild = int(parent.log_tail())
    assert psutil.pid_exists(grandchild)

    parent.kill()

    assert any(has_ended(grandchild) for _ in ticks(60))


def test_running_a_program_returns_exit_status_and_output_or_times_out() -> None:
    assert run([sys.executable, "-c", "print('x'); raise SystemExit(2)"], 60) == (2, "x\n")
    with pytest.raises(TimeoutError):
        run([sys.executable, "-c", "import time; time.sleep(60)"], 0.2)


def test_running_a_program_whose_child_keeps_the_output_open_ends_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_OUTPUT_GRACE_S", 0.0)
    may_run = tmp_path / "may run"
    may_run.touch()
    waiting = f"import os, time\nwhile os.path.exists({str(may_run)!r}): time.sleep(0.05)"
    program = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {waiting!r}])"

    with pytest.raises(TimeoutError, match="has ended, but a process that it started keeps its output open"):
        run([sys.executable, "-c", program], 60)

    may_run.unlink()


def test_a_child_process_outlives_the_thread_that_started_the_child(tmp_path: Path) -> None:
    spawned: list[Child] = []

    def start() -> None:
        spawned.append(spawn("sleeper", SLEEPER, str(tmp_path / "log")))
        assert any("up" in spawned[0].log_tail() for _ in ticks(60))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()

    assert spawned[0].wait(0.3) is None  # the kernel would have killed it with the thread
    spawned[0].kill()


def test_a_child_process_without_a_process_group_of_its_own_is_killed(tmp_path: Path) -> None:
    """One that was forked a moment ago does not have it yet."""
    process = subprocess.Popen(["sleep", "600"])
    child = Child("sleep", process, str(tmp_path / "log"))

    child.kill()

    assert child.exit_status == -9
