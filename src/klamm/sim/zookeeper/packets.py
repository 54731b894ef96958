"""The server's side of the ZooKeeper wire protocol: decode requests, encode responses. Source: zookeeper.jute."""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from klamm.zk.errors import ZkCode
from klamm.zk.jute import INT, STAT, MalformedPacket, Reader, Stat, buffer, pack_int, text
from klamm.zk.operations import Check, Create, Delete, Op, Result, Set
from klamm.zk.requests import Opcode
from klamm.zk.watches import WatchEvent

_HEADER: Final = struct.Struct(">ibi")
_REPLY: Final = struct.Struct(">iqi")
_FRAMED_REPLY: Final = struct.Struct(">iiqi")
_REQUEST: Final = struct.Struct(">ii")
_END: Final = _HEADER.pack(-1, 1, -1)
NOTIFICATION_XID: Final = -1
_CONNECTED: Final = 3


class ConnectRequest(NamedTuple):
    """A client's request for a new or existing session."""

    last_zxid: int
    timeout_ms: int
    session: int
    password: bytes
    knows_read_only: bool


def read_connect(packet: bytes) -> ConnectRequest:
    """Decode a connect request."""
    reader = Reader(packet)
    reader.int32()
    zxid, timeout_ms, session, password = reader.int64(), reader.int32(), reader.int64(), reader.buffer()
    return ConnectRequest(zxid, timeout_ms, session, password or b"", bool(reader.left))


def read_header(packet: bytes) -> tuple[int, int, Reader]:
    """Decode a request's header; return xid, opcode and a reader of the rest."""
    if len(packet) < _REQUEST.size:
        raise MalformedPacket(f"a request of {len(packet)} bytes is too short for its header")
    xid, opcode = _REQUEST.unpack_from(packet)
    return xid, opcode, Reader(packet, _REQUEST.size)


def connect_answer(timeout_ms: int, session: int, password: bytes, knows_read_only: bool) -> bytes:
    """Encode a connect response; session 0 means that the session has expired."""
    answer = struct.pack(">iiq", 0, timeout_ms, session) + buffer(password)
    return with_length_prefix(answer + b"\0" if knows_read_only else answer)


def with_length_prefix(packet: bytes) -> bytes:
    """Return the packet as it goes over the connection: its length as int32, then its bytes."""
    return pack_int(len(packet)) + packet


def reply(xid: int, zxid: int, code: int = 0, body: bytes = b"") -> bytes:
    """Encode a response frame: request id, zxid, error code and body."""
    return _FRAMED_REPLY.pack(_REPLY.size + len(body), xid, zxid, code) + body


def notification(event: WatchEvent, zxid: int) -> bytes:
    """Encode a watch event; `zxid` is that of the change, or -1 if it was noticed when watches were set again."""
    return reply(NOTIFICATION_XID, zxid, 0, struct.pack(">ii", event.type, _CONNECTED) + text(event.path))


def read_operation(opcode: int, reader: Reader) -> Op:
    """Decode a write, alone or in a multi."""
    path = reader.text()
    if opcode in (Opcode.CREATE, Opcode.CREATE2):
        data, acl, flags = reader.buffer(), reader.acls(), reader.int32()
        if not 0 <= flags <= 3:
            raise MalformedPacket(
                f"the simulated ZooKeeper does not support create mode {flags}"
            )  # containers, znodes with a time to live
        return Create(path, data, bool(flags & 1), bool(flags & 2), acl)
    if opcode == Opcode.SET_DATA:
        return Set(path, reader.buffer(), reader.int32())
    if opcode == Opcode.DELETE:
        return Delete(path, reader.int32())
    if opcode == Opcode.CHECK:
        return Check(path, reader.int32())
    raise MalformedPacket(f"the simulated ZooKeeper does not support operation {opcode}")


def read_multi(reader: Reader) -> Iterator[tuple[int, Op]]:
    """Decode the operations of a multi: (opcode, operation)."""
    while (opcode := _next_item(reader)) != -1:
        yield opcode, read_operation(opcode, reader)


def paths_read(opcode: int, reader: Reader) -> list[str]:
    """The paths that a request reads: one, or those of a multi-read."""
    if opcode == Opcode.MULTI_READ:
        return [path for _, path in read_multi_read(reader)]
    return [reader.text()]


def read_multi_read(reader: Reader) -> Iterator[tuple[int, str]]:
    """Decode the reads of a multi-read: (opcode, path)."""
    while (opcode := _next_item(reader)) != -1:
        path = reader.text()
        reader.boolean()
        yield opcode, path


def _next_item(reader: Reader) -> int:
    """The opcode of the next item of a multi; -1 at its end."""
    opcode, is_end, _ = reader.int32(), reader.boolean(), reader.int32()
    return -1 if is_end else opcode


def operation_result(opcode: int, result: Result) -> bytes:
    """Encode the response body of a single write."""
    if opcode == Opcode.CREATE:
        return text(result.path or "")
    if opcode == Opcode.CREATE2:
        return text(result.path or "") + stat(result.stat)
    return stat(result.stat) if opcode == Opcode.SET_DATA else b""


def multi_result(opcodes: Sequence[int], results: Sequence[Result]) -> bytes:
    """Encode the response body of a multi; only error codes if one operation failed."""
    if all(r.code is ZkCode.OK for r in results):
        items = [_HEADER.pack(o, 0, 0) + operation_result(o, r) for o, r in zip(opcodes, results, strict=True)]
    else:
        items = [error_item(r.code) for r in results]
    return b"".join(items) + _END


def error_item(code: int) -> bytes:
    """Encode the result of a failed operation in a multi."""
    return _HEADER.pack(-1, 0, code) + INT.pack(code)


def read_item(opcode: int, body: bytes) -> bytes:
    """Encode the result of one read in a multi-read."""
    return _HEADER.pack(opcode, 0, 0) + body


def multi_read_result(items: Sequence[bytes]) -> bytes:
    """Encode the response body of a multi-read."""
    return b"".join(items) + _END


def data_and_stat(data: bytes | None, value: Stat) -> bytes:
    """Encode content and Stat of a znode, as the response to getData has them."""
    return buffer(data) + STAT.pack(*value)


def stat(value: Stat | None) -> bytes:
    """Encode the Stat of a znode; it must not be None."""
    assert value is not None
    return STAT.pack(*value)
