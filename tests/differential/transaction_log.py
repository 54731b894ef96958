"""Reads from a ZooKeeper server's transaction log what it executed and refused, in order.

Source: FileTxnLog.java, zookeeper.jute (3.9).
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from klamm.zk.errors import ZkCode
from klamm.zk.jute import Reader

_FILE_HEADER = 16
_ENTRY = struct.Struct(">qi")
_END_OF_ENTRY = b"B"
_TRANSACTION = struct.Struct(">qiqqi")  # session, cxid, zxid, time, type
_CREATES = (1, 15, 19, 21)
_DELETE, _SET, _MULTI, _ERROR, _END_OF_SESSION = 2, 5, 14, -1, -11
_SINGLE = (*_CREATES, _DELETE, _SET)


_ENDS: dict[Path, int] = {}
"""How far the logs were passed over before: many plays begin behind each other in one log."""


class Write(NamedTuple):
    """One write in the transaction log."""

    zxid: int
    session: int
    kind: str
    """create, set, delete or refused."""
    path: str
    """Empty where refused: the log does not have it."""
    data: bytes | None
    """Where refused, what for."""


class TransactionLog:
    """Reads the log on from the last position; writes outside of the path `below` may be omitted."""

    def __init__(self, server_directory: str, below: str = "", *, from_the_start: bool = False) -> None:
        self._below = below.encode()
        self._directory = Path(server_directory, "data", "version-2")
        self._read_to: dict[Path, int] = {}
        if not from_the_start:
            for path in self._files():
                self._read_to[path] = _ENDS[path] = _end_of(path, _ENDS.get(path, _FILE_HEADER))

    def _files(self) -> list[Path]:
        """The files of the log in their order."""
        return sorted(self._directory.glob("log.*"), key=lambda path: int(path.suffix[1:], 16))

    def read(self) -> Iterator[Write]:
        """The writes that were added since the last call."""
        for path in self._files():
            yield from self._read_file(path)

    def _read_file(self, path: Path) -> Iterator[Write]:
        for content, end in _entries(path, self._read_to.get(path, _FILE_HEADER)):
            self._read_to[path] = end
            session, _, zxid, _, kind = _TRANSACTION.unpack_from(content)
            if kind in _SINGLE and self._below not in content:
                continue  # another play's, on the same server
            body = content[_TRANSACTION.size :]
            yield from (Write(zxid, session, *each) for each in _operations(kind, body))


def _entries(path: Path, at: int) -> Iterator[tuple[bytes, int]]:
    """The whole entries of a file from position `at` on, each with the position behind it."""
    with open(path, "rb") as file:
        file.seek(at)
        while True:
            beginning = file.read(_ENTRY.size)
            checksum, size = _ENTRY.unpack(beginning) if len(beginning) == _ENTRY.size else (0, 0)
            content = file.read(size + 1) if size > 0 else b""
            content, end = content[:size], content[size:]
            if end != _END_OF_ENTRY or zlib.adler32(content) != checksum:
                return  # zeros follow, or the server is about to write the rest: it writes 8 KiB at a time
            at += _ENTRY.size + size + 1
            yield content, at


def _end_of(path: Path, at: int) -> int:
    """The position behind the last whole entry of a file, from an entry at position `at` on."""
    return max((end for _, end in _entries(path, at)), default=at)


def _operations(kind: int, body: bytes) -> list[tuple[str, str, bytes | None]]:
    """The operations of a transaction: (kind, path, data)."""
    reader = Reader(body)
    if kind in _CREATES:
        return [("create", reader.text(), reader.buffer())]
    if kind == _DELETE:
        return [("delete", reader.text(), None)]
    if kind == _SET:
        return [("set", reader.text(), reader.buffer())]
    if kind == _ERROR:
        return [_refusal(reader.int32(), "")]
    if kind == _END_OF_SESSION and body:
        return sorted(("delete", reader.text(), None) for _ in range(reader.int32()))  # a set, in whatever order
    if kind != _MULTI:
        return []  # beginnings of sessions, checks, ACLs
    parts = [(reader.int32(), reader.buffer() or b"") for _ in range(reader.int32())]
    kinds = [part for part, _ in parts]
    if _ERROR not in kinds:
        return [operation for part, content in parts for operation in _operations(part, content)]
    at = kinds.index(_ERROR)  # those before it keep their kinds, those after it were never tried
    return [_refusal(Reader(parts[at][1]).int32(), " of a later one" if at else " of the first")]


def _refusal(code: int, which: str) -> tuple[str, str, bytes | None]:
    """A refused transaction as an operation: its error code."""
    return "refused", "", f"{ZkCode(code).name}{which}".encode()
