"""Answers read requests from a server's own tree, and sets their watches. Source: FinalRequestProcessor.java."""

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

from klamm.sim.zookeeper import packets
from klamm.sim.zookeeper.rules import Identity, RequestRejected, require_permission, require_znode, without_digests
from klamm.sim.zookeeper.tree import Tree
from klamm.sim.zookeeper.watchers import Watchers
from klamm.zk.acl import Permission
from klamm.zk.errors import ZkCode
from klamm.zk.jute import Reader, acls, pack_int, texts
from klamm.zk.requests import Opcode
from klamm.zk.watches import WatchEvent

_PERSISTENT_RECURSIVE: Final = 1
_CONTENT: Final = frozenset({Opcode.GET_DATA, Opcode.GET_CHILDREN, Opcode.GET_CHILDREN2})


class Watcher(Protocol):
    """Gets watch events."""

    def notify(self, event: WatchEvent, zxid: int) -> None:
        """Send the event of a watch to the client; `zxid` is the transaction that caused it."""


W = TypeVar("W", bound=Watcher)


def answer(
    tree: Tree, watchers: Watchers[W], opcode: int, reader: Reader, watcher: W, who: Sequence[Identity]
) -> bytes:
    """Encode the response body of a read request. Raises RequestRejected, also for requests that are not simulated."""
    if opcode == Opcode.PING:
        return b""
    if opcode == Opcode.SET_WATCHES:
        since, data, exist, child = reader.int64(), reader.texts(), reader.texts(), reader.texts()
        for event in watchers.restore_watches(tree, since, data, exist, child, watcher):
            watcher.notify(event, -1)
        return b""
    if opcode == Opcode.ADD_WATCH:
        return _watch_subtree(watchers, reader, watcher)
    if opcode == Opcode.MULTI_READ:
        items = packets.read_multi_read(reader)
        return packets.multi_read_result([_read_item(tree, o, path, who) for o, path in items])
    if opcode == Opcode.GET_ACL:
        node = require_znode(tree, reader.text())
        require_permission(node, Permission.READ | Permission.ADMIN, who)
        return acls(without_digests(node, who)) + packets.stat(node.stat())
    if opcode == Opcode.EXISTS:
        path = reader.text()
        there = tree.get(path)
        if there is not None:
            require_permission(there, Permission.READ, who)
        if reader.boolean():
            watchers.watch_data(path, watcher)
        return packets.stat(require_znode(tree, path).stat())
    if opcode not in _CONTENT:
        raise RequestRejected(ZkCode.UNIMPLEMENTED)
    path = reader.text()
    body = _content(tree, opcode, path, who)
    if reader.boolean():
        (watchers.watch_data if opcode == Opcode.GET_DATA else watchers.watch_children)(path, watcher)
    return body


def _watch_subtree(watchers: Watchers[W], reader: Reader, watcher: W) -> bytes:
    """Set a persistent recursive watch; the other mode is not simulated. Raises RequestRejected."""
    path, mode = reader.text(), reader.int32()
    if mode != _PERSISTENT_RECURSIVE:
        raise RequestRejected(ZkCode.UNIMPLEMENTED)
    watchers.watch_subtree(path, watcher)
    return pack_int(ZkCode.OK)


def _content(tree: Tree, opcode: int, path: str, who: Sequence[Identity]) -> bytes:
    """The data or children of a znode, encoded. Raises RequestRejected."""
    node = require_znode(tree, path)
    require_permission(node, Permission.READ, who)
    if opcode == Opcode.GET_DATA:
        return packets.data_and_stat(node.data, node.stat())
    names = texts(list(node.children))
    return names + packets.stat(node.stat()) if opcode == Opcode.GET_CHILDREN2 else names


def _read_item(tree: Tree, opcode: int, path: str, who: Sequence[Identity]) -> bytes:
    """The result of one path of a multi-read."""
    try:
        return packets.read_item(opcode, _content(tree, opcode, path, who))
    except RequestRejected as refused:
        return packets.error_item(refused.code)
