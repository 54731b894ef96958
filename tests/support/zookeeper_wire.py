"""Raw connections to a real ZooKeeper or to the model, and responses in comparable form."""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from klamm.runtime.clock import RealClock
from klamm.runtime.randomness import Rng
from klamm.sim.zookeeper.connection import ServerConnection
from klamm.sim.zookeeper.ensemble import Ensemble, EnsembleSettings
from klamm.sim.zookeeper.server import Server
from klamm.zk.jute import Reader, Stat, buffer, pack_int
from klamm.zk.requests import Opcode

ANSWER_S = 20.0


class Wire(Protocol):
    """A connection to a ZooKeeper server."""

    def write(self, data: bytes) -> None: ...
    def read(self) -> bytes | None:
        """The next frame, without its length; waits for it. None at the end."""
        ...

    def close(self) -> None: ...


class RealWire:
    """A connection to a real server."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), ANSWER_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()

    def write(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError:
            return  # `read` tells

    def read(self) -> bytes | None:
        while (frame := self._next_frame()) is None:
            try:
                data = self._socket.recv(1 << 16)
            except ConnectionError:
                return None
            if not data:
                return None
            self._buffer += data
        return frame

    def _next_frame(self) -> bytes | None:
        if len(self._buffer) < 4:
            return None
        (size,) = struct.unpack_from(">i", self._buffer)
        if len(self._buffer) < 4 + size:
            return None
        frame = bytes(self._buffer[4 : 4 + size])
        del self._buffer[: 4 + size]
        return frame

    def close(self) -> None:
        self._socket.close()


class ModelWire(asyncio.Transport):
    """A connection to the model: frames are handled at once and responses kept."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._frames: deque[bytes] = deque()
        self._server = ServerConnection(server)
        self._server.connection_made(self)
        self._is_open = True

    def write(self, data: Any) -> None:
        self._frames.append(bytes(data)[4:])

    def close(self) -> None:
        self._is_open = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default

    def send(self, data: bytes) -> None:
        if self._is_open:
            self._server.data_received(data)

    def read(self) -> bytes | None:
        if self._frames:
            return self._frames.popleft()
        assert not self._is_open, "the model owes an answer"
        return None

    def hang_up(self) -> None:
        if self._is_open:
            self._server.connection_lost(None)


class _ModelEnd:
    """The client's end of a ModelWire."""

    def __init__(self, server: Server) -> None:
        self._wire = ModelWire(server)
        self.write = self._wire.send
        self.read = self._wire.read
        self.close = self._wire.hang_up


Connect = Callable[[], Wire]


def connect_to_real_server(port: int) -> Connect:
    return lambda: RealWire(port)


def connect_to_model(settings: EnsembleSettings) -> Connect:
    """Connect to a model of one server; call it within a running loop."""
    server = Server(Ensemble(RealClock(), Rng("model"), settings))
    return lambda: cast(Wire, _ModelEnd(server))


def connect_frame(session: int, password: bytes, last_zxid: int = 0, timeout_ms: int = 30_000) -> bytes:
    body = struct.pack(">iqiq", 0, last_zxid, timeout_ms, session) + buffer(password) + b"\0"
    return pack_int(len(body)) + body


def request_frame(xid: int, opcode: int, body: bytes) -> bytes:
    return struct.pack(">iii", len(body) + 8, xid, opcode) + body


class Normalizer:
    """Converts responses to comparable values: relative zxids, session names, relative paths, no times."""

    def __init__(self, root: str, base: int, sessions: dict[int, str]) -> None:
        self._root = root
        self.base = base
        self._sessions = sessions

    def zxid(self, value: int) -> int:
        return value - self.base if value > 0 else value

    def path(self, value: str) -> str:
        return value.removeprefix(self._root)

    def stat(self, stat: Stat) -> tuple[Any, ...]:
        assert stat.ctime <= stat.mtime
        owner = self._sessions.get(stat.ephemeral_owner, stat.ephemeral_owner)
        zxids = [self.zxid(z) for z in (stat.czxid, stat.mzxid, stat.pzxid)]
        return (
            *zxids, stat.version, stat.cversion, stat.aversion, owner, stat.data_length, stat.num_children,
        )  # fmt: skip

    def answer(self, opcode: int, frame: bytes) -> tuple[Any, ...]:
        reader = Reader(frame)
        xid, zxid, code = reader.int32(), reader.int64(), reader.int32()
        if xid == -1:
            kind, _, path = reader.int32(), reader.int32(), reader.text()
            return "event", kind, self.path(path), self.zxid(zxid)
        value = self._body(opcode, reader) if not code else None
        assert not reader.left, (opcode, reader.left)
        return xid, self.zxid(zxid), code, value

    def _body(self, opcode: int, reader: Reader) -> Any:
        match opcode:
            case Opcode.CREATE | Opcode.SYNC:
                return self.path(reader.text())
            case Opcode.CREATE2:
                return self.path(reader.text()), self.stat(reader.stat())
            case Opcode.SET_DATA | Opcode.EXISTS | Opcode.SET_ACL:
                return self.stat(reader.stat())
            case Opcode.GET_DATA:
                return reader.buffer(), self.stat(reader.stat())
            case Opcode.GET_CHILDREN:
                return sorted(reader.texts())
            case Opcode.GET_CHILDREN2:
                return sorted(reader.texts()), self.stat(reader.stat())
            case Opcode.GET_ACL:
                return sorted(reader.acls()), self.stat(reader.stat())  # who asked with `auth` has no order
            case Opcode.MULTI | Opcode.MULTI_READ:
                return self._items(reader)
            case Opcode.ADD_WATCH:
                return reader.int32()
            case _:
                return None

    def _items(self, reader: Reader) -> Sequence[Any]:
        """The results of a multi as comparable values."""
        items: list[Any] = []
        while True:
            opcode, is_end, code = reader.int32(), reader.boolean(), reader.int32()
            if is_end:
                return items
            items.append((opcode, code, reader.int32() if opcode == -1 else self._body(opcode, reader)))
