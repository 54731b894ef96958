"""A simulated TCP connection: two ends, each an asyncio transport, and the bytes under way between them."""

import asyncio
from asyncio import BaseProtocol
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final, cast

from klamm.sim.hosts import Host
from klamm.sim.loop import SimulatedLoop

Address = tuple[str, int]
_HIGH_WATER_BYTES: Final = 64 * 1024


class StreamMark(Enum):
    """A close or a reset of the connection, which travels in order with the bytes."""

    END = "end"  # the peer closed in order
    RESET = "reset"


@dataclass(slots=True, eq=False)
class Link:
    """Latency, bandwidth and faults of one direction between two hosts."""

    latency_s: float = 0.0005
    jitter_s: float = 0.0005
    """Up to so much is added, again for each piece."""
    bytes_per_s: float = 125e6
    is_cut: bool = False
    torn_after: float | None = None
    """The next piece arrives up to this part of it, then the connection breaks; None for whole."""

    def delay_s(self, roll: Callable[[], float]) -> float:
        """A random delay of the link in seconds: its latency with jitter."""
        return self.latency_s + self.jitter_s * roll() if self.jitter_s else self.latency_s


@dataclass(frozen=True, slots=True)
class NetworkServices:
    """The services of the network that connection ends use."""

    loop: SimulatedLoop
    roll: Callable[[], float]
    """From 0 up to 1, for jitter."""
    is_down: Callable[[str], bool]
    forget: Callable[["ConnectionEnd"], object]
    stall: Callable[["ConnectionEnd"], object]
    """Called with each end whose bytes wait at a cut link; `end_cut` continues it later."""
    leave_unaware: Callable[["ConnectionEnd"], object]
    """Called with each end that learns of the other's end only when it sends something."""


