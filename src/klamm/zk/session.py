"""A ZooKeeper session as a state machine without I/O: it takes bytes and the time, and says what to send.

It never awaits, sleeps or connects. Its driver opens a connection to `server` whenever `attempt` has grown, reports
what happens to that attempt, writes the bytes of `take_outgoing`, and calls `tick` at `wake_at`. Times are in seconds
of any monotonic clock. Requests are answered in the order they were submitted. Requests without an answer when a
connection is lost are sent again on the next one, before newer ones. A write whose answer was lost may have been
applied before: the repeated create then fails with NODE_EXISTS, a conditional set or delete with BAD_VERSION or
NO_NODE. Source: ClientCnxn.java.
"""

import struct
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from klamm.zk import jute, requests
from klamm.zk.errors import ZkCode
from klamm.zk.frames import PacketReader
from klamm.zk.hosts import Server
from klamm.zk.jute import MalformedPacket, Reader
from klamm.zk.requests import Request
from klamm.zk.server_rotation import Rng, ServerRotation
from klamm.zk.states import (
    AUTH_FAILED,
    CLOSED,
    CONNECTED,
    CONNECTING,
    ENDED,
    EXPIRED,
    HANDSHAKE,
    VALID_PREVIOUS,
    WAITING,
    Phase,
    SessionState,
)
from klamm.zk.watches import EventType, Watches, WatchEvent

MAX_PACKET_BYTES: Final = 4 << 20
"""The value of jute.maxbuffer that Kafka sets for its client."""
SERVER_PACKET_BYTES: Final = 0xFFFFF
"""The default of jute.maxbuffer in a server, which closes the connection on a larger packet."""

_HANDSHAKE_LIMIT: Final = 4096
"""The largest packet before the session is connected."""
_WRITE_BYTES: Final = 1 << 20
"""About how many bytes are written at a time."""
_WATCHES_BYTES: Final = 128 << 10
"""The size of one SetWatches request."""
_MAX_LOSSES: Final = 3
"""After so many lost connections, a request above the server's packet limit is considered their cause."""

_NOTIFICATION_XID: Final = -1
_PING_XID: Final = -2
_AUTH_XID: Final = -4
_WATCHES_XID: Final = -8
_PING: Final = struct.pack(">iii", 8, _PING_XID, requests.Opcode.PING)
_SIZE_AND_XID: Final = struct.Struct(">ii")
_REPLY_HEADER: Final = struct.Struct(">iqi")
_LAST_XID: Final = 0x7FFFFFFF


Outcome: TypeAlias = Request[Any] | WatchEvent | SessionState
"""A completed request, a fired watch or a change of state; outcomes are in the order in which they happened."""


