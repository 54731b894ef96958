"""Standard input and output of a command whose event loop must not wait for them: a thread waits instead.

The thread is a daemon: a command that ends while it waits for a person or a slow reader leaves it behind.
"""

import asyncio
import contextlib
import os
import queue
import select
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

READ_BYTES: Final = 256 * 1024
_STDIN, _STDOUT, _STDERR = 0, 1, 2


@contextlib.contextmanager
def stderr_of_children_held() -> Iterator[None]:
    """Within this, child processes get a file in place of standard error, and keep it.

    What they wrote is printed if the block raises; afterwards nobody sees it.
    """
    with tempfile.TemporaryFile() as file:
        sys.stderr.flush()
        kept = os.dup(_STDERR)
        os.dup2(file.fileno(), _STDERR)
        try:
            yield
        except Exception:
            os.dup2(kept, _STDERR)
            file.seek(0)
            os.write(_STDERR, file.read())
            raise
        finally:
            os.dup2(kept, _STDERR)
            os.close(kept)


class WaitingThread:
    """Runs one call after the other in a daemon thread."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]]] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    async def run(self, call: Callable[[], Any]) -> Any:
        """Run the call in the thread and return its result. Raises what the call raises."""
        result: asyncio.Future[Any] = self._loop.create_future()
        self._calls.put((call, result))
        return await result

    def _run(self) -> None:
        """Execute the calls; ends with the process."""
        while True:
            call, result = self._calls.get()
            value: Any = None
            failure: OSError | None = None
            try:
                value = call()
            except OSError as error:
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(_settle, result, value, failure)


def _settle(result: "asyncio.Future[Any]", value: Any, failure: OSError | None) -> None:
    """Give the task that waits the value, or raise the error in it; a cancelled one gets nothing."""
    if result.done():
        return
    if failure is None:
        result.set_result(value)
    else:
        result.set_exception(failure)


class StandardInput:
    """Standard input as blocks of bytes, as they come."""

    def __init__(self) -> None:
        self._thread = WaitingThread("standard-input")

    async def read(self) -> bytes:
        """Read the next bytes of standard input; empty at its end. Raises OSError."""
        content: bytes = await self._thread.run(lambda: os.read(_STDIN, READ_BYTES))
        return content


class StandardOutput:
    """Standard output for large blocks of bytes."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._thread = WaitingThread("standard-output")

    async def write(self, content: bytes) -> None:
        """Write the content to standard output; returns when all is written.

        Raises OSError, BrokenPipeError where the reader has closed it.
        """
        await self._thread.run(lambda: _write_all(content))


def _write_all(content: bytes) -> None:
    """Write the content to standard output, however many calls that takes."""
    view = memoryview(content)
    while view:
        view = view[os.write(_STDOUT, view) :]


def on_output_closed(callback: Callable[[], None]) -> None:
    """Call back once the reader of standard output has closed it, also while nothing is written; never for a file."""
    loop = asyncio.get_running_loop()
    poll = select.poll()
    poll.register(_STDOUT, 0)  # errors and hang-ups are reported in any case

    def wait() -> None:
        """Wait until the other end is closed; ends with the process."""
        if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll()):
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(callback)

    threading.Thread(target=wait, name="standard-output-closed", daemon=True).start()


def discard_output() -> None:
    """Send what is still printed to nowhere: the reader of standard output has closed it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, _STDOUT)
    os.close(nowhere)


def terminal_width() -> int:
    """Characters in a line of the terminal, or COLUMNS of the environment; 80 where there is neither."""
    return shutil.get_terminal_size().columns
