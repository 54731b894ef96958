"""Every write a ZooKeeper server carried out, in order, read from its transaction log.

Source: FileTxnLog.java, zookeeper.jute (3.9). A file is `ZKLG`, a version and a database id, then for each transaction
its checksum, its length, its header and content, and `B`; preallocated zeros end it.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from klamm.zk.jute import Reader

_FILE_HEADER = 16
_ENTRY = struct.Struct(">qi")
_TRANSACTION = struct.Struct(">qiqqi")  # session, cxid, zxid, time, type
_CREATES = (1, 15, 19, 21)
_DELETE, _SET, _MULTI, _ERROR = 2, 5, 14, -1


class Write(NamedTuple):
    zxid: int
    session: int
    kind: str
    """create, set or delete."""
    path: str
    data: bytes | None


def writes(server_directory: str, after_zxid: int = 0) -> Iterator[Write]:
    logs = Path(server_directory, "data", "version-2").glob("log.*")
    for log in sorted(logs, key=lambda path: int(path.suffix[1:], 16)):
        yield from (w for w in _of_file(log.read_bytes()) if w.zxid > after_zxid)


def _of_file(content: bytes) -> Iterator[Write]:
    at = _FILE_HEADER
    while at + _ENTRY.size <= len(content):
        _, size = _ENTRY.unpack_from(content, at)
        if size == 0:
            return
        at += _ENTRY.size
        session, _, zxid, _, kind = _TRANSACTION.unpack_from(content, at)
        body = content[at + _TRANSACTION.size : at + size]
        yield from (Write(zxid, session, *each) for each in _operations(kind, body))
        at += size + 1


def _operations(kind: int, body: bytes) -> list[tuple[str, str, bytes | None]]:
    reader = Reader(body)
    if kind in _CREATES:
        return [("create", reader.text(), reader.buffer())]
    if kind == _DELETE:
        return [("delete", reader.text(), None)]
    if kind == _SET:
        return [("set", reader.text(), reader.buffer())]
    if kind != _MULTI:
        return []  # sessions, checks, ACLs
    parts = [(reader.int32(), reader.buffer() or b"") for _ in range(reader.int32())]
    if any(part == _ERROR for part, _ in parts):
        return []  # nothing of a refused multi is carried out
    return [operation for part, content in parts for operation in _operations(part, content)]