class ConnectionEnd(asyncio.Transport):
    """One end of a connection, as an asyncio transport; what is written arrives at `peer` over `link`."""

    peer: "ConnectionEnd"

    def __init__(self, wires: NetworkServices, host: Host, address: Address, link: Link) -> None:
        super().__init__()
        self._wires = wires
        self.host = host
        self.address = address
        self._link = link
        self._protocol: BaseProtocol | None = None
        self._feed: Callable[[bytes], bytes | None]
        """How the protocol takes bytes."""
        self.is_open = True
        self._under_way: deque[bytes | StreamMark] = deque()
        """Sent by us, not yet taken by the peer's protocol; in order."""
        self._bytes_under_way = 0
        self._flight: list[int] | None = None
        """The pieces last sent, which arrive together: how many."""
        self._sent_at = 0.0
        self._arrived = 0
        """Of those, how many the peer's host has."""
        self._stalled = 0
        """Arrivals that met a cut link."""
        self._is_discarded = False
        """Whether what meets a cut link now is lost."""
        self._dropped = 0
        """Pieces that were lost so before their arrival."""
        self._reads = True
        self._writes = True
        self._high = _HIGH_WATER_BYTES
        self._low = _HIGH_WATER_BYTES // 4
        self._free_at = 0.0
        self._last_arrival = 0.0

    # ---- for the network

    def start_protocol(self, protocol: BaseProtocol) -> None:
        """Connect the protocol to this end; bytes that arrived before are delivered afterwards."""
        self.set_protocol(protocol)
        protocol.connection_made(self)
        if self.peer._arrived:
            self._wires.loop.call_on(self.host, self._wires.loop.time(), self._deliver_received)

    def end_cut(self) -> None:
        """Deliver what the link held back while it was cut."""
        stalled, self._stalled = self._stalled, 0
        for _ in range(stalled):
            self._schedule(0)

    def on_process_died(self, sends_reset: bool) -> None:
        """Close this end because its process died; `sends_reset` tells whether the peer gets a reset."""
        if self.is_open:
            self.is_open = False
            if sends_reset:
                self._send(StreamMark.RESET)
            self._wires.forget(self)

    def break_connection(self) -> None:
        """Break the connection at this end: its protocol gets a connection reset."""
        if self.is_open:
            self.is_open = False
            self._wires.forget(self)
            self._wires.loop.call_on(self.host, self._wires.loop.time(), self._lost, _reset())

    # ---- on the way

    def _send(self, piece: bytes | StreamMark) -> None:
        """Send bytes or an end mark to the peer, after the link's delay."""
        peer = self.peer
        if not peer.host.is_alive:
            if not self._wires.is_down(peer.host.name) and not self._link.is_cut and not peer._link.is_cut:
                self.break_connection()
            return
        size = len(piece) if isinstance(piece, bytes) else 0
        if self._link.torn_after is not None and size > 1:
            self._send_torn(cast(bytes, piece), self._link.torn_after)
            return
        self._under_way.append(piece)
        self._bytes_under_way += size
        self._schedule(size)
        if self._bytes_under_way > self._high and self._writes and self._protocol is not None:
            self._writes = False
            self._protocol.pause_writing()

    def _send_torn(self, piece: bytes, part: float) -> None:
        """Send only the first part of the bytes, then reset the connection."""
        self._link.torn_after = None
        kept = piece[: max(1, int(len(piece) * part))]
        for each in (kept, StreamMark.RESET):
            self._send(each)
        self.break_connection()

    def _schedule(self, size: int) -> None:
        """Schedule the arrival of a piece; pieces of one moment arrive together, as far as the bandwidth allows."""
        loop, link = self._wires.loop, self._link
        now = loop.now
        free_at = (now if self._free_at < now else self._free_at) + size / link.bytes_per_s
        self._free_at = free_at
        if self._flight is not None and self._sent_at == now and free_at + link.latency_s <= self._last_arrival:
            self._flight[0] += 1
            return
        self._flight = flight = [1]
        self._sent_at = now
        arrival = free_at + link.delay_s(self._wires.roll)
        if arrival > self._last_arrival:
            self._last_arrival = arrival
        loop.call_on(self.peer.host, self._last_arrival, self._arrive, flight)

    def _arrive(self, flight: list[int]) -> None:
        """Count the pieces that arrived at the peer's host, and deliver them; a cut link holds them back."""
        if flight is self._flight:
            self._flight = None
        if self._dropped:
            self._dropped -= flight[0]
        elif self._link.is_cut and self._is_discarded:
            self._lose_undelivered(flight[0])
        elif self._link.is_cut:
            self._stalled += flight[0]
            self._wires.stall(self)
        else:
            self._arrived += flight[0]
            self.peer._deliver_received()

    def _lose_undelivered(self, arriving: int = 0) -> None:
        """Drop what the peer's host does not have, of which `arriving` pieces would arrive now; it is not told."""
        undelivered = len(self._under_way) - self._arrived
        self._dropped = undelivered - self._stalled - arriving
        self._stalled, self._flight = 0, None
        for _ in range(undelivered):
            piece = self._under_way.pop()
            self._bytes_under_way -= 0 if isinstance(piece, StreamMark) else len(piece)
        self._wires.leave_unaware(self.peer)

    def _deliver_received(self) -> None:
        """Pass received bytes and marks to the protocol, unless it paused reading."""
        source = self.peer
        while source._arrived and (not self.is_open or (self._reads and self._protocol is not None)):
            source._arrived -= 1
            piece = source._under_way.popleft()
            if isinstance(piece, StreamMark):
                if self.is_open:
                    self.is_open = False
                    self._wires.forget(self)
                    self._lost(_reset() if piece is StreamMark.RESET else None)
                continue
            size = len(piece)
            source._bytes_under_way -= size
            if not source._writes:
                source._resume_writing_if_drained()
            if self.is_open:
                self._wires.loop.add_bytes_to_digest(self.host, self.address[1], size)
                if rest := self._feed(piece):
                    source._under_way.appendleft(rest)
                    source._arrived += 1
                    source._bytes_under_way += len(rest)
            elif source.is_open:
                self._send(StreamMark.RESET)

    def _resume_writing_if_drained(self) -> None:
        """Let the protocol write again once the write buffer is below its low-water mark."""
        if self._bytes_under_way <= self._low:
            self._writes = True
            self._wires.loop.call_on(self.host, self._wires.loop.time(), self._resume_protocol)

    def _resume_protocol(self) -> None:
        """Tell the protocol that it may write again."""
        if self._protocol is not None and self.is_open:
            self._protocol.resume_writing()

    def _lost(self, error: Exception | None) -> None:
        """Tell the protocol that the connection was lost."""
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(error)

    # ---- asyncio.Transport

    def write(self, data: Any) -> None:
        """Send the bytes to the other end; does nothing on a closed connection."""
        if self.is_open and len(data):
            self._send(bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Send the byte strings to the other end in order."""
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Close the connection: the other end receives what was sent, then the end of the stream."""
        if self.is_open:
            self.is_open = False
            self._send(StreamMark.END)
            self._wires.forget(self)
            self._wires.loop.call_on(self.host, self._wires.loop.time(), self._lost, None)

    def abort(self) -> None:
        """Close the connection; here the same as `close`."""
        self.close()

    def discard(self) -> None:
        """Close the connection; what waits at a cut link, or meets one on its way, is lost."""
        if self.is_open:
            self.close()
            self._is_discarded = True
            if self._link.is_cut:
                self._lose_undelivered()

    def is_closing(self) -> bool:
        """Whether this end was closed."""
        return not self.is_open

    def pause_reading(self) -> None:
        """Keep received bytes until `resume_reading`."""
        self._reads = False

    def resume_reading(self) -> None:
        """Deliver received bytes to the protocol again."""
        self._reads = True
        self._wires.loop.call_on(self.host, self._wires.loop.time(), self._deliver_received)

    def is_reading(self) -> bool:
        """Whether received bytes are delivered to the protocol."""
        return self._reads

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set at how many unsent bytes the protocol is paused and resumed."""
        self._high = _HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that were sent and are not yet received."""
        return self._bytes_under_way

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the address of this end (`sockname`) or the other (`peername`), or `discard`; else the default."""
        known = {"peername": self.peer.address, "sockname": self.address, "discard": self.discard}
        return known.get(name, default)

    def set_protocol(self, protocol: BaseProtocol) -> None:
        """Deliver received bytes to this protocol."""
        self._protocol = protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            self._feed = partial(self._fill, protocol)
        else:
            self._feed = cast(asyncio.Protocol, protocol).data_received

    def _fill(self, protocol: asyncio.BufferedProtocol, data: bytes) -> bytes | None:
        """Copy data into the buffers of the protocol; returns the rest where it pauses reading."""
        position, end = 0, len(data)
        while position < end and self.is_open:
            if not self._reads:
                return data[position:]
            room: Any = protocol.get_buffer(end - position)
            size = min(len(room), end - position)
            if not size:
                raise RuntimeError(f"{protocol!r} returned an empty receive buffer, but did not pause reading")
            room[:size] = data[position : position + size]
            del room  # as a socket does before it takes the next view
            position += size
            protocol.buffer_updated(size)
        return None

    def get_protocol(self) -> BaseProtocol:
        """Return the protocol that gets the received bytes."""
        assert self._protocol is not None
        return self._protocol


def connect_ends(
    wires: NetworkServices, near: tuple[Host, Address, Link], far: tuple[Host, Address, Link]
) -> tuple[ConnectionEnd, ConnectionEnd]:
    """Create the two ends of a connection, each with the link on which it sends."""
    ends = ConnectionEnd(wires, *near), ConnectionEnd(wires, *far)
    ends[0].peer, ends[1].peer = ends[1], ends[0]
    return ends


def _reset() -> ConnectionResetError:
    """Return the error that reads and writes raise after the other side reset the connection."""
    return ConnectionResetError("connection reset by peer")
