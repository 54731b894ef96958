"""TCP, as asyncio Protocols. A simulated network answers the same two calls."""

import asyncio
import errno
import os
import socket
from asyncio import BaseProtocol
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, TypeVar

ProtocolT = TypeVar("ProtocolT", bound=BaseProtocol)


class SocketBuffers(NamedTuple):
    """What the system may hold of one connection; -1 lets it decide, and grow to megabytes where a peer is slow."""

    send_bytes: int = -1
    receive_bytes: int = -1


SYSTEM_BUFFERS: Final = SocketBuffers()


class Listener(Protocol):
    """A bound port; nobody gets in before `start`."""

    @property
    def port(self) -> int:
        """The bound port; where 0 was asked for, the one the system chose."""
        ...

    async def start(self) -> None:
        """Accept connections from now on."""
        ...

    async def close(self) -> None:
        """Stop accepting; connections already made live on."""
        ...


class Network(Protocol):
    async def connect(self, make: Callable[[], ProtocolT], host: str, port: int) -> ProtocolT:
        """A connected protocol. Raises OSError; give it a timeout from outside."""
        ...

    async def listen(
        self,
        make: Callable[[], BaseProtocol],
        host: str,
        port: int,
        backlog: int = 50,
        buffers: SocketBuffers = SYSTEM_BUFFERS,
    ) -> Listener:
        """Bind an address. Raises OSError where it is taken or not of this machine."""
        ...

    def host_name(self) -> str:
        """What this machine calls itself."""
        ...


class _RealListener:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        await self._server.start_serving()

    async def close(self) -> None:
        self._server.close()


class RealNetwork:
    async def connect(self, make: Callable[[], ProtocolT], host: str, port: int) -> ProtocolT:
        transport, protocol = await asyncio.get_running_loop().create_connection(make, host, port)
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
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            make, host or None, port, backlog=backlog, reuse_address=True, start_serving=False
        )
        for listening in server.sockets:  # what is accepted there inherits them
            _set_socket_buffer(listening, socket.SO_SNDBUF, buffers.send_bytes)
            _set_socket_buffer(listening, socket.SO_RCVBUF, buffers.receive_bytes)
        return _RealListener(server)

    def host_name(self) -> str:
        return socket.getfqdn()


def is_in_use(error: OSError) -> bool:
    """Whether the error says that another process uses the address."""
    return error.errno == errno.EADDRINUSE


def reason_of(error: OSError) -> str:
    """The system's words for the error, without asyncio's repetition of the address."""
    if not error.errno:
        return str(error)
    reason = os.strerror(error.errno)
    return reason[:1].lower() + reason[1:]


def _set_socket_buffer(listening: socket.socket, option: int, size: int) -> None:
    if size > 0:
        listening.setsockopt(socket.SOL_SOCKET, option, size)


def _disable_nagle(transport: asyncio.BaseTransport) -> None:
    raw = transport.get_extra_info("socket")
    if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
