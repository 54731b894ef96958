"""TCP with asyncio protocols. A simulated network implements the same interface."""

import asyncio
import errno
import os
import socket
from asyncio import BaseProtocol
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from klamm.runtime.blocking import discard_on_close, impossible_address

NEXT_ADDRESS_S: Final = 0.25
"""How long one address of a host may not answer until the next one is tried beside it, as RFC 8305 recommends."""
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


AddressInfo = tuple[int, int, int, str, Any]
"""An entry of `getaddrinfo`: family, type, protocol, canonical name, address."""


class RealNetwork:
    def __init__(self) -> None:
        self._connects: Counter[str] = Counter()
        """How often each host name with several addresses was connected to."""

    async def connect(self, make: Callable[[], ProtocolT], host: str, port: int) -> ProtocolT:
        """Open a TCP connection without Nagle's algorithm, with keepalive, and return its protocol made by `make`.

        A host name may have several addresses: each connection begins with another one, and one that does not answer
        does not keep the others from being tried.
        Raises OSError.
        """
        loop = asyncio.get_running_loop()
        try:
            addresses = [] if _is_address(host) else await _look_up(host, port)
            if len(addresses) < 2:
                transport, protocol = await loop.create_connection(make, host, port)
            else:
                connected = await _connect_to_any(self._in_turn(host, addresses))
                transport, protocol = await loop.create_connection(make, sock=connected)
        except (UnicodeError, OverflowError) as error:
            raise impossible_address(host, port, error) from error
        _set_options(transport)
        return protocol

    def _in_turn(self, host: str, addresses: Sequence[AddressInfo]) -> list[AddressInfo]:
        """Return the addresses in another order each time, those of the preferred family first.

        A server may accept connections and not serve them, as one of ZooKeeper does without a quorum.
        """
        preferred = [a for a in addresses if a[0] == addresses[0][0]]
        turn = self._connects[host] % len(preferred)
        self._connects[host] += 1
        return [*preferred[turn:], *preferred[:turn], *(a for a in addresses if a[0] != addresses[0][0])]

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
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return _RealListener(server)

    def host_name(self) -> str:
        """Return the fully qualified name of this machine."""
        return socket.getfqdn()


def _is_address(host: str) -> bool:
    """Whether this is an address of IPv4 or IPv6 instead of a name."""
    return ":" in host or host.replace(".", "").isdigit()


async def _look_up(host: str, port: int) -> Sequence[AddressInfo]:
    """Return the addresses of the host. Raises OSError."""
    return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


async def _connect_to_any(addresses: Sequence[AddressInfo]) -> socket.socket:
    """Return a socket that is connected to the first of these addresses that accepts it.

    The next address is tried when one refuses, or does not answer for `NEXT_ADDRESS_S`. Raises OSError where all
    refuse.
    """
    left, errors = deque(addresses), list[OSError]()
    trying: list[asyncio.Task[socket.socket]] = []
    try:
        while left or trying:
            if left:
                trying.append(asyncio.ensure_future(_connect_to(left.popleft())))
            await asyncio.wait(trying, timeout=NEXT_ADDRESS_S if left else None, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in trying if task.done()]:
                trying.remove(task)
                try:
                    return task.result()
                except OSError as error:
                    errors.append(error)
    finally:
        for task in trying:
            task.cancel()
        for made in await asyncio.gather(*trying, return_exceptions=True):
            if isinstance(made, socket.socket):
                made.close()
    raise errors[0] if len(errors) == 1 else OSError(f"Multiple exceptions: {', '.join(map(str, errors))}")


async def _connect_to(address: AddressInfo) -> socket.socket:
    """Return a socket connected to this address. Raises OSError."""
    family, kind, protocol, _, at = address
    made = socket.socket(family, kind, protocol)
    try:
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, at)
    except BaseException:
        made.close()
        raise
    return made


def discard(transport: asyncio.Transport) -> None:
    """Abort the connection; what the other side's system does not have yet is never delivered.

    Otherwise the system goes on sending it after the close, minutes long while packets are lost: a request that was
    given up, and sent again elsewhere, would be executed after those that followed it.
    """
    if (simulated := transport.get_extra_info("discard")) is not None:
        simulated()
        return
    raw = transport.get_extra_info("socket")
    if raw is not None:
        discard_on_close(raw)
    transport.abort()


def is_in_use(error: OSError) -> bool:
    """Whether the error says that another process uses the address."""
    return error.errno == errno.EADDRINUSE


def reason_of(error: OSError) -> str:
    """The system's message for the error, without the address that asyncio adds."""
    if not error.errno:
        return str(error)
    reason = str(error.strerror) if isinstance(error, socket.gaierror) else os.strerror(error.errno)
    return reason[:1].lower() + reason[1:]


def _set_socket_buffer(listening: socket.socket, option: int, size: int) -> None:
    """Set the buffer size in bytes; 0 or less leaves it to the system."""
    if size > 0:
        listening.setsockopt(socket.SOL_SOCKET, option, size)


def _set_options(transport: asyncio.BaseTransport) -> None:
    """Set TCP_NODELAY, to send small packets at once, and SO_KEEPALIVE, to notice a peer that vanished."""
    raw = transport.get_extra_info("socket")
    if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
