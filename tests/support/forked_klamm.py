"""Nodes and commands of klamm in processes that are forked with klamm already imported, which is most of their start.

`spawn_node` stands for `klamm.embedded.nodes.spawn`, `run_klamm` for `python -m klamm`. Nodes of `klamm up` and of the
pytest plugin's own tests, and commands that a test feeds or interrupts, start as everywhere, with an interpreter of
their own.
"""

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import connection, forkserver
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, Final, NamedTuple, NoReturn, cast

import klamm
from klamm.embedded import nodes
from klamm.runtime.processes import Child, spawn
from klamm.runtime.quick_imports import quick_imports

with quick_imports("rich"):  # as `python -m klamm.broker`
    from klamm.broker.run import run_node
    from klamm.cli.commands import consume, controller, explain, groups, produce, transactions  # noqa: F401  # loaded once
    from klamm.cli.main import main
    from klamm.runtime.main_loop import end_process

PR_SET_PDEATHSIG: Final = 1
SERVER: Final = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload([__name__])
_starting = threading.Lock()


class Streams(NamedTuple):
    """Paths of the files that are the standard streams of a process; the last two are appended to."""

    stdin: str
    stdout: str
    stderr: str


class ForkedProcess:
    """What `Child` needs of a process that the fork server has started."""

    def __init__(self, run: Callable[..., int], words: Sequence[str], streams: Streams, environment: Mapping[str, str]):
        self._lock = threading.Lock()
        variables = {**os.environ, **environment}
        self._process = SERVER.Process(target=_become, args=(run, list(words), streams, variables), daemon=True)
        with _starting:
            self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while the process runs."""
        with self._lock:
            return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return the exit status. Raises TimeoutExpired."""
        if self.poll() is None and not connection.wait([self._process.sentinel], timeout):
            assert timeout is not None
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        status = self.poll()
        assert status is not None
        return status


def spawn_node(name: str, command: Sequence[str], log_path: str) -> Child:
    """Fork a node of klamm; start any other program as usual."""
    properties_path = command[-1]
    if list(command) != list(nodes.klamm_node(properties_path)) or sys.platform != "linux":
        return spawn(name, command, log_path)
    node = ForkedProcess(run_node, [properties_path], Streams(os.devnull, log_path, log_path), {})
    return Child(name, cast("subprocess.Popen[bytes]", node), log_path)


def run_klamm(
    *words: str, given: bytes = b"", timeout_s: float = 60, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Fork a command with these bytes as its standard input, and return how it ended. Raises TimeoutExpired."""
    with TemporaryDirectory() as directory:
        streams = Streams(*(f"{directory}/{name}" for name in Streams._fields))
        Path(streams.stdin).write_bytes(given)
        process = ForkedProcess(_run_command, words, streams, environment)
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            raise
        stdout, stderr = (Path(path).read_bytes() for path in (streams.stdout, streams.stderr))
        return subprocess.CompletedProcess(words, status, stdout, stderr)


# ---- in the forked process


def _become(
    run: Callable[..., int], words: Sequence[str], streams: Streams, environment: Mapping[str, str]
) -> NoReturn:
    """Do what `python -m` does in a new process that is a child of this one's test; it ends with the fork server."""
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        server: Any = forkserver._forkserver
        os.close(server._forkserver_alive_fd)  # else the server would outlive the test's process as long as this one
        for number, path in enumerate(streams):
            fd = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(fd, number)
            os.close(fd)
        os.environ.clear()
        os.environ.update(environment)
        end_process(run(*words))
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(1)


def _run_command(*words: str) -> int:
    """Run `klamm` with these words, and return its exit status."""
    module = sys.modules["__main__"] = ModuleType("__main__")  # its package is part of what `--help` prints
    module.__package__ = "klamm"
    sys.argv = [klamm.__file__.replace("__init__", "__main__"), *words]
    try:
        main()
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return 0
