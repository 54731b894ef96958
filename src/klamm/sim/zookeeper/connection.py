"""One client's connection to a model server. Source: NIOServerCnxn, ZooKeeperServer, FinalRequestProcessor.

Requests are answered in order, each once the server has applied what it wrote. What needs the leader waits while there
is none in reach, and everything behind it.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol, cast

from klamm.sim.zookeeper import packets
from klamm.sim.zookeeper.ensemble import REFUSALS, Ensemble, Loss, SessionRecord
from klamm.sim.zookeeper.reads import answer
from klamm.sim.zookeeper.rules import Identity, Refused, allows, identity_of
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
_FOR_THE_LEADER: Final = _WRITES | {Opcode.MULTI, Opcode.SET_ACL, Opcode.SYNC, Opcode.CLOSE_SESSION}
_WORDS: Final = (b"ruok", b"srvr")


class ServerOfConnections(Protocol):
    """What a connection needs of its server."""

    ensemble: Ensemble
    tree: Tree
    takes_clients: bool

    @property
    def watchers(self) -> "Watchers[ServerConnection]": ...
    @property
    def connections(self) -> "dict[ServerConnection, None]": ...
    @property
    def reaches_leader(self) -> bool: ...
    @property
    def leads(self) -> bool: ...
    @property
    def mode(self) -> str: ...
    def connection_of(self, session: int) -> "ServerConnection | None": ...


class ServerConnection(asyncio.Protocol):
    def __init__(self, server: ServerOfConnections) -> None:
        self._server = server
        self._ensemble = server.ensemble
        self._packets = PacketReader(server.ensemble.settings.max_packet_bytes)
        self._waiting: deque[bytes] = deque()
        self._owed: tuple[int, bytes] | None = None
        """(zxid, answer): not sent before the server has got there; nothing else is served before that."""
        self._session: SessionRecord | None = None
        self._transport: asyncio.Transport | None = None
        self._who: list[Identity] = []

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._who = [("ip", str((transport.get_extra_info("peername") or ("?",))[0]))]
        if self._server.takes_clients:
            self._server.connections[self] = None
        else:
            self.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()

    def data_received(self, data: bytes) -> None:
        if self._session is None and data in _WORDS:
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
        """Serve the waiting requests up to the zxid this server has applied."""
        while self._transport is not None:
            if self._owed is not None:
                if self._owed[0] > self._server.tree.zxid:
                    return
                owed, self._owed = self._owed[1], None
                self._write(owed)
            if not self._waiting or (not self._server.reaches_leader and self._needs_leader(self._waiting[0])):
                return
            packet = self._waiting.popleft()
            try:
                if self._session is None:
                    self._connect(packets.read_connect(packet))
                else:
                    self._serve(packet, self._session)
            except MalformedPacket:
                self.drop()

    def notify(self, event: WatchEvent, zxid: int) -> None:
        self._write(packets.notification(event, zxid))

    def may_read(self, acl: Sequence[Acl]) -> bool:
        return allows(acl, Permission.READ, self._who)

    @property
    def session_id(self) -> int:
        """0 before the greeting."""
        return self._session.id if self._session is not None else 0

    @property
    def watches(self) -> tuple[list[str], list[str]]:
        """Paths that are watched over this connection: data, children."""
        return self._server.watchers.paths_of(self)

    def session_ended(self) -> None:
        if self._owed is None:
            self.drop()

    def babble(self, frame: bytes) -> None:
        """Send a frame that no real server sends."""
        self._write(frame)

    def drop(self) -> None:
        transport = self._transport
        self._forget()
        if transport is not None:
            transport.close()

    def _forget(self) -> None:
        self._transport = None
        self._waiting.clear()
        self._server.connections.pop(self, None)
        self._server.watchers.forget(self)
        if self._session is not None and self._session.holder is self:
            self._session.holder = None

    def _write(self, frame: bytes) -> None:
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
        if request.last_zxid > self._server.tree.zxid:
            self.drop()  # the client has seen more than this server
            return
        if not request.session:
            session, zxid = self._ensemble.open_session(request.timeout_ms)
            session.holder = self
        else:
            self._close_other_of(request.session)
            resumed = self._ensemble.resume(request.session, request.password, self)
            if resumed is None:
                self._write(packets.connect_answer(0, 0, bytes(16), request.knows_read_only))
                self.drop()
                return
            session, zxid = resumed, 0
        self._session = session
        if not self._ensemble.on_greeting(session.id):
            self.drop()
            return
        greeting = packets.connect_answer(session.timeout_ms, session.id, session.password, request.knows_read_only)
        self._owed = (zxid, greeting)

    def _close_other_of(self, session: int) -> None:
        """On this server; whoever holds the session elsewhere finds out by its next write."""
        other = self._server.connection_of(session)
        if other is not None:
            other.drop()

    # ---- requests

    def _serve(self, packet: bytes, session: SessionRecord) -> None:
        xid, opcode, reader = packets.read_header(packet)
        is_known = session.id in self._ensemble.sessions
        if not is_known or (session.holder is not self and self._is_refused_after_a_move(opcode)):
            self.drop()
            return
        if self._server.reaches_leader:
            self._ensemble.touch(session)
        if opcode == Opcode.CLOSE_SESSION:
            self._end(xid, session)
        elif opcode == Opcode.AUTH:
            self._authenticate(reader)
        elif opcode in _FOR_THE_LEADER:
            self._change(xid, opcode, reader, session)
        else:
            self._read(xid, opcode, reader)

    def _is_refused_after_a_move(self, opcode: int) -> bool:
        """A follower goes on answering what it knows itself, and anybody may end the session."""
        return opcode != Opcode.CLOSE_SESSION and (opcode in _FOR_THE_LEADER or self._server.leads)

    def _end(self, xid: int, session: SessionRecord) -> None:
        """The answer to closing, then the end; nothing else is served."""
        self._owed = (0, b"")  # what keeps `session_ended` from closing before the answer
        zxid = self._ensemble.end_session(session.id)
        self._owed = None
        self._write(packets.reply(xid, zxid))
        self.drop()

    def _authenticate(self, reader: Reader) -> None:
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

    def _change(self, xid: int, opcode: int, reader: Reader, session: SessionRecord) -> None:
        if opcode == Opcode.SYNC:
            zxid = self._ensemble.tree.zxid
            self._owed = (zxid, packets.reply(xid, zxid, 0, text(reader.text())))
            return
        if opcode == Opcode.SET_ACL:
            path, acl, version = reader.text(), reader.acls(), reader.int32()
            zxid, result = self._ensemble.write_acl(session.id, path, acl, version, self._who)
            body = packets.stat(result.stat) if result.code is ZkCode.OK else b""
            self._owed = (zxid, packets.reply(xid, zxid, result.code, body))
            return
        items = list(packets.read_multi(reader)) if opcode == Opcode.MULTI else [
            (opcode, packets.read_operation(opcode, reader))
        ]  # fmt: skip
        ops = [op for _, op in items]
        loss = self._ensemble.on_write(session.id, ops)
        if loss is Loss.BEFORE:
            self.drop()
            return
        if loss in REFUSALS:
            zxid, results = self._ensemble.refuse(session.id, ops, len(ops) - 1 if loss is Loss.REFUSED else 0)
        else:
            zxid, results = self._ensemble.write(session.id, ops, self._who)
        if loss is Loss.AFTER:
            self.drop()
        elif opcode == Opcode.MULTI:
            body = packets.multi_result([o for o, _ in items], results)
            self._owed = (zxid, packets.reply(xid, zxid, 0, body))
        else:
            [result] = results
            body = packets.operation_result(opcode, result) if result.code is ZkCode.OK else b""
            self._owed = (zxid, packets.reply(xid, zxid, result.code, body))

    def _read(self, xid: int, opcode: int, reader: Reader) -> None:
        server = self._server
        zxid = server.tree.zxid
        try:
            body = answer(server.tree, server.watchers, opcode, reader, self, self._who)
        except Refused as refused:
            if refused.code is ZkCode.UNIMPLEMENTED:
                self._write(packets.reply(xid, -1, refused.code))
                self.drop()
            else:
                self._write(packets.reply(xid, zxid, refused.code))
        else:
            self._write(packets.reply(_PING_XID if opcode == Opcode.PING else xid, zxid, 0, body))
