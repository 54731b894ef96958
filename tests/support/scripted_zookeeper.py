"""A ZooKeeper server small enough to script: sessions with their time-outs, flat znodes, one-shot watches.

It speaks the wire protocol byte for byte but knows only what the session needs: connect, ping, create2, exists,
getData, setData, getChildren2, setWatches, auth, closeSession. Several addresses may serve one `Sessions`.
"""

import asyncio
import struct
from collections import Counter
from dataclasses import dataclass, field

from klamm.zk.jute import Reader, Stat, buffer, text, texts

CREATED, DELETED, CHANGED, CHILD = 1, 2, 3, 4


@dataclass
class Znode:
    data: bytes | None
    czxid: int
    mzxid: int
    version: int = 0
    owner: int = 0

    def stat(self) -> bytes:
        size = len(self.data or b"")
        fields = Stat(self.czxid, self.mzxid, 0, 0, self.version, 0, 0, self.owner, size, 0, self.czxid)
        return struct.pack(">qqqqiiiqiiq", *fields)


@dataclass
class Ensemble:
    """What all servers share: the tree, and the sessions with the time each was last heard of."""

    max_timeout_ms: int = 60_000
    tree: dict[str, Znode] = field(default_factory=lambda: {"/": Znode(None, 0, 0)})
    zxid: int = 0
    timeouts_ms: dict[int, int] = field(default_factory=dict)
    heard_at: dict[int, float] = field(default_factory=dict)
    owners: dict[int, "Link"] = field(default_factory=dict)
    """The connection that each session used last; what comes by an older one is refused."""
    links: list["Link"] = field(default_factory=list)
    log: list[tuple[float, str]] = field(default_factory=list)
    """What came in: (time, what)."""
    knows_multi_read: bool = True
    multi_reads_until_old: int = -1
    """After so many it no longer knows it; never where negative."""
    answers_unknown_with: int = -6
    """To what it does not know: an error code; 0 for an empty answer, as ZooKeeper 3.5 gives."""
    refuses_auth: bool = False
    drops_replies: bool = False
    next_session: int = 0x100

    def note(self, what: str) -> None:
        self.log.append((round(asyncio.get_running_loop().time(), 6), what))

    def count(self) -> Counter[str]:
        return Counter(what.split(" ")[0] for _, what in self.log)

    def expire(self) -> None:
        now = asyncio.get_running_loop().time()
        for session, timeout_ms in list(self.timeouts_ms.items()):
            if now - self.heard_at[session] > timeout_ms / 1000:
                self.end(session)

    def end(self, session: int) -> None:
        del self.timeouts_ms[session]
        for path in [p for p, z in self.tree.items() if z.owner == session]:
            self.delete(path)

    def create(self, path: str, data: bytes | None, owner: int = 0) -> None:
        self.zxid += 1
        self.tree[path] = Znode(data, self.zxid, self.zxid, owner=owner)
        self.fire(path, CREATED)
        self.fire(_parent(path), CHILD)

    def set(self, path: str, data: bytes | None) -> None:
        self.zxid += 1
        znode = self.tree[path]
        znode.data, znode.mzxid, znode.version = data, self.zxid, znode.version + 1
        self.fire(path, CHANGED)

    def delete(self, path: str) -> None:
        self.zxid += 1
        del self.tree[path]
        self.fire(path, DELETED)
        self.fire(_parent(path), CHILD)

    def fire(self, path: str, event: int) -> None:
        for link in list(self.links):
            link.fire(path, event)


