"""A client's connection to a model server. Source: NIOServerCnxn, ZooKeeperServer, FinalRequestProcessor.

Requests are answered in order, each once the server has applied its transaction. A request that needs the leader waits
while none is reachable, and so do all requests after it.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from copy import copy
from typing import Final, Protocol, cast

from klamm.sim.zookeeper import packets
from klamm.sim.zookeeper.ensemble import REFUSALS, Ensemble, InjectedFailure, SessionRecord
from klamm.sim.zookeeper.reads import answer
from klamm.sim.zookeeper.rules import Identity, RequestRejected, allows, identity_of
from klamm.sim.zookeeper.tree import Tree
from klamm.sim.zookeeper.watchers import Watchers
from klamm.zk.acl import Acl, Permission
from klamm.zk.errors import ZkCode
from klamm.zk.frames import PacketReader
from klamm.zk.jute import INT, MalformedPacket, Reader, text
from klamm.zk.requests import Opcode
from klamm.zk.watches import WatchEvent

_PING_XID: Final = -2
_AUTH_XID: Final = -4
_WRITES: Final = frozenset({Opcode.CREATE, Opcode.CREATE2, Opcode.SET_DATA, Opcode.DELETE})
_FAULTY_READS: Final = frozenset(
    {
        Opcode.EXISTS, Opcode.GET_DATA, Opcode.GET_CHILDREN, Opcode.GET_CHILDREN2, Opcode.MULTI_READ, Opcode.GET_ACL,
        Opcode.ADD_WATCH,
    }
)  # fmt: skip
"""Where faults may be injected: all reads but pings, and the watches that a new connection sets again."""
_FOR_THE_LEADER: Final = _WRITES | {Opcode.MULTI, Opcode.SET_ACL, Opcode.SYNC, Opcode.CLOSE_SESSION}
_FOUR_LETTER_WORDS: Final = (b"ruok", b"srvr")


class ServerOfConnections(Protocol):
    """What a connection needs of its server."""

    ensemble: Ensemble
    tree: Tree
    accepts_clients: bool
    follower_pause_s: float

    @property
    def watchers(self) -> "Watchers[ServerConnection]":
        """The watches of the clients connected to this server."""

    @property
    def connections(self) -> "dict[ServerConnection, None]":
        """The open connections, in the order of their acceptance."""

    @property
    def reaches_leader(self) -> bool:
        """Whether this server can reach the leader of the ensemble, so that it may serve writes."""

    @property
    def leads(self) -> bool:
        """Whether this server is the leader of the ensemble."""

    @property
    def mode(self) -> str:
        """The role of the server, as four-letter words name it."""

    def connection_of(self, session: int) -> "ServerConnection | None":
        """The connection that serves this session here, or None."""


class ServerConnection(asyncio.Protocol):
    """The server's side of one client connection: an asyncio protocol."""

    def __init__(self, server: ServerOfConnections) -> None:
        self._server = server
        self._ensemble = server.ensemble
        self._packets = PacketReader(server.ensemble.settings.max_packet_bytes)
        self._waiting: deque[bytes] = deque()
        self._pending_response: tuple[int, bytes] | None = None
        """(zxid, answer): not sent before the server has got there; nothing else is served before that."""
        self._may_serve_at = 0.0
        self._is_paused = False
        self._session: SessionRecord | None = None
        self._transport: asyncio.Transport | None = None
        self._who: list[Identity] = []

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection, or close it while the server accepts no clients."""
        self._transport = cast(asyncio.Transport, transport)
        self._who = [("ip", str((transport.get_extra_info("peername") or ("?",))[0]))]
        if self._server.accepts_clients:
            self._server.connections[self] = None
        else:
            self.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection and its watches; its session stays."""
        self._forget()

    def data_received(self, data: bytes) -> None:
        """Collect the complete packets and answer them in order; a malformed packet ends the connection."""
        if self._session is None and data in _FOUR_LETTER_WORDS:
            self._answer_four_letter_word(data)
            return
        try:
            for packet in self._packets.feed(data):
                if not packet.whole:
                    self.drop()
                    return
                self._waiting.append(packet.content)
        except MalformedPacket:
            self.drop()
            return
        self.advance()

    @property
    def client(self) -> str:
        """The address of the client: on a simulated network, the name of its host."""
        return self._who[0][1]

    # ---- for the server and the ensemble

    def advance(self) -> None:
        """Serve the requests that waited until this server applied a transaction."""
        while self._transport is not None:
            if self._pending_response is not None:
                if self._pending_response[0] > self._server.tree.zxid:
                    return
                owed, self._pending_response = self._pending_response[1], None
                self._write(owed)
            if not self._waiting or (not self._server.reaches_leader and self._needs_leader(self._waiting[0])):
                return
            if self._server.follower_pause_s and self._must_pause():
                return
            packet = self._waiting.popleft()
            try:
                if self._session is None:
                    self._connect(packets.read_connect(packet))
                else:
                    self._serve(packet, self._session)
            except MalformedPacket:
                self.drop()

    def _must_pause(self) -> bool:
        """Whether the next bulk read of a client that watches a subtree waits; it is served after the pause."""
        packet = self._waiting[0]
        is_read = len(packet) >= 8 and INT.unpack_from(packet, 4)[0] == Opcode.MULTI_READ
        if not is_read or not self._server.watchers.watches_subtree(self):
            return False
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now >= self._may_serve_at:
            self._may_serve_at = now + self._server.follower_pause_s
            return False
        if not self._is_paused:
            self._is_paused = True
            loop.call_at(self._may_serve_at, self._end_pause)
        return True

    def _end_pause(self) -> None:
        """Serve the request that waited."""
        self._is_paused = False
        self.advance()

    def notify(self, event: WatchEvent, zxid: int) -> None:
        """Send a watch event to the client."""
        self._write(packets.notification(event, zxid))

    def may_read(self, acl: Sequence[Acl]) -> bool:
        """Whether the ACL lets this client read."""
        return allows(acl, Permission.READ, self._who)

    @property
    def session_id(self) -> int:
        """The id of the connection's session; 0 before it is established."""
        return self._session.id if self._session is not None else 0

    @property
    def watches(self) -> tuple[list[str], list[str]]:
        """Paths with watches of this connection: (data watches, child watches)."""
        return self._server.watchers.paths_of(self)

    def session_ended(self) -> None:
        """Close the connection because its session ended, unless a response is still due."""
        if self._pending_response is None:
            self.drop()

    def send_invalid_frame(self, frame: bytes) -> None:
        """Send a frame that no real server sends."""
        self._write(frame)

    def drop(self) -> None:
        """Close the connection."""
        transport = self._transport
        self._forget()
        if transport is not None:
            transport.close()

    def _forget(self) -> None:
        """Remove the connection and its watches from the server."""
        self._transport = None
        self._waiting.clear()
        self._server.connections.pop(self, None)
        self._server.watchers.forget(self)
        if self._session is not None and self._session.holder is self:
            self._session.holder = None

    def _write(self, frame: bytes) -> None:
        """Send the frame, unless the connection is lost."""
        if self._transport is not None:
            self._transport.write(frame)

    def _answer_four_letter_word(self, word: bytes) -> None:
        """Answer a monitoring command such as `ruok` or `srvr`."""
        mode = self._server.mode
        self._write(b"imok" if word == b"ruok" else f"Zookeeper version: model of 3.9\nMode: {mode}\n".encode())
        self.drop()

    # ---- the session

    def _needs_leader(self, packet: bytes) -> bool:
        """Whether this request must wait until the leader is reachable."""
        return self._session is None or (len(packet) >= 8 and INT.unpack_from(packet, 4)[0] in _FOR_THE_LEADER)

    def _connect(self, request: packets.ConnectRequest) -> None:
        """Open a new session or resume an existing one."""
        if request.last_zxid > self._server.tree.zxid:
            self.drop()  # the client has seen more than this server
            return
        if not request.session:
            session, zxid = self._ensemble.open_session(request.timeout_ms)
            session.holder = self
        else:
            self._close_earlier_connection(request.session)
            resumed = self._ensemble.resume(request.session, request.password, self)
            if resumed is None:
                self._write(packets.connect_answer(0, 0, bytes(16), request.knows_read_only))
                self.drop()
                return
            session, zxid = resumed, 0
        self._session = session
        if not self._ensemble.may_answer_connect(session.id):
            self.drop()
            return
        greeting = packets.connect_answer(session.timeout_ms, session.id, session.password, request.knows_read_only)
        self._pending_response = (zxid, greeting)

    def _close_earlier_connection(self, session: int) -> None:
        """Close another connection of this session to this server; on other servers its next write fails."""
        other = self._server.connection_of(session)
        if other is not None:
            other.drop()

    # ---- requests

    def _serve(self, packet: bytes, session: SessionRecord) -> None:
        """Handle one request of an established session."""
        xid, opcode, reader = packets.read_header(packet)
        is_known = session.id in self._ensemble.sessions
        if not is_known or (session.holder is not self and self._is_refused_after_a_move(opcode)):
            self.drop()
            return
        if self._server.reaches_leader:
            self._ensemble.touch(session)
        if opcode == Opcode.CLOSE_SESSION:
            self._close_session(xid, session)
        elif opcode == Opcode.AUTH:
            self._authenticate(reader)
        elif opcode in _FOR_THE_LEADER:
            self._serve_write(xid, opcode, reader, session)
        else:
            self._serve_read(xid, opcode, reader)

    def _is_refused_after_a_move(self, opcode: int) -> bool:
        """Whether to refuse the request of a session that moved to another connection; followers still answer reads."""
        return opcode != Opcode.CLOSE_SESSION and (opcode in _FOR_THE_LEADER or self._server.leads)

    def _close_session(self, xid: int, session: SessionRecord) -> None:
        """End the session on the client's request, answer, and close the connection."""
        self._pending_response = (0, b"")  # what keeps `session_ended` from closing before the answer
        zxid = self._ensemble.end_session(session.id)
        self._pending_response = None
        self._write(packets.reply(xid, zxid))
        self.drop()

    def _authenticate(self, reader: Reader) -> None:
        """Add an identity to the connection, or close it if the credentials are not accepted."""
        reader.int32()
        scheme, credentials = reader.text(), reader.buffer() or b""
        identity = identity_of(scheme, credentials, self._who[0])
        if identity is None:
            self._write(packets.reply(_AUTH_XID, 0, ZkCode.AUTH_FAILED))
            self.drop()
            return
        if identity not in self._who:
            self._who.append(identity)
        self._write(packets.reply(_AUTH_XID, 0))

    def _serve_write(self, xid: int, opcode: int, reader: Reader, session: SessionRecord) -> None:
        """Handle a request that the leader decides: a write, a multi, an ACL change or a sync."""
        if opcode == Opcode.SYNC:
            zxid = self._ensemble.tree.zxid
            self._pending_response = (zxid, packets.reply(xid, zxid, 0, text(reader.text())))
            return
        if opcode == Opcode.SET_ACL:
            path, acl, version = reader.text(), reader.acls(), reader.int32()
            zxid, result = self._ensemble.write_acl(session.id, path, acl, version, self._who)
            body = packets.stat(result.stat) if result.code is ZkCode.OK else b""
            self._pending_response = (zxid, packets.reply(xid, zxid, result.code, body))
            return
        items = list(packets.read_multi(reader)) if opcode == Opcode.MULTI else [
            (opcode, packets.read_operation(opcode, reader))
        ]  # fmt: skip
        ops = [op for _, op in items]
        loss = self._ensemble.on_write(session.id, ops)
        if loss is InjectedFailure.BEFORE:
            self.drop()
            return
        if loss in REFUSALS:
            zxid, results = self._ensemble.refuse(
                session.id, ops, len(ops) - 1 if loss is InjectedFailure.REFUSED else 0
            )
        else:
            zxid, results = self._ensemble.write(session.id, ops, self._who)
        if loss is InjectedFailure.AFTER:
            self.drop()
        elif opcode == Opcode.MULTI:
            body = packets.multi_result([o for o, _ in items], results)
            self._pending_response = (zxid, packets.reply(xid, zxid, 0, body))
        else:
            [result] = results
            body = packets.operation_result(opcode, result) if result.code is ZkCode.OK else b""
            self._pending_response = (zxid, packets.reply(xid, zxid, result.code, body))

    def _serve_read(self, xid: int, opcode: int, reader: Reader) -> None:
        """Answer a read request from the znodes as this server has them; a slow server may lack the newest changes."""
        server = self._server
        loss = None
        if opcode in _FAULTY_READS:
            loss = self._ensemble.on_read(self.session_id, lambda: packets.paths_read(opcode, copy(reader)))
        if loss is InjectedFailure.BEFORE:
            self.drop()
            return
        zxid = server.tree.zxid
        try:
            body = answer(server.tree, server.watchers, opcode, reader, self, self._who)
        except RequestRejected as refused:
            if loss is InjectedFailure.AFTER:
                self.drop()
            elif refused.code is ZkCode.UNIMPLEMENTED:
                self._write(packets.reply(xid, -1, refused.code))
                self.drop()
            else:
                self._write(packets.reply(xid, zxid, refused.code))
        else:
            if loss is InjectedFailure.AFTER:
                self.drop()
                return
            self._write(packets.reply(_PING_XID if opcode == Opcode.PING else xid, zxid, 0, body))
