"""Long computations in worker processes: in a thread they would hold the interpreter, and with it the event loop.

A worker process is started by the first call that needs it, and ends when this process closes its pipe or dies. Calls
and results are pickled.
"""

import asyncio
import contextlib
import os
import pickle
import resource
import signal
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, Final, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

MAX_PROCESSES: Final = 2
MAX_WORKER_BYTES: Final = 1024 * 1024 * 1024
"""The memory limit of a worker process."""
_END_TIMEOUT_S: Final = 5
_NICENESS: Final = 10  # the event loops come first
_LENGTH: Final = struct.Struct(">Q")
_START: Final = "import sys; sys.path[:] = sys.argv[1:]; from klamm.runtime.workers import serve; serve()"


class WorkerFailed(Exception):
    """The call raised an exception, or its process ended twice. The text says which."""


class Workers(Protocol):
    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `call`, a function of a module, in a worker process and return its result. Raises WorkerFailed."""
        ...

    def pool(self, processes: int) -> "Workers":
        """Return new workers for one kind of work, with at most `processes` processes; the caller closes them.

        With one process, what a call leaves in memory is there for the next call.
        """
        ...

    async def close(self) -> None:
        """Stop all worker processes; callers of running calls get WorkerFailed."""
        ...


class InlineWorkers:
    """Runs every call in this process, after one pass of the event loop: for tests and simulated time."""

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function in this process after one pass of the event loop, and return its result."""
        await asyncio.sleep(0)
        return call(*args, **kwargs)

    def pool(self, processes: int) -> "InlineWorkers":  # noqa: ARG002 - all work is done here
        """Return this object: without processes there is nothing to limit."""
        return self

    async def close(self) -> None:
        """Do nothing: there is no process to end."""
        return


class ProcessWorkers:
    """Runs at most `processes` calls at a time; further calls wait in order. For one event loop."""

    def __init__(self, processes: int = MAX_PROCESSES) -> None:
        self._processes = processes
        self._threads: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._is_closed = False
        self._idle: list[_Worker] = []
        self._running: set[_Worker] = set()

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function in a worker process and return its result. Raises WorkerFailed where it fails.

        Arguments and result are pickled.
        """
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._processes, "worker")
            self._is_closed = False
        loop = asyncio.get_running_loop()
        succeeded, result = await loop.run_in_executor(self._threads, self._run_in_worker, (call, args, kwargs))
        if not succeeded:
            raise WorkerFailed(result)
        value: T = result
        return value

    def pool(self, processes: int) -> "ProcessWorkers":
        """Return a new, separate pool of at most `processes` worker processes."""
        return ProcessWorkers(processes)

    async def close(self) -> None:
        """Kill the processes that work, and end the idle ones; a later `run` starts new ones."""
        threads, self._threads = self._threads, None
        if threads is None:
            return
        threads.shutdown(wait=False)
        with self._lock:
            self._is_closed = True
            for worker in self._running:
                worker.kill()
        await asyncio.to_thread(threads.shutdown)
        while self._idle:
            self._idle.pop().end()

    def _run_in_worker(self, request: object) -> tuple[bool, Any]:
        """Send the call to an idle or new process and wait for its result; runs in a thread.

        Returns (True, result), or (False, text of the error).
        """
        status = 0
        for is_retry in (False, True):
            try:
                worker = self._take_worker(is_new=is_retry)
            except OSError as error:
                return False, f"cannot start a worker process ({error}); check the limits on processes and memory"
            if worker is None:
                return False, "the worker processes are closed, because the node stops"
            try:
                return worker.ask(request)
            except (OSError, EOFError):
                status = worker.end()
            except BaseException:  # half an answer may be left in the pipe, which the next call would take for its own
                worker.kill()
                worker.end()
                raise
            finally:
                self._give_back(worker)
        return False, f"the worker process ended twice, last with exit status {status}"

    def _take_worker(self, *, is_new: bool) -> "_Worker | None":
        """Return an idle or new worker; None if the workers are closed. Raises OSError if no process can be started."""
        with self._lock:
            if self._is_closed:
                return None
            worker = self._idle.pop() if self._idle and not is_new else _Worker()
            self._running.add(worker)
            return worker

    def _give_back(self, worker: "_Worker") -> None:
        """Make the worker available for the next call."""
        with self._lock:
            self._running.discard(worker)
            if worker.is_running:
                self._idle.append(worker)


class _Worker:
    """One process, and the two pipes to it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, *sys.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.returncode is None

    def ask(self, request: object) -> tuple[bool, Any]:
        """Send a request and wait for its answer. Raises OSError, EOFError if the process ends."""
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        _send(requests, request)
        answer: tuple[bool, Any] = _receive(answers)
        return answer

    def kill(self) -> None:
        """Kill the process at once."""
        self._process.kill()

    def end(self) -> int:
        """End the process and return its exit status, negative for a signal."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            return self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def _send(pipe: IO[bytes], content: object) -> None:
    """Write the pickled content to the pipe, after its length."""
    encoded = pickle.dumps(content, pickle.HIGHEST_PROTOCOL)
    for part in (_LENGTH.pack(len(encoded)), encoded):
        view = memoryview(part)
        while view:
            view = view[pipe.write(view) :]


def _receive(pipe: IO[bytes]) -> Any:
    """Read one pickled object from the pipe. Raises EOFError where the pipe is closed."""
    (length,) = _LENGTH.unpack(_read_exactly(pipe, _LENGTH.size))
    return pickle.loads(_read_exactly(pipe, length))


def _read_exactly(pipe: IO[bytes], count: int) -> bytearray:
    """Read this many bytes. Raises EOFError."""
    content = bytearray(count)
    view = memoryview(content)
    while view:
        received = pipe.readinto(view)  # type: ignore[attr-defined]
        if not received:
            raise EOFError
        view = view[received:]
    return content


def serve() -> None:
    """Run as a worker process: answer requests from standard input until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the node, which closes the pipe
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_WORKER_BYTES, MAX_WORKER_BYTES))
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what is printed by mistake must not end up among the answers
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            _send(answers, _execute_request(_receive(requests)))


def _execute_request(request: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]) -> tuple[bool, Any]:
    """Call the requested function and return (True, result), or (False, text of the error)."""
    call, args, kwargs = request
    try:
        return True, call(*args, **kwargs)
    except Exception:
        return False, traceback.format_exc()
