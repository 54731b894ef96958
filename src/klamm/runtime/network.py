"""TCP with asyncio protocols. A simulated network implements the same interface."""

import asyncio
import errno
import os
import socket
from asyncio import BaseProtocol
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, TypeVar

from klamm.runtime.blocking import impossible_address

ProtocolT = TypeVar("ProtocolT", bound=BaseProtocol)


class SocketBuffers(NamedTuple):
    """Sizes of a connection's buffers in the system; with -1 it chooses, up to megabytes for a slow peer."""

    send_bytes: int = -1
    receive_bytes: int = -1


SYSTEM_BUFFERS: Final = SocketBuffers()


class Listener(Protocol):
    """A bound port; it accepts connections after `start`."""

    @property
    def port(self) -> int:
        """The bound port, also if port 0 was requested and the system chose one."""
        ...

    async def start(self) -> None:
        """Accept connections from now on."""
        ...

    async def close(self) -> None:
        """Stop accepting connections; accepted ones stay open."""
        ...


class Network(Protocol):
    async def connect(self, make: Callable[[], ProtocolT], host: str, port: int) -> ProtocolT:
        """Connect, and return the protocol that `make` made. Raises OSError; has no timeout of its own."""
        ...

    async def listen(
        self,
        make: Callable[[], BaseProtocol],
        host: str,
        port: int,
        backlog: int = 50,
        buffers: SocketBuffers = SYSTEM_BUFFERS,
    ) -> Listener:
        """Bind an address. Raises OSError if it is in use or not an address of this machine."""
        ...

    def host_name(self) -> str:
        """This machine's host name."""
        ...


class _RealListener:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    @property
    def port(self) -> int:
        """The port that is bound, also where port 0 let the system choose."""
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Begin to accept connections."""
        await self._server.start_serving()

    async def close(self) -> None:
        """Stop accepting connections; accepted ones stay open."""
        self._server.close()


class RealNetwork:
    async def connect(self, make: Callable[[], ProtocolT], host: str, port: int) -> ProtocolT:
        """Open a TCP connection without Nagle's algorithm, and return its protocol made by `make`. Raises OSError."""
        try:
            transport, protocol = await asyncio.get_running_loop().create_connection(make, host, port)
        except (UnicodeError, OverflowError) as error:
            raise impossible_address(host, port, error) from error
        _disable_nagle(transport)
        return protocol

    async def listen(
        self,
        make: Callable[[], BaseProtocol],
        host: str,
        port: int,
        backlog: int = 50,
        buffers: SocketBuffers = SYSTEM_BUFFERS,
    ) -> Listener:
        """Bind host and port (an empty host means all addresses); connections are accepted after `Listener.start`.

        Raises OSError.
        """
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            make, host or None, port, backlog=backlog, reuse_address=True, start_serving=False
        )
        for listening in server.sockets:  # what is accepted there inherits them
            _set_socket_buffer(listening, socket.SO_SNDBUF, buffers.send_bytes)
            _set_socket_buffer(listening, socket.SO_RCVBUF, buffers.receive_bytes)
        return _RealListener(server)

    def host_name(self) -> str:
        """Return the fully qualified name of this machine."""
        return socket.getfqdn()


def is_in_use(error: OSError) -> bool:
    """Whether the error says that another process uses the address."""
    return error.errno == errno.EADDRINUSE


def reason_of(error: OSError) -> str:
    """The system's message for the error, without the address that asyncio adds."""
    if not error.errno:
        return str(error)
    reason = os.strerror(error.errno)
    return reason[:1].lower() + reason[1:]


def _set_socket_buffer(listening: socket.socket, option: int, size: int) -> None:
    """Set the buffer size in bytes; 0 or less leaves it to the system."""
    if size > 0:
        listening.setsockopt(socket.SOL_SOCKET, option, size)


def _disable_nagle(transport: asyncio.BaseTransport) -> None:
    """Set TCP_NODELAY on a TCP connection, so that small packets are sent at once."""
    raw = transport.get_extra_info("socket")
    if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
