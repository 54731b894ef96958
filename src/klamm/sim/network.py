"""A simulated TCP network between hosts, with latency, and links that can be cut in each direction.

As with TCP, a stream is never reordered, and bytes sent over a cut link arrive once it is restored: a cut delays and
does not lose. A peer that died or closed while the link was cut is noticed only when something is sent to it
(half-open connection), and a connection may be reset at any moment.
"""

import asyncio
import errno
from asyncio import BaseProtocol
from collections.abc import Callable
from typing import Final, TypeVar

from klamm.runtime.network import SYSTEM_BUFFERS, Listener, SocketBuffers
from klamm.runtime.randomness import Rng
from klamm.sim.hosts import Host
from klamm.sim.loop import SimulatedLoop
from klamm.sim.streams import ConnectionEnd, Link, NetworkServices, connect_ends

ProtocolT = TypeVar("ProtocolT", bound=BaseProtocol)

_FIRST_PORT: Final = 40_000
_CONNECT_RETRY_S: Final = 1.0


class SimulatedNetwork:
    """The network of all hosts; `of(host)` returns the view of one host."""

    def __init__(self, loop: SimulatedLoop, rng: Rng | None = None, link: Link | None = None) -> None:
        self.loop = loop
        self._rng = rng or Rng(f"{loop.seed}/network")
        self._default = link or Link()
        self._links: dict[tuple[str, str], Link] = {}
        self._listeners: dict[tuple[str, int], _Listener] = {}
        self._hosts: dict[str, Host] = {}
        self._down: set[str] = set()
        self._ends: dict[ConnectionEnd, None] = {}
        self._next_port = _FIRST_PORT
        self._stalled: dict[ConnectionEnd, None] = {}
        self._unaware: dict[ConnectionEnd, None] = {}
        """Ends of connections that broke at the other one."""
        self.exhausted: set[str] = set()
        """Hosts without file descriptors: they connect to nobody, and nobody to them."""
        self._wires = NetworkServices(
            loop,
            self._rng.random,
            self.is_down,
            forget=self._forget,
            stall=lambda end: self._stalled.update({end: None}),
            leave_unaware=self._leave_unaware,
        )

    def of(self, host: Host) -> "HostNetwork":
        """The network as this host sees it."""
        self._hosts[host.name] = host
        self._down.discard(host.name)
        host.on_kill.append(lambda: self._died(host))
        return HostNetwork(self, host)

    def _forget(self, end: ConnectionEnd) -> None:
        """Remove a connection end that was closed."""
        self._ends.pop(end, None)
        self._unaware.pop(end, None)

    def _leave_unaware(self, end: ConnectionEnd) -> None:
        """Note that the other end is closed, and that this one does not know it."""
        if end in self._ends:
            self._unaware[end] = None

    # ---- faults

    def link(self, source: str, target: str) -> Link:
        """The link from one host to another; its properties can be changed."""
        found = self._links.get((source, target))
        if found is None:
            plain = self._default
            found = Link(plain.latency_s, plain.jitter_s, plain.bytes_per_s)
            self._links[source, target] = found
        return found

    def cut(self, source: str, target: str) -> None:
        """Hold back everything that `source` sends to `target`, until `end_cut`."""
        self.link(source, target).is_cut = True
        self.loop.add_to_digest(f"cut {source}>{target}")

    def end_cut(self, source: str, target: str) -> None:
        """Connect a cut link again, and deliver what it held back."""
        self.link(source, target).is_cut = False
        self.loop.add_to_digest(f"end cut {source}>{target}")
        for end in [e for e in self._stalled if (e.host.name, e.peer.host.name) == (source, target)]:
            del self._stalled[end]
            end.end_cut()

    def end_all_cuts(self) -> None:
        """Restore all cut links."""
        for source, target in [ends for ends, link in self._links.items() if link.is_cut]:
            self.end_cut(source, target)

    def restore(self, source: str, target: str) -> None:
        """Set a link to its original latency and bandwidth; a cut link stays cut."""
        link, plain = self.link(source, target), self._default
        link.latency_s, link.jitter_s, link.bytes_per_s = plain.latency_s, plain.jitter_s, plain.bytes_per_s
        link.torn_after = None

    def heal(self) -> None:
        """Restore all links, free file descriptors on all hosts, and close half-open connections."""
        self.exhausted.clear()
        for end in list(self._unaware):
            end.break_connection()
        for ends in self._links:
            self.restore(*ends)
        self.end_all_cuts()

    def half_open(self, one: str, other: str) -> None:
        """Break connections at the first host; the second host notices only when it next sends something."""
        for end in [e for e in self._ends if (e.host.name, e.peer.host.name) == (one, other)]:
            end.break_connection()
            self._leave_unaware(end.peer)

    def reset(self, one: str, other: str) -> int:
        """Break every connection between two hosts at both ends; return the number of ends."""
        broken = [e for e in self._ends if (e.host.name, e.peer.host.name) in ((one, other), (other, one))]
        for end in broken:
            end.break_connection()
        return len(broken)

    def power_off(self, host: Host) -> None:
        """Cut a machine's power: its peers get no reset until a new process has its name."""
        self._down.add(host.name)
        self.loop.kill(host)

    def _died(self, host: Host) -> None:
        """Reset the connections of a process that died; a machine without power sends nothing."""
        for address in [a for a, listener in self._listeners.items() if listener.host is host]:
            del self._listeners[address]
        for end in list(self._ends):
            if end.host is host:
                end.on_process_died(sends_reset=host.name not in self._down)

    # ---- what hosts ask

    def can_exchange(self, one: str, other: str) -> bool:
        """Whether a request between these hosts would be answered: both directions work, and both have power."""
        if one in self._down or other in self._down:
            return False
        there, back = self._links.get((one, other)), self._links.get((other, one))
        return not (there is not None and there.is_cut) and not (back is not None and back.is_cut)

    def is_sound(self, source: str, target: str) -> bool:
        """Whether the link between these hosts is as it was made: not cut, and neither slow nor narrow."""
        link, plain = self._links.get((source, target)), self._default
        return link is None or (
            not link.is_cut and link.latency_s <= plain.latency_s and link.bytes_per_s >= plain.bytes_per_s
        )

    def is_down(self, name: str) -> bool:
        """Whether this machine has no power."""
        return name in self._down

    async def connect(self, host: Host, make: Callable[[], ProtocolT], name: str, port: int) -> ProtocolT:
        """Connect a host to a port of another; waits while a link is cut, and fails if nothing listens."""
        if name not in self._hosts and name not in self._down:
            raise OSError(errno.ENOENT, f"unknown host {name}")
        if host.name in self.exhausted:
            raise OSError(errno.EMFILE, "too many open files")
        there, back = self.link(host.name, name), self.link(name, host.name)
        while there.is_cut or back.is_cut or name in self._down:  # noqa: ASYNC110
            await asyncio.sleep(_CONNECT_RETRY_S)
        answered: asyncio.Future[ConnectionEnd | None] = self.loop.create_future()
        due = self.loop.now + there.delay_s(self._rng.random)
        self.loop.call_on(host, due, self._deliver_connect, host, name, port, answered)
        near = await answered
        if near is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"connection to {name}:{port} refused")
        protocol = make()
        near.start_protocol(protocol)
        return protocol

    def _deliver_connect(
        self, host: Host, name: str, port: int, answered: "asyncio.Future[ConnectionEnd | None]"
    ) -> None:
        """Handle a connection attempt on the target host, and send the result back over the link."""
        if answered.done():
            return  # given up
        there, back = self.link(host.name, name), self.link(name, host.name)
        listener, near = self._listeners.get((name, port)), None
        if listener is not None and listener.is_open and name not in self.exhausted:
            ends = (host, (host.name, self.new_port()), there), (listener.host, (name, port), back)
            near, far = connect_ends(self._wires, *ends)
            self._ends |= {near: None, far: None}
            self.loop.call_on(listener.host, self.loop.now, _accept, listener, far)
        self.loop.call_on(host, self.loop.now + back.delay_s(self._rng.random), _complete_connect, answered, near)

    def new_port(self) -> int:
        """An unused ephemeral port."""
        self._next_port += 1
        return self._next_port

    def bind(self, host: Host, make: Callable[[], BaseProtocol], port: int) -> "_Listener":
        """Listen on a port of this host; 0 means an unused port."""
        port = port or self.new_port()
        if (host.name, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, f"address {host.name}:{port} already in use")
        listener = self._listeners[host.name, port] = _Listener(self, host, port, make)
        return listener

    def unbind(self, listener: "_Listener") -> None:
        """Stop listening."""
        if self._listeners.get((listener.host.name, listener.port)) is listener:
            del self._listeners[listener.host.name, listener.port]


