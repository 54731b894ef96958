"""The network between the members of a cluster: TCP proxies whose links can be cut and joined again.

A cut link delays bytes and loses none, as a network that drops packets for a while: TCP sends them again afterwards.
Nobody is told: connections stay open, and new ones are accepted by the proxy and wait. What a real network would do
otherwise: a new connection would fail with a timeout instead of waiting for its first answer.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from klamm.runtime.network import Listener, Network

HOST: Final = "127.0.0.1"
ZOOKEEPER: Final = 0
"""The number of ZooKeeper among the members; nodes have their broker ids, which begin with 1."""
_UNKNOWN: Final = -1

Pair = frozenset[int]
"""Two members; a link works or is cut in both directions."""


class Path(NamedTuple):
    """A proxy: who connects to `port` reaches `target_port` of the member `target`."""

    port: int
    target_port: int
    target: int
    source: int | None = None
    """The member that connects; None where all members do, and the proxy finds out which."""


class Links:
    """The proxies of a cluster. `source_of` says which member owns a connection, by its port; None for none of them."""

    def __init__(self, network: Network, source_of: Callable[[int], int | None]) -> None:
        self._network = network
        self._source_of = source_of
        self._listeners: list[Listener] = []
        self._connections: set[_Connection] = set()
        self._cut: set[Pair] = set()

    async def open(self, paths: Iterable[Path]) -> None:
        """Listen on the port of each path. Raises OSError."""
        for path in paths:
            listener = await self._network.listen(partial(_Incoming, self, path), HOST, path.port)
            self._listeners.append(listener)
            await listener.start()

    async def close(self) -> None:
        """Close all ports and connections."""
        for listener in self._listeners:
            await listener.close()
        for connection in list(self._connections):
            connection.close()

    def cut(self, pairs: Iterable[Pair]) -> None:
        """Cut the links between these pairs of members, in addition to those already cut."""
        self._cut.update(pairs)
        self._apply()

    def join(self) -> None:
        """Restore all links; held-back connections and bytes continue."""
        self._cut.clear()
        self._apply()

    @property
    def is_cut(self) -> bool:
        """Whether any link is cut."""
        return bool(self._cut)

    def _apply(self) -> None:
        """Stop reading from connections over links that are cut, and resume the others."""
        for connection in list(self._connections):
            connection.set_cut(connection.pair in self._cut)

    def accept(self, incoming: "_Incoming", path: Path, port: int) -> None:
        """Connect a new connection to its target, at once or when its link is restored."""
        source = path.source if path.source is not None else self._source_of(port)
        connection = _Connection(self, incoming, path.target_port, frozenset((path.target, _known(source))))
        incoming.connection = connection
        self._connections.add(connection)
        connection.set_cut(connection.pair in self._cut)

    async def connect(self, connection: "_Connection", port: int) -> "_Outgoing":
        """Connect to the target of a connection. Raises OSError."""
        return await self._network.connect(lambda: _Outgoing(connection), HOST, port)

    def forget(self, connection: "_Connection") -> None:
        """Remove a connection that has ended."""
        self._connections.discard(connection)


def _known(source: int | None) -> int:
    """The member number of the process that connects; the number for other processes if it is not a member."""
    return _UNKNOWN if source is None else source


class _Connection:
    """A connection through a proxy: its incoming and its outgoing half."""

    def __init__(self, links: Links, incoming: "_Incoming", target_port: int, pair: Pair) -> None:
        self.pair = pair
        self._links = links
        self._incoming = incoming
        self._target_port = target_port
        self._outgoing: _Outgoing | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._is_cut = True

    def set_cut(self, is_cut: bool) -> None:
        """Stop reading from both sides while the link is cut; connect to the target once it is not."""
        self._is_cut = is_cut
        if self._outgoing is None:
            if not is_cut and self._connecting is None:
                self._connecting = asyncio.get_running_loop().create_task(self._connect())
            return
        for half in (self._incoming, self._outgoing):
            half.set_reading(not is_cut)

    async def _connect(self) -> None:
        """Connect to the target and let both sides read; the incoming side is closed where nothing listens."""
        try:
            self._outgoing = await self._links.connect(self, self._target_port)
        except OSError:
            self.close()
            return
        self._incoming.peer, self._outgoing.peer = self._outgoing, self._incoming
        self.set_cut(self._is_cut)

    def close(self) -> None:
        """Close both sides of the connection."""
        self._links.forget(self)
        if self._connecting is not None:
            self._connecting.cancel()
        for half in (self._incoming, self._outgoing):
            if half is not None and half.transport is not None:
                half.transport.close()


class _Half(asyncio.Protocol):
    """One half of a connection; what it receives goes to the other half, no faster than that one takes it."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.peer: _Half | None = None
        self.connection: _Connection | None = None
        self._may_read = False
        self._peer_is_full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the new connection, and read nothing until the other side is connected."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.pause_reading()

    def set_reading(self, may_read: bool) -> None:
        """Allow or stop reading from this side."""
        self._may_read = may_read
        self._update_reading()

    def data_received(self, data: bytes) -> None:
        """Pass the bytes to the other side."""
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.write(data)

    def pause_writing(self) -> None:
        """Stop reading from the other side, because this one accepts no more bytes."""
        self._set_full(True)

    def resume_writing(self) -> None:
        """Read from the other side again, because this one accepts bytes."""
        self._set_full(False)

    def connection_lost(self, error: Exception | None) -> None:
        """Close the other side, too."""
        if self.connection is not None:
            self.connection.close()

    def _set_full(self, is_full: bool) -> None:
        """Tell the other side whether this one accepts bytes."""
        if self.peer is not None:
            self.peer._peer_is_full = is_full
            self.peer._update_reading()

    def _update_reading(self) -> None:
        """Read if the link is not cut and the other side accepts bytes."""
        if self.transport is None or self.transport.is_closing():
            return
        if self._may_read and not self._peer_is_full:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()


class _Incoming(_Half):
    """The half that a member opened."""

    def __init__(self, links: Links, path: Path) -> None:
        super().__init__()
        self._links = links
        self._path = path

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Find out which member connects, then connect to the target."""
        super().connection_made(transport)
        self._links.accept(self, self._path, transport.get_extra_info("peername")[1])


class _Outgoing(_Half):
    """The half that the proxy opened."""

    def __init__(self, connection: _Connection) -> None:
        super().__init__()
        self.connection = connection
