"""The encoded requests, and the decoders of their replies. Source: ZooKeeper.java, zookeeper.jute."""

import struct
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final, Generic, TypeVar

from klamm.zk import jute
from klamm.zk.acl import Acl
from klamm.zk.errors import ZkCode
from klamm.zk.jute import Reader, Stat
from klamm.zk.operations import Create, Delete, Set
from klamm.zk.watches import CHILD, DATA, EXIST, WatchKind

T = TypeVar("T")


class Opcode(IntEnum):
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    ADD_WATCH = 106
    CLOSE_SESSION = -11
    ERROR = -1


_PERSISTENT_RECURSIVE: Final = 1
"""The mode of a watch on a znode and all znodes below it that notices do not remove."""

NO_WATCH: Final[Mapping[ZkCode, WatchKind]] = {}
"""The server sets no watch."""
DATA_WATCH: Final[Mapping[ZkCode, WatchKind]] = {ZkCode.OK: DATA}
EXIST_WATCH: Final[Mapping[ZkCode, WatchKind]] = {ZkCode.OK: DATA, ZkCode.NO_NODE: EXIST}
"""The watch that `exists` sets, with or without the znode."""
CHILD_WATCH: Final[Mapping[ZkCode, WatchKind]] = {ZkCode.OK: CHILD}


class Request(Generic[T]):
    """A request: the encoded opcode and body, the decoder of the reply, and the result.

    `watch` has the watch that the server sets, by the code of its answer. `abandoned` means that the caller gave up:
    the request is not sent, or not sent again. When it is complete, `code` is set, and `value` if the code is OK;
    `took_s` is the time since the last sending, negative without an answer.
    """

    # fmt: off
    __slots__ = (
        "abandoned", "code", "losses", "path", "payload", "read", "reply_bytes", "sent_at", "took_s", "value", "watch",
        "xid",
    )
    # fmt: on

    value: T

    def __init__(
        self, path: str, payload: bytes, read: Callable[[Reader], T], watch: Mapping[ZkCode, WatchKind] = NO_WATCH
    ) -> None:
        self.path = path
        self.payload = payload
        self.read = read
        self.watch = watch
        self.code: ZkCode | None = None
        self.xid = 0
        self.reply_bytes = 0
        self.losses = 0
        self.sent_at = 0.0
        self.took_s = -1.0
        self.abandoned = False


def read_nothing(_: Reader) -> None:
    """The decoder of an empty reply."""


def get(path: str, watch: bool) -> Request[tuple[bytes | None, Stat]]:
    """Make a request that reads content and Stat of a znode."""
    return Request(path, _path_and_watch(Opcode.GET_DATA, path, watch), _read_data, DATA_WATCH if watch else NO_WATCH)


def exists(path: str, watch: bool) -> Request[Stat]:
    """Make a request that reads the Stat of a znode."""
    return Request(path, _path_and_watch(Opcode.EXISTS, path, watch), Reader.stat, EXIST_WATCH if watch else NO_WATCH)


def children(path: str, watch: bool) -> Request[tuple[list[str], Stat]]:
    """Make a request that reads the children and the Stat of a znode."""
    payload = _path_and_watch(Opcode.GET_CHILDREN2, path, watch)
    return Request(path, payload, _read_children, CHILD_WATCH if watch else NO_WATCH)


def create(op: Create) -> Request[tuple[str, Stat]]:
    """Make a request that creates a znode; it returns the path, with the sequence number, and the Stat."""
    return Request(op.path, jute.pack_int(Opcode.CREATE2) + _create_body(op), _read_created)


def set_data(op: Set) -> Request[Stat]:
    """Make a request that writes the content of a znode; it returns the new Stat."""
    return Request(op.path, jute.pack_int(Opcode.SET_DATA) + _set_body(op), Reader.stat)


def delete(op: Delete) -> Request[None]:
    """Make a request that deletes a znode."""
    return Request(op.path, jute.pack_int(Opcode.DELETE) + _path_and_version(op), read_nothing)


def sync(path: str) -> Request[None]:
    """Make a request that is answered once the server has every change committed before."""
    return Request(path, jute.pack_int(Opcode.SYNC) + jute.text(path), read_nothing)


def get_acl(path: str) -> Request[tuple[list[Acl], Stat]]:
    """Make a request that reads ACL and Stat of a znode."""
    return Request(path, jute.pack_int(Opcode.GET_ACL) + jute.text(path), _read_acl)


def set_acl(path: str, acl: Sequence[Acl], version: int) -> Request[Stat]:
    """Make a request that writes the ACL of a znode if it has this ACL version; -1 matches any."""
    body = jute.text(path) + jute.acls(acl) + jute.pack_int(version)
    return Request(path, jute.pack_int(Opcode.SET_ACL) + body, Reader.stat)


def close_session() -> Request[None]:
    """Make a request that ends the session."""
    return Request("", jute.pack_int(Opcode.CLOSE_SESSION), read_nothing)


def auth(scheme: str, credentials: bytes) -> Request[None]:
    """Make a request that adds credentials to the session."""
    body = jute.pack_int(0) + jute.text(scheme) + jute.buffer(credentials)
    return Request("", jute.pack_int(Opcode.AUTH) + body, read_nothing)


def watch_subtree(path: str) -> Request[None]:
    """Make a request that watches a znode and all znodes below it, until the connection ends (ZooKeeper 3.6)."""
    body = jute.text(path) + jute.pack_int(_PERSISTENT_RECURSIVE)
    return Request(path, jute.pack_int(Opcode.ADD_WATCH) + body, _read_error_code)


def set_watches(body: bytes) -> Request[None]:
    """Make a request that sets watches again after a reconnect; `body` is the encoded list of them."""
    return Request("", jute.pack_int(Opcode.SET_WATCHES) + body, read_nothing)


def _path_and_watch(opcode: Opcode, path: str, watch: bool) -> bytes:
    """The encoded opcode, path and watch flag."""
    raw = path.encode()
    return struct.pack(">ii", opcode, len(raw)) + raw + (b"\1" if watch else b"\0")


def _path_and_version(op: Delete) -> bytes:
    """Return the encoded fields of a delete."""
    return jute.text(op.path) + jute.pack_int(op.version)


def _set_body(op: Set) -> bytes:
    """Return the encoded fields of a write."""
    return jute.text(op.path) + jute.buffer(op.data) + jute.pack_int(op.version)


def _create_body(op: Create) -> bytes:
    """Return the encoded fields of a create."""
    return jute.text(op.path) + jute.buffer(op.data) + jute.acls(op.acl) + jute.pack_int(op.flags)


def _read_error_code(reader: Reader) -> None:
    """Read the body of an ErrorResponse, whose code the reply's header has, too."""
    reader.int32()


def _read_data(reader: Reader) -> tuple[bytes | None, Stat]:
    """Read content and Stat from a response."""
    return reader.buffer(), reader.stat()


def _read_children(reader: Reader) -> tuple[list[str], Stat]:
    """Read the names of children and the Stat from a response."""
    return reader.texts(), reader.stat()


def _read_created(reader: Reader) -> tuple[str, Stat]:
    """Read the created path and the Stat from a response."""
    return reader.text(), reader.stat()


def _read_acl(reader: Reader) -> tuple[list[Acl], Stat]:
    """Read ACL and Stat from a response."""
    return reader.acls(), reader.stat()
