"""Blocking functions for ports, for the command line and tests; nodes use `network`."""

import atexit
import os
import random
import socket
import threading
from collections import deque
from typing import Final

LOWEST: Final = 10_000
"""The lowest port that `free_ports` returns."""
BLOCK: Final = 50
"""How many ports a process reserves at a time."""
MAX_BLOCKS: Final = 32
"""How many blocks a process reserves before it gives ports out again, first those that it gave out first."""
_USUAL_FIRST_OUTGOING: Final = 32_768
_HIGHEST: Final = 65_000
_MIN_CHOICE: Final = 1_000
_LOCAL: Final = "127.0.0.1"


class PortBlocks:
    """Blocks of ports that no other process gives out as long as this one runs, also while nothing listens on them.

    A UDP socket that is bound to the first number of a block reserves it.
    """

    def __init__(self, first: int, end: int) -> None:
        """Use blocks between these two ports, without the second one."""
        self._starts = range(first, end - BLOCK + 1, BLOCK)
        self._reservations: list[socket.socket] = []
        self._unused: deque[int] = deque()
        self._used: deque[int] = deque()

    def draw(self, host: str) -> int:
        """Return a port that is free now, if possible one that was not drawn before. Raises OSError without one."""
        for _ in range((MAX_BLOCKS + 1) * BLOCK):
            if _is_free(host, port := self._next()):
                return port
        while self._reserve_block():  # the others are in use, or were a minute ago
            for _ in range(BLOCK):
                if _is_free(host, port := self._next()):
                    return port
        raise OSError("all ports that this process may use are in use")

    def close(self) -> None:
        """Give the blocks back: at the end of the process, where an open socket would cause a warning of Python."""
        for reservation in self._reservations:
            reservation.close()

    def _next(self) -> int:
        """The next port: a new one, or where there is none the one that was drawn first. Raises OSError."""
        if not self._unused and len(self._reservations) < MAX_BLOCKS:
            self._reserve_block()
        if not self._used and not self._unused:
            raise OSError("other processes have reserved all ports")
        port = (self._unused or self._used).popleft()
        self._used.append(port)
        return port

    def _reserve_block(self) -> bool:
        """Reserve another block; returns False where there is none that no process has reserved."""
        for start in random.sample(self._starts, len(self._starts)):
            reservation = socket.socket(type=socket.SOCK_DGRAM)
            try:
                reservation.bind((_LOCAL, start))
            except OSError:
                reservation.close()
            else:
                self._reservations.append(reservation)
                self._unused.extend(range(start, start + BLOCK))
                return True
        return False


def _is_free(host: str, port: int) -> bool:
    """Whether a server can listen on the port; not for a minute after a connection of it was closed."""
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


_lock: Final = threading.Lock()
_blocks: dict[int, PortBlocks] = {}
"""The blocks of this process, by its id: a forked process reserves others."""


def free_port(host: str = _LOCAL) -> int:
    """A port that is free now, and that no other process gets from here."""
    return free_ports(1, host)[0]


def free_ports(count: int, host: str = _LOCAL) -> list[int]:
    """Find free ports below the range of outgoing connections; no other process gets them from here. Raises OSError.

    A port of that range could be taken by any outgoing connection before its owner listens on it.
    """
    with _lock:
        pid = os.getpid()
        if pid not in _blocks:
            _blocks[pid] = PortBlocks(LOWEST, _first_ephemeral_port())
            atexit.register(_blocks[pid].close)
        return [_blocks[pid].draw(host) for _ in range(count)]


def _first_ephemeral_port() -> int:
    """The lowest port that the system gives to outgoing connections."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
            first = int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return _USUAL_FIRST_OUTGOING
    return first if first >= LOWEST + _MIN_CHOICE else _HIGHEST


def is_listening(host: str, port: int, timeout_s: float = 1.0) -> bool:
    """Whether a connection to the port succeeds within `timeout_s` seconds."""
    try:
        socket.create_connection((host, port), timeout_s).close()
    except OSError:
        return False
    return True


def ask(host: str, port: int, question: bytes, timeout_s: float = 1.0, most_bytes: int = 1 << 20) -> bytes:
    """Send `question` to the port, and return what arrives until the peer closes; empty if nothing listens there."""
    answer = bytearray()
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            connection.sendall(question)
            while len(answer) < most_bytes and (part := connection.recv(65536)):
                answer += part
    except OSError:
        return b""
    return bytes(answer)
