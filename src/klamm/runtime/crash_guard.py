"""Starts the crash guard: a small process that closes the ZooKeeper sessions of a node that was killed or crashed.

The guard acts only when the node's process has ended, not when it is slow: it waits for the end through a pidfd (Linux
5.3 and newer). Source of the rule about process 1: pid_namespaces(7).
`guard_process.py` is its program.
"""

import asyncio
import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from klamm.runtime import guard_process

_END_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class GuardedSession:
    """A ZooKeeper session that the guard closes when this process has ended."""

    session_id: int
    password: bytes
    timeout_ms: int
    servers: Sequence[tuple[str, int]]
    """Host and port of each server of the ensemble, in the order in which the guard tries them."""
    record_path: str = ""
    """The znode, with the chroot, in which the guard records how the process ended; empty for none."""


class Guard(Protocol):
    """A running guard."""

    def watch(self, session: GuardedSession) -> None:
        """Close this session when the process has ended; replaces an earlier call for the same session.

        Raises OSError where the guard does not read.
        """
        ...

    def forget(self, session_id: int) -> None:
        """Tell the guard not to close this session, which has ended. Raises OSError where the guard does not read."""
        ...

    async def wait_for_end(self) -> None:
        """Wait until the crash guard process has ended."""
        ...

    def kill(self) -> None:
        """Kill the crash guard process; it then closes no ZooKeeper session."""
        ...

    async def close(self) -> None:
        """Close the pipe to the guard. It ends at once, or when it has closed the sessions that are left open."""
        ...


class NoCrashGuard(OSError):
    """A crash guard cannot run here, or would end with this process."""

    def __init__(self, reason: str, remedy: str = "Run the node on Linux 5.3 or newer") -> None:
        super().__init__(reason)
        self.remedy = remedy
        """What to do for a crash guard, as a sentence without its period."""


class Guards(Protocol):
    """Starts guards of this process."""

    async def start(self) -> Guard:
        """Start a guard. Raises NoCrashGuard where that is never possible, another OSError where it failed now."""
        ...


class NoGuards:
    """Starts no guards: for systems without guard processes."""

    async def start(self) -> Guard:
        """Raise NoCrashGuard: this system has no crash guards."""
        raise NoCrashGuard("a crash guard needs Linux 5.3 or newer")


class GuardProcesses:
    """Starts guards as processes, on Linux."""

    async def start(self) -> Guard:
        """Start a guard process.

        Raises NoCrashGuard without pidfds, and in process 1 of a container; OSError where no process can be started.
        """
        if os.getpid() == 1:
            raise NoCrashGuard(
                "this is process 1 of its container: when it ends, the kernel kills all others there, and the guard",
                "Start the node by a process of the container that outlives it",
            )
        if not hasattr(os, "pidfd_open"):
            raise NoCrashGuard(f"a crash guard needs pidfds (Linux 5.3 and newer); this is {sys.platform}")
        try:
            os.close(os.pidfd_open(os.getpid()))
        except OSError as error:
            if error.errno in (errno.ENOSYS, errno.EPERM):
                raise NoCrashGuard(
                    "a crash guard needs pidfds (Linux 5.3 and newer), which the kernel or a seccomp filter refuses: "
                    f"{error.strerror}"
                ) from error
            raise
        return GuardProcess(await asyncio.to_thread(_spawn))


def _spawn() -> subprocess.Popen[bytes]:
    """Start the guard's program in a process group of its own, so that a signal to this process's group spares it."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", guard_process.__file__, str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        bufsize=0,
        cwd="/",
        start_new_session=True,
    )


class GuardProcess:
    """A guard process, and the pipe to it. For one event loop."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        self._process = process
        self._pipe = process.stdin.fileno()
        os.set_blocking(self._pipe, False)
        self._pidfd = os.pidfd_open(process.pid)
        self._ended = asyncio.Event()
        self._watched: set[int] = set()
        asyncio.get_running_loop().add_reader(self._pidfd, self._on_end)

    @property
    def pid(self) -> int:
        """The process id of the crash guard."""
        return self._process.pid

    def watch(self, session: GuardedSession) -> None:
        """Tell the crash guard to close this ZooKeeper session after a crash. Raises OSError."""
        servers = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in session.servers)
        self._tell(
            f"watch {session.session_id & (2**64 - 1):x} {session.password.hex()} {session.timeout_ms} {servers} "
            f"{session.record_path or '-'}"
        )
        self._watched.add(session.session_id)

    def forget(self, session_id: int) -> None:
        """Tell the crash guard that a ZooKeeper session has ended. Raises OSError."""
        self._tell(f"forget {session_id & (2**64 - 1):x}")
        self._watched.discard(session_id)

    def _tell(self, line: str) -> None:
        """Write a line into the pipe. Raises OSError where the guard ended or its pipe is full."""
        content = line.encode() + b"\n"
        if os.write(self._pipe, content) < len(content):
            raise BlockingIOError("the crash guard does not read what the node writes: its pipe is full")

    async def wait_for_end(self) -> None:
        """Wait until the process has ended."""
        await self._ended.wait()

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()

    async def close(self) -> None:
        """Close the pipe and wait at most 2 s; a guard with sessions left stays until this process has ended."""
        self._process.stdin.close()  # type: ignore[union-attr]
        if not self._watched:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_TIMEOUT_S):
                    await self._ended.wait()
        if not self._ended.is_set():
            self._stop_reading()

    def _on_end(self) -> None:
        """Take the exit status of the process, so that it does not stay a zombie."""
        self._stop_reading()
        self._process.wait()
        self._ended.set()

    def _stop_reading(self) -> None:
        """Close the pidfd."""
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