class Session:
    """One session from its first connection to its end."""

    def __init__(
        self,
        servers: Sequence[Server],
        timeout_ms: int,
        rng: Rng,
        *,
        max_in_flight: int = 256,
        max_packet_bytes: int = MAX_PACKET_BYTES,
        auth: Sequence[tuple[str, bytes]] = (),
        now: float = 0.0,
    ) -> None:
        self._rotation = ServerRotation(servers, rng)
        self._max_in_flight = max_in_flight
        self._max_packet_bytes = max_packet_bytes
        self.phase = WAITING
        self.attempt = 0
        self.last_failure = ""
        self.session_id = 0
        self.last_zxid = 0
        self.watches = Watches()
        self.password = bytes(16)
        self.is_close_confirmed = False
        """Whether a server answered that it closed the session."""
        self._requested_timeout_ms = timeout_ms
        self.timeout_ms = timeout_ms
        self._timeout_s = timeout_ms / 1000
        self._auth = [requests.auth(scheme, credentials) for scheme, credentials in auth]
        self._auth_unanswered: deque[Request[None]] = deque()
        self._packets = PacketReader(_HANDSHAKE_LIMIT)
        self._urgent: list[bytes] = []
        self._queue: deque[Request[Any]] = deque()
        self._in_flight: deque[Request[Any]] = deque()
        self._outcomes: list[Outcome] = []
        self._xid = 0
        self._closing = False
        self._due = now  # of the next attempt, or of the end of this one
        self._sent_at = now
        self._received_at = now
        self._connected_at = now

    # ---- read by the driver

    @property
    def server(self) -> Server:
        """The ZooKeeper server to connect to in this attempt."""
        return self._rotation.server

    @property
    def wants_connection(self) -> bool:
        """Whether the driver should hold or open a connection."""
        return self.phase in (CONNECTING, HANDSHAKE, CONNECTED)

    @property
    def has_ended(self) -> bool:
        """Whether the session expired, was refused or was closed."""
        return self.phase in ENDED

    @property
    def unanswered(self) -> int:
        """The number of requests that are not complete."""
        return len(self._queue) + len(self._in_flight)

    def wake_at(self) -> float | None:
        """The time at which `tick` must be called; None after the end."""
        if self.phase is CONNECTED:
            return min(self._sent_at + self._timeout_s / 3, self._received_at + self._timeout_s * 2 / 3)
        return None if self.has_ended else self._due

    @property
    def is_idle(self) -> bool:
        """Whether the session is connected and has nothing to send."""
        return self.phase is CONNECTED and not self._queue and not self._urgent

    @property
    def should_send_at_once(self) -> bool:
        """Whether to send the request just submitted now, because it is the only one and none can share its packet."""
        return self.phase is CONNECTED and not self._in_flight and len(self._queue) == 1

    @property
    def may_send(self) -> bool:
        """Whether there is something to send."""
        return bool(self._urgent or self._queue)

    def take_outcomes(self) -> list[Outcome]:
        """Remove and return all outcomes: completed requests, watch events and state changes."""
        taken, self._outcomes = self._outcomes, []
        return taken

    def take_outgoing(self, now: float) -> list[bytes]:
        """Remove and return bytes to write, about a megabyte; call again until the result is empty.

        The limit bounds what is handed over and not accepted by the connection.
        """
        pieces, self._urgent = self._urgent, []
        size = 0
        if self.phase is CONNECTED:
            while self._queue and len(self._in_flight) < self._max_in_flight and size < _WRITE_BYTES:
                request = self._queue.popleft()
                if request.abandoned:
                    self._complete(request, ZkCode.CONNECTION_LOSS)
                    continue
                if request.xid != _WATCHES_XID:
                    request.xid = self._next_xid()
                self._in_flight.append(request)
                request.sent_at = now
                pieces += (_SIZE_AND_XID.pack(len(request.payload) + 4, request.xid), request.payload)
                size += len(request.payload)
        if pieces:
            self._sent_at = now
        return pieces

    # ---- called by the driver

    def submit(self, request: Request[Any]) -> None:
        """Queue a request; it completes at once where the session has ended or the packet is too large."""
        if self.has_ended or self._closing:
            self._complete(request, ENDED.get(self.phase, ZkCode.CLOSED))
        elif len(request.payload) + 4 > self._max_packet_bytes:
            self._complete(request, ZkCode.REQUEST_TOO_LARGE)
        else:
            self._queue.append(request)

    def add_auth(self, request: Request[None]) -> None:
        """Present credentials now and on every later connection; completes once accepted."""
        if self.has_ended or self._closing:
            self._complete(request, ENDED.get(self.phase, ZkCode.CLOSED))
            return
        self._auth.append(request)
        if self.phase is CONNECTED:
            self._send_auth(request)

    def close(self) -> None:
        """End the session after the queued requests, or at once if there is no connection."""
        if self.has_ended or self._closing:
            return
        if self.phase is CONNECTED:
            self._queue.append(requests.close_session())
            self._closing = True
        else:
            self._end(CLOSED)

    def abort(self) -> None:
        """End the session without telling the ensemble, which keeps it until its timeout."""
        if not self.has_ended:
            self._end(CLOSED)

    def connection_made(self, attempt: int, now: float) -> None:
        """Called when the driver has connected: send the connect request."""
        if attempt != self.attempt or self.phase is not CONNECTING:
            return
        self._enter_phase(HANDSHAKE)
        self._packets = PacketReader(_HANDSHAKE_LIMIT)
        self._received_at = now
        body = struct.pack(">iqiq", 0, self.last_zxid, self._requested_timeout_ms, self.session_id)
        body += jute.buffer(self.password) + b"\0"
        self._urgent = [jute.pack_int(len(body)), body]

    def connection_lost(self, attempt: int, reason: str, now: float) -> None:
        """Called when the connection broke, was refused, or could not be opened."""
        if attempt == self.attempt and self.wants_connection:
            self._end_connection(reason or "the server closed the connection", now, hung_up=True)

    def receive(self, attempt: int, data: bytes, now: float) -> None:
        """Called with bytes that arrived on the connection of this attempt.

        Completes requests and reports watch events.
        """
        if attempt != self.attempt or self.phase not in (HANDSHAKE, CONNECTED):
            return
        self._received_at = now
        try:
            for packet in self._packets.feed(data):
                if self.phase is HANDSHAKE:
                    self._on_connect_response(packet.content, packet.whole, now)
                else:
                    self._on_packet(packet.content, packet.whole, now)
                if not self.wants_connection or attempt != self.attempt:
                    return
        except MalformedPacket as error:
            self._end_connection(f"malformed packet: {error}", now)

    def tick(self, now: float) -> None:
        """Act on the time: try the next server, send a ping, or end a connection that is silent."""
        if self.phase is WAITING and now >= self._due:
            self._connect_to_next_server(now)
        elif self.phase in (CONNECTING, HANDSHAKE) and now >= self._due:
            self._end_connection("the server did not establish the session before its timeout", now)
        elif self.phase is CONNECTED:
            if now >= self._received_at + self._timeout_s * 2 / 3:
                self._end_connection(f"no packet from the server for {(now - self._received_at) * 1000:.0f} ms", now)
            elif now >= self._sent_at + self._timeout_s / 3:
                self._urgent.append(_PING)
                self._sent_at = now  # also where the connection takes nothing: one ping in a third of the time-out

    # ---- connections

    def _connect_to_next_server(self, now: float) -> None:
        """Begin a connection attempt to the next server of the rotation."""
        self._enter_phase(CONNECTING)
        self._rotation.advance()
        self.attempt += 1
        self._due = now + self._rotation.attempt_timeout_s(self.timeout_ms)

    def _end_connection(self, reason: str, now: float, *, hung_up: bool = False) -> None:
        """End this connection, keep unanswered requests for the next one, and wait before connecting again."""
        was_connected = self.phase is CONNECTED
        self.last_failure = f"{self.server}: {reason}"
        self._urgent.clear()
        self._auth_unanswered.clear()
        if self._closing:
            self._end(CLOSED)
            return
        self._enter_phase(WAITING)
        if was_connected:
            self._outcomes.append(SessionState.DISCONNECTED)
            self._rotation.on_connection_end(now - self._connected_at)
            self._requeue_in_flight(hung_up)
        self._due = now + self._rotation.on_failure()

    def _requeue_in_flight(self, hung_up: bool) -> None:
        """Put unanswered requests back to the front of the queue, in their order."""
        for request in reversed(self._in_flight):
            request.losses += hung_up
            is_suspect = len(request.payload) + 4 > SERVER_PACKET_BYTES and request.losses >= _MAX_LOSSES
            if request.xid == _WATCHES_XID:
                continue
            if is_suspect:
                self._complete(request, ZkCode.REQUEST_TOO_LARGE)
            else:
                self._queue.appendleft(request)
        self._in_flight.clear()

    def _enter_phase(self, phase: Phase) -> None:
        """Enter a phase that may follow the current one."""
        assert self.phase in VALID_PREVIOUS[phase], (self.phase, phase)
        self.phase = phase

    def _end(self, phase: Phase) -> None:
        """End the session in this phase: every request without an answer fails with the phase's code."""
        self._enter_phase(phase)
        self._urgent.clear()
        code = ENDED[phase]
        for request in (*self._auth, *self._in_flight, *self._queue):
            if request.code is None and request.xid != _WATCHES_XID:
                self._complete(request, code)
        self._in_flight.clear()
        self._queue.clear()
        self._outcomes.append(SessionState(phase.value))

    # ---- packets

    def _on_connect_response(self, packet: bytes, whole: bool, now: float) -> None:
        """Handle the response to a connect request: the session is granted, or has expired."""
        if not whole:
            raise MalformedPacket("the connect response is too long: is this a ZooKeeper server? Check its address")
        reader = Reader(packet)
        reader.int32()
        timeout_ms, session_id, password = reader.int32(), reader.int64(), reader.buffer()
        if timeout_ms <= 0 or session_id == 0:
            self._end(EXPIRED)
            return
        self.timeout_ms = timeout_ms
        self._timeout_s = timeout_ms / 1000
        self.session_id = session_id
        self.password = password or b""
        self._connected_at = now
        self._packets.limit = self._max_packet_bytes
        self._enter_phase(CONNECTED)
        self._outcomes.append(SessionState.CONNECTED)
        for request in self._auth:
            self._send_auth(request)
        self._queue.extendleft(reversed(list(self._set_watches_requests())))

    def _set_watches_requests(self) -> "list[Request[None]]":
        """SetWatches requests that restore all watches on the new connection."""
        limit = min(_WATCHES_BYTES, self._max_packet_bytes // 2)
        again = [requests.set_watches(body) for body in self.watches.set_watches_bodies(self.last_zxid, limit)]
        for request in again:
            request.xid = _WATCHES_XID
        return again

    def _on_packet(self, packet: bytes, whole: bool, now: float) -> None:
        """Handle a packet by its xid: the reply to a request, a ping or credentials, or a watch event."""
        if len(packet) < _REPLY_HEADER.size:
            raise MalformedPacket(f"a reply of ZooKeeper has {len(packet)} bytes, fewer than its header needs")
        xid, zxid, error = _REPLY_HEADER.unpack_from(packet)
        if xid == _PING_XID:
            return
        if xid == _NOTIFICATION_XID and whole:
            self._on_watch_event(packet)
        elif xid == _AUTH_XID:
            self._on_auth_reply(error)
        elif self._in_flight and self._in_flight[0].xid == xid:
            self.last_zxid = max(self.last_zxid, zxid)
            self._in_flight[0].took_s = now - self._in_flight[0].sent_at
            self._on_reply(self._in_flight.popleft(), packet if whole else None, error, now)
        else:
            expected = self._in_flight[0].xid if self._in_flight else "none"
            raise MalformedPacket(f"received a reply of ZooKeeper with xid {xid}, but xid {expected} was expected")

    def _on_reply(self, request: Request[Any], packet: bytes | None, error: int, now: float) -> None:
        """Complete the request with its reply, or end the connection or session if its code says so."""
        if error == ZkCode.SESSION_EXPIRED:
            self._in_flight.appendleft(request)
            self._end(EXPIRED)
        elif error == ZkCode.SESSION_MOVED:
            self._in_flight.appendleft(request)
            self._end_connection("the server reports SESSION_MOVED: another connection uses the session", now)
        elif request.payload[:4] == _CLOSE_SESSION:
            self.is_close_confirmed = True
            self._end(CLOSED)
        elif request.xid == _WATCHES_XID:
            if error:
                raise MalformedPacket(f"the server refused SetWatches after the reconnect: {ZkCode(error).name}")
        elif packet is None:
            self._complete(request, ZkCode.REPLY_TOO_LARGE)
        else:
            self._read_reply(request, packet, ZkCode(error) if error else ZkCode.OK)

    def _read_reply(self, request: Request[Any], packet: bytes, code: ZkCode) -> None:
        """Decode the reply into the request, register its watch and complete it."""
        if code is ZkCode.OK:
            request.reply_bytes = len(packet)
            try:
                request.value = request.read(Reader(packet, _REPLY_HEADER.size))
            except MalformedPacket:
                self._complete(request, ZkCode.MALFORMED_REPLY)
                raise
        kind = request.watch.get(code)
        if kind is not None:
            self.watches.add(kind, request.path)
        self._complete(request, code)

    def _on_watch_event(self, packet: bytes) -> None:
        """Decode a watch event, remove its watches and queue it for the owner."""
        reader = Reader(packet, _REPLY_HEADER.size)
        number = reader.int32()
        reader.int32()
        path = reader.text()
        kind = _EVENT_TYPES.get(number)
        if kind is None:
            raise MalformedPacket(f"received a watch event of the unknown type {number} from ZooKeeper")
        event = WatchEvent(kind, path)
        self.watches.remove_triggered(event)
        self._outcomes.append(event)

    def _send_auth(self, request: Request[None]) -> None:
        """Queue credentials ahead of all other requests."""
        self._auth_unanswered.append(request)
        self._urgent += (_SIZE_AND_XID.pack(len(request.payload) + 4, _AUTH_XID), request.payload)

    def _on_auth_reply(self, error: int) -> None:
        """Complete the oldest unanswered credentials; refused ones end the session."""
        if not self._auth_unanswered:
            raise MalformedPacket("received an auth reply from ZooKeeper although no credentials were sent")
        request = self._auth_unanswered.popleft()
        if error:
            self.last_failure = f"{self.server}: ZooKeeper refused the credentials"
            self._end(AUTH_FAILED)
        elif request.code is None:
            request.value = None
            self._complete(request, ZkCode.OK)

    def _complete(self, request: Request[Any], code: ZkCode) -> None:
        """Set the request's result code and queue it for its caller."""
        request.code = code
        self._outcomes.append(request)

    def _next_xid(self) -> int:
        """Return the next request id."""
        self._xid = 1 if self._xid == _LAST_XID else self._xid + 1
        return self._xid


_CLOSE_SESSION: Final = jute.pack_int(requests.Opcode.CLOSE_SESSION)
_EVENT_TYPES: Final = {int(kind): kind for kind in EventType}
