"""Child processes, each with its own session and log file; they end with their parent.

Each child asks the kernel (Linux) to kill it when its parent dies, also if the parent is killed. The kernel watches the
thread that spawned the child: all but the main thread let one spawn that lives as long as the process.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NewType

ExitStatus = NewType("ExitStatus", int)
"""The exit status of a process; negative for a signal."""

# runs first in the child: arranges to die with the parent, then becomes the command
_LAUNCHER: Final = """
import ctypes, os, sys
parent = int(sys.argv[1])
try:
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
except AttributeError:
    pass
if os.getppid() != parent:
    os._exit(1)
try:
    os.execv(sys.argv[2], sys.argv[2:])
except OSError as error:
    os.write(2, f"{sys.argv[2]}: {error.strerror}\\n".encode())
    os._exit(127)
"""
_POLL_S: Final = 0.01
_OUTPUT_LOOK_S: Final = 0.1
_OUTPUT_GRACE_S: Final = 2.0
"""How long another process may keep the output of a command open that has ended."""
_SPAWNER: Final = ThreadPoolExecutor(1, "spawner")


class Child:
    """A child process. Signals to one that has ended do nothing."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log_path: str) -> None:
        self.name = name
        self.log_path = log_path
        self.is_paused = False
        self._process = process

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def exit_status(self) -> ExitStatus | None:
        """The exit status of the process; None while it runs."""
        status = self._process.poll()
        return None if status is None else ExitStatus(status)

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self.exit_status is None

    def wait(self, timeout_s: float | None = None) -> ExitStatus | None:
        """Wait until the process ends and return its exit status; None if it still runs after `timeout_s`."""
        try:
            return ExitStatus(self._process.wait(timeout_s))
        except subprocess.TimeoutExpired:
            return None

    def terminate(self) -> None:
        """Send SIGTERM, which asks the process to stop in order."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the process and its children, and wait until it has ended."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                try:
                    os.killpg(self.pid, signal.SIGKILL)
                except ProcessLookupError:  # forked a moment ago, it may not have its session yet
                    os.kill(self.pid, signal.SIGKILL)
        self._process.wait()

    def pause(self) -> None:
        """Send SIGSTOP and wait until the process has stopped: it keeps its connections, and does nothing."""
        if self.is_running:
            os.kill(self.pid, signal.SIGSTOP)
            self._wait_until_stopped()
        self.is_paused = True

    def resume(self) -> None:
        """Let a stopped process continue (SIGCONT)."""
        self._signal(signal.SIGCONT)
        self.is_paused = False

    def stop(self, timeout_s: float) -> ExitStatus:
        """Send SIGTERM, also to a paused process; SIGKILL if it has not ended within `timeout_s`."""
        self.resume()
        self.terminate()
        status = self.wait(timeout_s)
        if status is not None:
            return status
        self.kill()
        return ExitStatus(self._process.wait())

    def log_tail(self, lines: int = 20) -> str:
        """Return the last lines of the process's log file."""
        with contextlib.suppress(OSError), open(self.log_path, errors="replace") as log:
            return "".join(log.readlines()[-lines:])
        return ""

    def _wait_until_stopped(self) -> None:
        """Wait until each thread has taken SIGSTOP, which it does when it runs next, or until the process has ended."""
        if sys.platform == "linux":
            with contextlib.suppress(ChildProcessError):  # another thread has waited for its end
                os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.is_running:
            os.kill(self.pid, number)


def spawn(
    name: str,
    command: Sequence[str],
    log_path: str,
    *,
    environment: Mapping[str, str] | None = None,
    directory: str | None = None,
) -> Child:
    """Start `command` as a child process; its output is appended to `log_path`, its standard input is empty.

    Any thread may call it. `environment` is added to this process's. Raises FileNotFoundError for an unknown program.
    """
    program = shutil.which(command[0])
    if program is None:
        raise FileNotFoundError(f"{command[0]} is not on the PATH. Install it, or add its directory to PATH.")
    os.makedirs(os.path.dirname(log_path) or ".", exist_ok=True)
    launch = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), program, *command[1:]]
    variables = {**os.environ, **(environment or {})}
    if threading.current_thread() is threading.main_thread():
        process = _launch(launch, log_path, variables, directory)
    else:
        process = _SPAWNER.submit(_launch, launch, log_path, variables, directory).result()
    return Child(name, process, log_path)


def _launch(
    command: Sequence[str], log_path: str, variables: Mapping[str, str], directory: str | None
) -> subprocess.Popen[bytes]:
    """Start the command in a session of its own."""
    with open(log_path, "ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=variables,
            cwd=directory,
            start_new_session=True,
        )


def run(command: Sequence[str], timeout_s: float) -> tuple[ExitStatus, str]:
    """Run a command to its end; returns its status and output.

    Raises FileNotFoundError; TimeoutError, also where a process that the command started keeps its output open.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        output = _read_output(process, command[0], time.monotonic() + timeout_s, timeout_s)
    return ExitStatus(process.returncode), output


def _read_output(process: subprocess.Popen[str], name: str, deadline: float, timeout_s: float) -> str:
    """Return all output of a process once it has ended. Raises TimeoutError, after which the process has ended, too."""
    open_until: float | None = None
    while True:
        try:
            return process.communicate(timeout=_OUTPUT_LOOK_S)[0]
        except subprocess.TimeoutExpired:
            now = time.monotonic()
        if process.poll() is not None:
            open_until = open_until or now + _OUTPUT_GRACE_S
            if now >= open_until:
                raise TimeoutError(
                    f"{name} has ended, but a process that it started keeps its output open. Redirect the output of "
                    "that process, for example with > FILE 2>&1"
                )
        elif now >= deadline:
            process.kill()
            process.wait()
            raise TimeoutError(f"{name} was stopped, because it did not end within {timeout_s:g} s")


def own_pid() -> int:
    """Return the id of this process."""
    return os.getpid()


def is_alive(pid: int) -> bool:
    """Whether this process runs; false for a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", errors="replace") as stat:  # Linux
        return not stat.read().rpartition(")")[2].strip().startswith("Z")
    return True


def ask_to_stop(pid: int) -> None:
    """Send SIGTERM, also to a paused process; does nothing if it has ended. Raises PermissionError."""
    for number in (signal.SIGCONT, signal.SIGTERM):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def find_program(name: str) -> str | None:
    """The full path of a program, given by its name on PATH or by a path; None if there is none."""
    return shutil.which(name)


def python() -> str:
    """Return the path of the running Python interpreter."""
    return sys.executable


def environment_variable(name: str) -> str | None:
    """Return the variable's value; None where it is not set or empty."""
    return os.environ.get(name) or None


def set_environment_default(name: str, value: str) -> None:
    """Set a variable for later children, unless it has a value."""
    os.environ.setdefault(name, value)


def pause_s(seconds: float) -> None:
    """Sleep for this many seconds; for the command line, which has no event loop."""
    time.sleep(seconds)


def ticks(timeout_s: float, interval_s: float = _POLL_S) -> Iterator[None]:
    """Yield at once and then every `interval_s` until `timeout_s` is over, for loops that wait for a condition."""
    deadline = time.monotonic() + timeout_s
    while True:
        yield
        if time.monotonic() >= deadline:
            return
        time.sleep(interval_s)
