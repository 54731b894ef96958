"""Blocking sockets and sleep, for code without an event loop: Spark's Python workers."""

import errno
import os
import socket
import struct
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

Buffer = bytes | bytearray | memoryview


def new_lock() -> threading.Lock:
    """Return a lock for data that several threads use."""
    return threading.Lock()


def impossible_address(host: str, port: int, error: Exception) -> OSError:
    """The error for a host name that cannot be encoded, or a port that does not exist."""
    return OSError(errno.EADDRNOTAVAIL, f"{host!r} and port {port} are not an address ({error})")


def discard_on_close(connected: socket.socket) -> None:
    """Have the system send nothing any more when the socket is closed, but a reset."""
    with suppress(OSError):  # it is closed already
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class BlockingConnection(Protocol):
    """A blocking TCP connection. Every call may raise OSError (TimeoutError, too); it is unusable afterwards."""

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Send the buffers in order; returns when the system has taken all bytes. Raises OSError."""

    def receive(self, count: int) -> bytes:
        """Return exactly `count` bytes; blocks until they have arrived. Raises OSError."""
        ...

    def is_quiet(self) -> bool:
        """Whether the connection is open and nothing has arrived on it; never raises."""
        ...

    def close(self) -> None:
        """Close the connection."""

    def discard(self) -> None:
        """Close the connection; what the other side's system does not have yet is never delivered."""


class BlockingWorld(Protocol):
    """Network, time and processors for code without an event loop."""

    def connect(self, host: str, port: int, connect_timeout_s: float, answer_timeout_s: float) -> BlockingConnection:
        """Open a connection and return it.

        Sending, and each part received, may take `answer_timeout_s`. Raises OSError.
        """
        ...

    def now_s(self) -> float:
        """A monotonic time in seconds, for measuring durations."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block the calling thread for this many seconds."""

    def processors(self) -> int:
        """Return the number of processors of the machine, at least 1."""


class _RealConnection:
    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Send the buffers in order; returns when the system has taken all bytes. Raises OSError."""
        for buffer in buffers:
            self._socket.sendall(buffer)

    def receive(self, count: int) -> bytes:
        """Return exactly `count` bytes. Raises TimeoutError, or ConnectionResetError where the other side closes."""
        # the kernel gathers all of it: no extra copy, and one wake-up for many megabytes
        parts: list[bytes] = []
        while count:
            try:
                part = self._socket.recv(count, socket.MSG_WAITALL)
            except BlockingIOError:
                raise TimeoutError("timed out") from None
            if not part:
                raise ConnectionResetError(
                    f"the other side closed the connection while {count} bytes were still expected"
                )
            parts.append(part)
            count -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def is_quiet(self) -> bool:
        """Whether the connection is open and no byte waits to be received."""
        try:
            self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def discard(self) -> None:
        """Close the socket, and send nothing of what is still in its buffer."""
        discard_on_close(self._socket)
        self._socket.close()


class RealBlockingWorld:
    def connect(self, host: str, port: int, connect_timeout_s: float, answer_timeout_s: float) -> BlockingConnection:
        """Connect within `connect_timeout_s`; each later send or receive may block for `answer_timeout_s`.

        Raises OSError.
        """
        try:
            connected = socket.create_connection((host, port), connect_timeout_s)
        except (UnicodeError, OverflowError) as error:
            raise impossible_address(host, port, error) from error
        connected.settimeout(None)  # the kernel's own time-outs let a call wait for all of an answer
        seconds, rest = divmod(answer_timeout_s, 1)
        timeout = struct.pack("@ll", int(seconds), int(rest * 1_000_000))
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return _RealConnection(connected)

    def now_s(self) -> float:
        """Return the monotonic time in seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block the calling thread for this many seconds."""
        time.sleep(seconds)

    def processors(self) -> int:
        """Return the number of processors of the machine, at least 1."""
        return os.cpu_count() or 1
