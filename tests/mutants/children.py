"""Work in a forked child, with limits on processor time, memory and duration. The parent stays as it was."""

import contextlib
import os
import resource
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")

MAX_MEMORY_BYTES: Final = 3 << 30
_FORK: Final = get_context("fork")


class Limits(NamedTuple):
    cpu_s: float
    """Processor time, after which the child is killed."""
    wall_s: float
    """For what waits without computing."""


class Ended(NamedTuple):
    """How a child ended that has no result."""

    why: str


def in_child(work: Callable[[Path], T], limits: Limits) -> tuple[T | Ended, float]:
    """The result of `work`, which gets a directory of its own, and the seconds of processor time that it took."""
    directory = Path(tempfile.mkdtemp(prefix="mutant-"))
    receiver, sender = _FORK.Pipe(duplex=False)
    before = _children_cpu_s()
    child = _FORK.Process(target=_run, args=(work, directory, sender, limits), daemon=True)
    child.start()
    assert child.pid is not None
    with contextlib.suppress(ProcessLookupError):
        os.setpgid(child.pid, child.pid)  # the child does it too, perhaps later than it is to be killed
    sender.close()
    try:
        result = _received(receiver, limits.wall_s)
        _kill_group(child.pid)
        child.join()
        if child.exitcode == -signal.SIGXCPU:
            result = Ended(f"more than {limits.cpu_s:.0f} s of processor time")
        return result, _children_cpu_s() - before
    finally:
        receiver.close()
        _kill_group(child.pid)
        shutil.rmtree(directory, ignore_errors=True)


def _received(receiver: "Connection[None, tuple[bool, T | str]]", wall_s: float) -> T | Ended:
    """What the child sends; Ended where it sends nothing, in time or at all."""
    if not receiver.poll(wall_s):
        return Ended(f"more than {wall_s:.0f} s")
    try:
        is_result, value = receiver.recv()
    except EOFError:
        return Ended("the process ended")
    if not is_result:
        raise RuntimeError(f"the killer failed:\n{value}")
    return value  # type: ignore[return-value]


def _run(
    work: Callable[[Path], T], directory: Path, sender: "Connection[tuple[bool, T | str], None]", limits: Limits
) -> None:
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_CPU, (int(limits.cpu_s) + 1, int(limits.cpu_s) + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    output = os.open(directory / "output", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        result: tuple[bool, T | str] = (True, work(directory))
    except BaseException:
        result = (False, traceback.format_exc())
    sender.send(result)
    os._exit(0)


def _kill_group(pid: int | None) -> None:
    """End the child and whatever it started."""
    assert pid is not None
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
