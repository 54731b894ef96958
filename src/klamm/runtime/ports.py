"""Plain blocking look at ports, for the command line and for tests; nodes use `network`."""

import socket
from contextlib import ExitStack


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on now."""
    return free_ports(1, host)[0]


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """That many different ones."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((host, 0))
        return [each.getsockname()[1] for each in sockets]


def is_listening(host: str, port: int, timeout_s: float = 1.0) -> bool:
    try:
        socket.create_connection((host, port), timeout_s).close()
    except OSError:
        return False
    return True


def ask(host: str, port: int, question: bytes, timeout_s: float = 1.0, most_bytes: int = 1 << 20) -> bytes:
    """Send `question` and read until the other side closes; empty where nobody answers."""
    answer = bytearray()
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            connection.sendall(question)
            while len(answer) < most_bytes and (part := connection.recv(65536)):
                answer += part
    except OSError:
        return b""
    return bytes(answer)
