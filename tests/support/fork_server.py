"""A process that has imported klamm, and forks nodes and commands: they start in a tenth of the processor time.

`spawn_node` stands for `klamm.embedded.nodes.spawn`, `run_klamm` for `python -m klamm`. Nodes of `klamm up` and of the
pytest plugin's own tests, and commands that a test feeds or interrupts, start as everywhere, with an interpreter of
their own. `python -m tests.support.fork_server FD` is the program of the server.
"""

import array
import atexit
import ctypes
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from tempfile import TemporaryFile
from types import ModuleType
from typing import IO, Any, Final, NoReturn, cast

import klamm
from klamm.embedded import nodes
from klamm.runtime.processes import Child, spawn
from klamm.runtime.quick_imports import quick_imports

MAX_REQUEST_BYTES: Final = 1 << 20
STANDARD_STREAMS: Final = 3
NODE: Final = "node"
COMMAND: Final = "command"
PR_SET_PDEATHSIG: Final = 1


# ---- in the test's process


class ForkServer:
    """The server of this process, and the connection to it. It ends with this process, and its nodes end with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.fork_server", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        atexit.register(self._close)

    def start(
        self, program: str, words: Sequence[str], streams: Sequence[IO[bytes]], environment: Mapping[str, str]
    ) -> "ForkedProcess":
        """Fork a program in the working directory of this process; `streams` become its three standard streams."""
        request = {
            "start": program,
            "words": list(words),
            "environment": {**os.environ, **environment},
            "directory": os.getcwd(),
        }
        return ForkedProcess(self, self._ask(request, *(stream.fileno() for stream in streams)))

    def wait_status(self, pid: int) -> int:
        """Wait until this process has ended."""
        return self._ask({"wait": pid})

    def _ask(self, request: dict[str, Any], *fds: int) -> int:
        """Send a request, with open files, and return the number that answers it."""
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        with self._lock:
            self._connection.sendmsg([json.dumps(request).encode()], ancillary)
            answer = self._connection.recv(100)
        assert answer, f"the fork server ended with status {self._process.wait(5)}"
        return int(answer)

    def _close(self) -> None:
        """End the server."""
        self._connection.close()
        self._process.wait()


class ForkedProcess:
    """What `Child` needs of a process that the fork server has started."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid = pid
        self._server = server
        self._returncode: int | None = None
        self._pidfd = os.pidfd_open(pid)
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit status; None while the process runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return the exit status. Raises TimeoutExpired."""
        status = self._look(timeout)
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return status

    def _look(self, timeout_s: float | None) -> int | None:
        """Wait for the end for some seconds. As with `Popen`, a process is a zombie until somebody looks."""
        with self._lock:
            if self._returncode is None:
                ended = select.poll()
                ended.register(self._pidfd, select.POLLIN)
                if not ended.poll(None if timeout_s is None else timeout_s * 1000):
                    return None
                self._returncode = os.waitstatus_to_exitcode(self._server.wait_status(self.pid))
                os.close(self._pidfd)
            return self._returncode


_servers: dict[int, ForkServer] = {}
"""By the id of the process that has it: a worker for tests that is forked has none yet."""
_starting = threading.Lock()


def fork_server() -> ForkServer:
    """The server of this process, started once."""
    with _starting:
        return _servers.get(os.getpid()) or _servers.setdefault(os.getpid(), ForkServer())


def spawn_node(name: str, command: Sequence[str], log_path: str) -> Child:
    """Fork a node of klamm; start any other program as usual."""
    properties_path = command[-1]
    if list(command) != list(nodes.klamm_node(properties_path)) or sys.platform != "linux":
        return spawn(name, command, log_path)
    with open(os.devnull, "rb") as nothing, open(log_path, "ab") as log:
        node = fork_server().start(NODE, [properties_path], [nothing, log, log], {})
    return Child(name, cast("subprocess.Popen[bytes]", node), log_path)


def run_klamm(
    *words: str, given: bytes = b"", timeout_s: float = 60, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Fork a command with these bytes as its standard input, and return how it ended. Raises TimeoutExpired."""
    with TemporaryFile() as stdout, TemporaryFile() as stderr:
        reader, writer = (os.fdopen(fd, mode) for fd, mode in zip(os.pipe(), ("rb", "wb"), strict=True))
        with reader:
            process = fork_server().start(COMMAND, words, [reader, stdout, stderr], environment)
        threading.Thread(target=_write, args=(writer, given), daemon=True).start()
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            raise
        stdout.seek(0)
        stderr.seek(0)
        return subprocess.CompletedProcess(words, status, stdout.read(), stderr.read())


def _write(pipe: IO[bytes], content: bytes) -> None:
    """Write this into a pipe, which its reader may close before."""
    with suppress(BrokenPipeError), pipe:
        pipe.write(content)


# ---- in the server


def serve(connection: socket.socket) -> None:
    """Start nodes and wait for them, as the test's process asks, until it ends."""
    while True:
        content, fds, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, STANDARD_STREAMS)
        if not content:
            return
        request = json.loads(content)
        if "wait" in request:
            answer = os.waitpid(request["wait"], 0)[1]
        else:
            if request["start"] == COMMAND:
                _import_command(request["words"])
            answer = os.fork()
            if answer == 0:
                connection.close()
                _become(request, fds)
            for fd in fds:
                os.close(fd)
        connection.send(str(answer).encode())


def _import_command(words: list[str]) -> None:
    """Import a command of klamm here, once, and not in each forked process."""
    from klamm.cli.app import COMMANDS

    if words and (entry := COMMANDS.get(words[0])):
        with quick_imports():
            import_module(f"klamm.cli.commands.{entry.module}")
        gc.freeze()


def _become(request: dict[str, Any], fds: list[int]) -> NoReturn:
    """Do in a forked process what `python -m klamm.broker` or `python -m klamm` do in a new one."""
    try:
        server = os.getppid()
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != server:
            os._exit(1)
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
            os.close(fd)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["directory"])
        gc.enable()
        if request["start"] == NODE:
            end_process(run_node(*request["words"]))
        _run_command(request["words"])
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(1)


def _run_command(words: list[str]) -> NoReturn:
    """Run `klamm` with these words, and end this process."""
    from klamm.cli.main import main

    module = sys.modules["__main__"] = ModuleType("__main__")  # its package is part of what `--help` prints
    module.__package__ = "klamm"
    sys.argv = [klamm.__file__.replace("__init__", "__main__"), *words]
    status: object = 0
    try:
        main()
    except SystemExit as error:
        status = error.code
    end_process(status if isinstance(status, int) else int(status is not None))


if __name__ == "__main__":
    gc.disable()
    with quick_imports("rich"):
        from klamm.broker.run import run_node
        from klamm.runtime.main_loop import end_process
    gc.freeze()
    assert len(os.listdir("/proc/self/task")) == 1, "an import has started a thread, which a fork would lose"
    serve(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)
