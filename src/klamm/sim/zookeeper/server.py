"""One model server: its own, possibly older, tree, the watches of its clients, and their connections."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

from klamm.runtime.network import Listener, Network
from klamm.sim.zookeeper import packets
from klamm.sim.zookeeper.ensemble import Ensemble, Loss, SessionRecord
from klamm.sim.zookeeper.rules import Identity, Refused, digest_identity, need, permit
from klamm.sim.zookeeper.tree import Transaction, Tree
from klamm.sim.zookeeper.watchers import Watchers
from klamm.zk.acl import Permission
from klamm.zk.errors import ZkCode
from klamm.zk.frames import PacketReader
from klamm.zk.jute import MalformedPacket, Reader, acls, text, texts
from klamm.zk.requests import Opcode
from klamm.zk.watches import WatchEvent

_AUTH_XID = -4
_WRITES = frozenset({Opcode.CREATE, Opcode.CREATE2, Opcode.SET_DATA, Opcode.DELETE})


class Server:
    """`await server.listen(network, host, port)`; the same on a simulated and on a real network."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble
        self.tree = Tree()
        self.watchers: Watchers[ServerConnection] = Watchers()
        self.connections: dict[ServerConnection, None] = {}
        self.lag_s: Callable[[], float] = lambda: 0.0
        """How long after the ensemble this server applies the next transaction."""
        self._behind: deque[Transaction] = deque()
        self._applied_at = 0.0
        ensemble.join(self)

    async def listen(self, network: Network, host: str, port: int) -> Listener:
        listener = await network.listen(lambda: ServerConnection(self), host, port)
        await listener.start()
        return listener

    def learn(self, transaction: Transaction) -> None:
        lag_s = self.lag_s()
        if not lag_s and not self._behind:
            self._apply(transaction)
            return
        loop = asyncio.get_running_loop()
        self._behind.append(transaction)
        self._applied_at = max(self._applied_at, loop.time() + lag_s)
        loop.call_at(self._applied_at, self._catch_up)

    def _catch_up(self) -> None:
        self._apply(self._behind.popleft())
        for connection in list(self.connections):
            connection.advance()

    def _apply(self, transaction: Transaction) -> None:
        self.tree.zxid = transaction.zxid
        for change in transaction.changes:
            _, events = self.tree.apply(change, transaction.zxid, transaction.time_ms)
            told: set[tuple[ServerConnection, WatchEvent]] = set()
            for event in events:
                for connection in self.watchers.fire(event):
                    if (connection, event) not in told:
                        told.add((connection, event))
                        connection.notify(event)

    def drop_all(self) -> None:
        """Every client loses its connection to this server."""
        for connection in list(self.connections):
            connection.drop()


