"""Blocking functions for ports, for the command line and tests; nodes use `network`."""

import random
import socket
from contextlib import ExitStack
from typing import Final

LOWEST: Final = 10_000
"""The lowest port that `free_ports` returns."""
_USUAL_FIRST_OUTGOING: Final = 32_768
_HIGHEST: Final = 65_000


def free_port(host: str = "127.0.0.1") -> int:
    """A port that is free now."""
    return free_ports(1, host)[0]


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Find free ports below the range of outgoing connections.

    A port of that range could be taken by any outgoing connection before its owner listens on it.
    """
    found: list[int] = []
    with ExitStack() as stack:
        while len(found) < count:
            port = random.randrange(LOWEST, _first_ephemeral_port())
            one = stack.enter_context(socket.socket())
            try:
                one.bind((host, port))
            except OSError:
                continue
            found.append(port)
    return found


def _first_ephemeral_port() -> int:
    """The lowest port that the system gives to outgoing connections."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
            first = int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return _USUAL_FIRST_OUTGOING
    return first if first >= 2 * LOWEST else _HIGHEST


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