class Link(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, ensemble: Ensemble, name: str) -> None:
        self.ensemble = ensemble
        self.name = name
        self.session = 0
        self.watched: dict[str, set[str]] = {"data": set(), "child": set()}
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.ensemble.links.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self.ensemble.links:
            self.ensemble.links.remove(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            (size,) = struct.unpack_from(">i", self._buffer)
            if len(self._buffer) < 4 + size:
                return
            packet, self._buffer = self._buffer[4 : 4 + size], self._buffer[4 + size :]
            self._take(packet)

    def _send(self, packet: bytes) -> None:
        self.transport.write(struct.pack(">i", len(packet)) + packet)

    def _reply(self, xid: int, error: int = 0, body: bytes = b"") -> None:
        if not self.ensemble.drops_replies or xid < 0:
            self._send(struct.pack(">iqi", xid, self.ensemble.zxid, error) + body)

    def _take(self, packet: bytes) -> None:
        self.ensemble.expire()
        if not self.session:
            self._connect(Reader(packet))
            return
        reader = Reader(packet)
        xid, opcode = reader.int32(), reader.int32()
        if self.ensemble.owners[self.session] is not self or self.session not in self.ensemble.timeouts_ms:
            self._reply(xid, -118 if self.session in self.ensemble.timeouts_ms else -112)
            self.transport.close()
            return
        self.ensemble.heard_at[self.session] = asyncio.get_running_loop().time()
        if opcode == 11:
            self.ensemble.note("ping")
            self._reply(-2)
        elif opcode == 100:
            reader.int32()
            self.ensemble.note(f"auth {reader.text()}")
            self._reply(-4, -115 if self.ensemble.refuses_auth else 0)
        elif opcode == -11:
            self.ensemble.note("close")
            self.ensemble.end(self.session)
            self._reply(xid)
            self.transport.close()
        elif opcode == 101:
            self._set_watches(reader)
        elif opcode == 22:
            self._multi_read(xid, reader)
        else:
            self._request(xid, opcode, reader)

    def _connect(self, reader: Reader) -> None:
        ensemble = self.ensemble
        reader.int32()
        last_zxid, timeout_ms, session = reader.int64(), reader.int32(), reader.int64()
        ensemble.note(f"connect {self.name} {session:x}")
        if last_zxid > ensemble.zxid:
            self.transport.close()
            return
        if session and session not in ensemble.timeouts_ms:
            self._send(struct.pack(">iiq", 0, 0, 0) + buffer(bytes(16)) + b"\0")
            self.transport.close()
            return
        if not session:
            session = ensemble.next_session
            ensemble.next_session += 1
            ensemble.timeouts_ms[session] = min(timeout_ms, ensemble.max_timeout_ms)
        ensemble.heard_at[session] = asyncio.get_running_loop().time()
        self.session = session
        ensemble.owners[session] = self
        self._send(struct.pack(">iiq", 0, ensemble.timeouts_ms[session], session) + buffer(b"p" * 16) + b"\0")

    def _set_watches(self, reader: Reader) -> None:
        since = reader.int64()
        data, exist, child = reader.texts(), reader.texts(), reader.texts()
        self.ensemble.note(f"set-watches {data} {exist} {child}")
        tree = self.ensemble.tree
        for path in data:
            self.watched["data"].add(path)
            if path not in tree:
                self.fire(path, DELETED)
            elif tree[path].mzxid > since:
                self.fire(path, CHANGED)
        for path in exist:
            self.watched["data"].add(path)
            if path in tree:
                self.fire(path, CREATED)
        self.watched["child"].update(child)
        self._reply(-8)

    def _multi_read(self, xid: int, reader: Reader) -> None:
        asked = []
        while (opcode := reader.int32()) != -1:
            reader.boolean(), reader.int32()
            asked.append((opcode, reader.text()))
            reader.boolean()
        self.ensemble.note(f"multi-read {len(asked)}")
        self.ensemble.multi_reads_until_old -= 1
        self.ensemble.knows_multi_read &= self.ensemble.multi_reads_until_old != -1
        if not self.ensemble.knows_multi_read:
            self._reply(xid, self.ensemble.answers_unknown_with)
            return
        results = []
        for opcode, path in asked:
            znode = self.ensemble.tree.get(path)
            if znode is None:
                results.append(struct.pack(">ibii", -1, 0, -101, -101))
            else:
                content = buffer(znode.data) + znode.stat() if opcode == 4 else texts(self._children_of(path))
                results.append(struct.pack(">ibi", opcode, 0, 0) + content)
        self._reply(xid, 0, b"".join(results) + struct.pack(">ibi", -1, 1, -1))

    def _children_of(self, path: str) -> list[str]:
        above = path.rstrip("/") + "/"
        below = [p[len(above) :] for p in self.ensemble.tree if p.startswith(above) and p != path]
        return sorted(name for name in below if "/" not in name)

    def _request(self, xid: int, opcode: int, reader: Reader) -> None:
        ensemble = self.ensemble
        path = reader.text()
        names = {15: "create", 3: "exists", 4: "get", 5: "set", 12: "children"}
        ensemble.note(f"{names.get(opcode, opcode)} {path}")
        znode = ensemble.tree.get(path)
        if opcode == 15:
            data = reader.buffer()
            reader.acls()
            if znode is not None:
                self._reply(xid, -110)
                return
            ensemble.create(path, data, self.session if reader.int32() & 1 else 0)
            self._reply(xid, 0, text(path) + ensemble.tree[path].stat())
            return
        watch = opcode != 5 and reader.boolean()
        if watch and (znode is not None or opcode == 3):
            self.watched["child" if opcode == 12 else "data"].add(path)
        if opcode not in names:
            self._reply(xid, -6)
        elif znode is None:
            self._reply(xid, -101)
        elif opcode == 3:
            self._reply(xid, 0, znode.stat())
        elif opcode == 4:
            self._reply(xid, 0, buffer(znode.data) + znode.stat())
        elif opcode == 12:
            self._reply(xid, 0, texts(self._children_of(path)) + znode.stat())
        else:
            ensemble.set(path, reader.buffer())
            self._reply(xid, 0, znode.stat())

    def fire(self, path: str, event: int) -> None:
        kinds = {CREATED: ["data"], CHANGED: ["data"], DELETED: ["data", "child"], CHILD: ["child"]}[event]
        if any(path in self.watched[kind] for kind in kinds):
            for kind in kinds:
                self.watched[kind].discard(path)
            self._send(struct.pack(">iqi", -1, -1, 0) + struct.pack(">ii", event, 3) + text(path))


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"