def _complete_connect(answered: "asyncio.Future[ConnectionEnd | None]", near: ConnectionEnd | None) -> None:
    """Complete the client's connection attempt with its end, or with None if it was refused."""
    if not answered.done():
        answered.set_result(near)
    elif near is not None:
        near.abort()


def _accept(listener: "_Listener", end: ConnectionEnd) -> None:
    """Start the server's protocol on a new connection, or abort it if the listener is closed."""
    if listener.is_open:
        end.start_protocol(listener.make())
    else:
        end.abort()


class _Listener:
    """A listening port of a host."""

    def __init__(self, network: SimulatedNetwork, host: Host, port: int, make: Callable[[], BaseProtocol]) -> None:
        self._network = network
        self.host = host
        self.port = port
        self.make = make
        self.is_open = False

    async def start(self) -> None:
        """Begin to accept connections."""
        self.is_open = True

    async def close(self) -> None:
        """Stop accepting connections and free the port."""
        self.is_open = False
        self._network.unbind(self)


class HostNetwork:
    """`runtime.network.Network` as one host sees it; it listens under its own name whatever address it binds."""

    def __init__(self, network: SimulatedNetwork, host: Host) -> None:
        self._network = network
        self._host = host

    async def connect(self, make: Callable[[], ProtocolT], host: str, port: int) -> ProtocolT:
        """Connect this host to the host and port, and return the protocol made by `make`."""
        return await self._network.connect(self._host, make, host, port)

    async def listen(
        self,
        make: Callable[[], BaseProtocol],
        host: str,
        port: int,
        backlog: int = 50,
        buffers: SocketBuffers = SYSTEM_BUFFERS,
    ) -> Listener:
        """Bind the port on this host; each accepted connection gets a protocol made by `make`."""
        return self._network.bind(self._host, make, port)

    def host_name(self) -> str:
        """Return the name of the simulated host."""
        return self._host.name