class ServerConnection(asyncio.Protocol):
    """One client's connection: requests in order, each answered once this server has applied what it wrote."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._ensemble = server.ensemble
        self._packets = PacketReader(server.ensemble.settings.max_packet_bytes)
        self._waiting: deque[bytes] = deque()
        self._owed: tuple[int, bytes] | None = None
        """(zxid, answer): not sent before the server has got there; nothing else is served before that."""
        self._session: SessionRecord | None = None
        self._is_replaced = False
        self._transport: asyncio.Transport | None = None
        self._who: list[Identity] = []

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._who = [("ip", str((transport.get_extra_info("peername") or ("?",))[0]))]
        self._server.connections[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()

    def data_received(self, data: bytes) -> None:
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

    # ---- for the server and the ensemble

    def advance(self) -> None:
        """Serve what waits, as far as this server has come."""
        while self._transport is not None:
            if self._owed is not None:
                if self._owed[0] > self._server.tree.zxid:
                    return
                answer, self._owed = self._owed[1], None
                self._write(answer)
            if not self._waiting:
                return
            packet = self._waiting.popleft()
            try:
                if self._session is None:
                    self._connect(packets.read_connect(packet))
                else:
                    self._serve(packet, self._session)
            except MalformedPacket:
                self.drop()

    def notify(self, event: WatchEvent) -> None:
        self._write(packets.notification(event))

    def session_ended(self) -> None:
        if self._owed is None:
            self.drop()

    def replaced(self) -> None:
        self._is_replaced = True
        self.drop()

    def drop(self) -> None:
        transport = self._transport
        self._forget()
        if transport is not None:
            transport.close()

    def _forget(self) -> None:
        self._transport = None
        self._server.connections.pop(self, None)
        self._server.watchers.forget(self)
        if self._session is not None and self._session.holder is self:
            self._session.holder = None

    def _write(self, frame: bytes) -> None:
        if self._transport is not None:
            self._transport.write(frame)

    # ---- the session

    def _connect(self, request: packets.ConnectRequest) -> None:
        if request.last_zxid > self._server.tree.zxid:
            self.drop()  # the client has seen more than this server
            return
        if not request.session:
            session, zxid = self._ensemble.open_session(request.timeout_ms)
            session.holder = self
        else:
            resumed = self._ensemble.resume(request.session, request.password, self)
            if resumed is None:
                self._write(packets.connect_answer(0, 0, bytes(16), request.knows_read_only))
                self.drop()
                return
            session, zxid = resumed, 0
        self._session = session
        self._owed = (
            zxid,
            packets.connect_answer(session.timeout_ms, session.id, session.password, request.knows_read_only),
        )

    # ---- requests

    def _serve(self, packet: bytes, session: SessionRecord) -> None:
        reader = Reader(packet)
        xid, opcode = reader.int32(), reader.int32()
        if session.id not in self._ensemble.sessions:
            self.drop()
            return
        self._ensemble.touch(session)
        if opcode == Opcode.CLOSE_SESSION:
            self._owed = (0, packets.reply(xid, self._ensemble.tree.zxid + 1))
            self._owed = (self._ensemble.end_session(session.id), self._owed[1])
            self._finish()
        elif opcode == Opcode.AUTH:
            self._authenticate(reader)
        elif opcode in _WRITES or opcode == Opcode.MULTI:
            self._change(xid, opcode, reader, session)
        elif opcode == Opcode.SET_ACL:
            path, acl, version = reader.text(), reader.acls(), reader.int32()
            zxid, result = self._ensemble.write_acl(session.id, path, acl, version, self._who)
            body = packets.stat(result.stat) if result.code is ZkCode.OK else b""
            self._owed = (zxid, packets.reply(xid, zxid, result.code, body))
        elif opcode == Opcode.SYNC:
            zxid = self._ensemble.tree.zxid
            self._owed = (zxid, packets.reply(xid, zxid, 0, text(reader.text())))
        else:
            self._read(xid, opcode, reader)

    def _finish(self) -> None:
        """The answer to closing, then the end; nothing else is served."""
        assert self._owed is not None
        answer, self._owed = self._owed[1], None
        self._write(answer)
        self.drop()

    def _authenticate(self, reader: Reader) -> None:
        reader.int32()
        scheme, credentials = reader.text(), reader.buffer() or b""
        if scheme == "digest" and b":" in credentials:
            identity = digest_identity(credentials)
            if identity not in self._who:
                self._who.append(identity)
            self._write(packets.reply(_AUTH_XID, self._server.tree.zxid))
        else:
            self._write(packets.reply(_AUTH_XID, self._server.tree.zxid, ZkCode.AUTH_FAILED))
            self.drop()

    def _change(self, xid: int, opcode: int, reader: Reader, session: SessionRecord) -> None:
        if opcode == Opcode.MULTI:
            items = list(packets.read_multi(reader))
        else:
            items = [(opcode, packets.read_operation(opcode, reader))]
        ops = [op for _, op in items]
        loss = self._ensemble.on_write(session.id, ops)
        if loss is Loss.BEFORE:
            self.drop()
            return
        zxid, results = self._ensemble.write(session.id, ops, self._who)
        if loss is Loss.AFTER:
            self.drop()
            return
        if opcode == Opcode.MULTI:
            body = packets.multi_result([o for o, _ in items], results)
            self._owed = (zxid, packets.reply(xid, zxid, 0, body))
        else:
            [result] = results
            body = packets.operation_result(opcode, result) if result.code is ZkCode.OK else b""
            self._owed = (zxid, packets.reply(xid, zxid, result.code, body))

    # ---- reads, from this server's own tree

    def _read(self, xid: int, opcode: int, reader: Reader) -> None:
        zxid = self._server.tree.zxid
        try:
            body = self._answer(opcode, reader)
        except Refused as refused:
            self._write(packets.reply(xid, zxid, refused.code))
        else:
            self._write(packets.reply(xid, zxid, 0, body))

    def _answer(self, opcode: int, reader: Reader) -> bytes:
        if opcode == Opcode.PING:
            return b""
        if opcode == Opcode.SET_WATCHES:
            since, data, exist, child = reader.int64(), reader.texts(), reader.texts(), reader.texts()
            for event in self._server.watchers.set_again(self._server.tree, since, data, exist, child, self):
                self.notify(event)
            return b""
        if opcode == Opcode.MULTI_READ:
            return packets.multi_read_result([self._read_item(o, path) for o, path in packets.read_multi_read(reader)])
        path = reader.text()
        if opcode == Opcode.GET_ACL:
            node = need(self._server.tree, path)
            permit(node, Permission.READ | Permission.ADMIN, self._who)
            return acls(node.acl) + packets.stat(node.stat())
        if opcode == Opcode.EXISTS:
            if reader.boolean():
                self._server.watchers.watch_data(path, self)
            return packets.stat(need(self._server.tree, path).stat())
        return self._content(opcode, path, reader.boolean())

    def _content(self, opcode: int, path: str, watch: bool) -> bytes:
        if opcode not in (Opcode.GET_DATA, Opcode.GET_CHILDREN, Opcode.GET_CHILDREN2):
            raise Refused(ZkCode.UNIMPLEMENTED)
        node = need(self._server.tree, path)
        permit(node, Permission.READ, self._who)
        if opcode == Opcode.GET_DATA:
            if watch:
                self._server.watchers.watch_data(path, self)
            return packets.data_and_stat(node.data, node.stat())
        if watch:
            self._server.watchers.watch_children(path, self)
        names = texts(list(node.children))
        return names + packets.stat(node.stat()) if opcode == Opcode.GET_CHILDREN2 else names

    def _read_item(self, opcode: int, path: str) -> bytes:
        try:
            return packets.read_item(opcode, self._content(opcode, path, False))
        except Refused as refused:
            return packets.error_item(refused.code)
