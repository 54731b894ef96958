"""The tree of znodes, the changes to it, and the watches they trigger. Source: DataTree.java, DataNode.java (3.9)."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from klamm.zk.acl import OPEN_ACL, Acl, Permission
from klamm.zk.jute import Stat
from klamm.zk.watches import EventType, WatchEvent


class CreateChange(NamedTuple):
    """A znode is created."""

    path: str
    data: bytes | None
    acl: Sequence[Acl]
    owner: int  # the session of an ephemeral znode, else 0


class SetChange(NamedTuple):
    """A znode's data is set."""

    path: str
    data: bytes | None


class DeleteChange(NamedTuple):
    """A znode is deleted."""

    path: str


class AclChange(NamedTuple):
    """A znode's ACL is set."""

    path: str
    acl: Sequence[Acl]


class WatchTrigger(NamedTuple):
    """A watch event, and the ACL that watchers must be able to read."""

    event: WatchEvent
    acl: Sequence[Acl]


SYSTEM_ZNODES: Final = ("/zookeeper", "/zookeeper/quota", "/zookeeper/config")
"""ZooKeeper's own, there from the first."""
READ_ACL: Final = (Acl(Permission.READ, "world", "anyone"),)

Change: TypeAlias = CreateChange | SetChange | DeleteChange | AclChange


class Transaction(NamedTuple):
    """The changes of one request, which all servers apply in zxid order; empty if the request was refused."""

    zxid: int
    time_ms: int
    session: int
    changes: Sequence[Change]


class Znode:
    """One znode: data, ACL, versions, children."""

    __slots__ = (
        "acl", "aversion", "children", "created", "ctime", "czxid", "data", "mtime", "mzxid", "owner", "pzxid",
        "version",
    )  # fmt: skip

    def __init__(self, data: bytes | None, acl: Sequence[Acl], owner: int, zxid: int, time_ms: int) -> None:
        self.data = data
        self.acl = acl
        self.owner = owner
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime = self.mtime = time_ms
        self.version = self.aversion = 0
        self.created = 0
        """Children ever made here: numbers the sequential ones."""
        self.children: dict[str, None] = {}

    def stat(self) -> Stat:
        """The Stat of the znode."""
        count = len(self.children)
        return Stat(
            self.czxid, self.mzxid, self.ctime, self.mtime, self.version, 2 * self.created - count, self.aversion,
            self.owner, len(self.data or b""), count, self.pzxid,
        )  # fmt: skip


class Tree:
    """The znodes as one server knows them."""

    def __init__(self) -> None:
        self.zxid = 0
        self.nodes: dict[str, Znode] = {path: Znode(b"", OPEN_ACL, 0, 0, 0) for path in ("/", *SYSTEM_ZNODES)}
        for path in SYSTEM_ZNODES:
            self.nodes[parent_of(path)].children[name_of(path)] = None
        self.nodes["/zookeeper/config"].acl, self.nodes["/zookeeper/config"].aversion = READ_ACL, -1
        self.ephemerals: dict[int, dict[str, None]] = {}

    def get(self, path: str) -> Znode | None:
        """The znode with this path, or None."""
        return self.nodes.get(path)

    def triggered_watches(self, change: Change) -> list[WatchTrigger]:
        """The watches that this change will trigger, in ZooKeeper's order."""
        path = change.path
        if isinstance(change, AclChange):
            return []
        if isinstance(change, SetChange):
            return [WatchTrigger(WatchEvent(EventType.DATA_CHANGED, path), self.nodes[path].acl)]
        parent = parent_of(path)
        children_changed = WatchTrigger(WatchEvent(EventType.CHILDREN_CHANGED, parent), self.nodes[parent].acl)
        if isinstance(change, CreateChange):
            return [WatchTrigger(WatchEvent(EventType.CREATED, path), change.acl), children_changed]
        return [WatchTrigger(WatchEvent(EventType.DELETED, path), self.nodes[path].acl), children_changed]

    def apply(self, change: Change, zxid: int, time_ms: int) -> Znode:
        """Apply a change; return the znode that was changed or removed."""
        path = change.path
        if isinstance(change, CreateChange):
            node = self.nodes[path] = Znode(change.data, change.acl, change.owner, zxid, time_ms)
            parent = self.nodes[parent_of(path)]
            parent.children[name_of(path)] = None
            parent.created += 1
            parent.pzxid = zxid
            if change.owner:
                self.ephemerals.setdefault(change.owner, {})[path] = None
            return node
        node = self.nodes[path]
        if isinstance(change, SetChange):
            node.data, node.version, node.mzxid, node.mtime = change.data, node.version + 1, zxid, time_ms
        elif isinstance(change, AclChange):
            node.acl, node.aversion = change.acl, node.aversion + 1
        else:
            del self.nodes[path]
            parent = self.nodes[parent_of(path)]
            del parent.children[name_of(path)]
            parent.pzxid = zxid
            if node.owner:
                self.ephemerals[node.owner].pop(path)
        return node

    def undo_function(self, change: Change) -> Callable[[], None]:
        """A function that reverts this change if it is the last one applied after this call."""
        path, node, parent = change.path, self.nodes.get(change.path), self.nodes[parent_of(change.path)]
        pzxid, created = parent.pzxid, parent.created
        before = (node.data, node.version, node.mzxid, node.mtime) if node else None

        def undo() -> None:
            """Restore the znode and its parent as they were when the function was made."""
            if node is None:
                owner = self.nodes.pop(path).owner
                del parent.children[name_of(path)]
                if owner:
                    self.ephemerals[owner].pop(path)
            else:
                self.nodes[path] = node
                if path != "/":
                    parent.children[name_of(path)] = None
                if node.owner:
                    self.ephemerals[node.owner][path] = None
                assert before is not None
                node.data, node.version, node.mzxid, node.mtime = before
            parent.pzxid, parent.created = pzxid, created

        return undo


def parent_of(path: str) -> str:
    """Return the path of the parent; `/` for a child of the root."""
    return path.rpartition("/")[0] or "/"


def name_of(path: str) -> str:
    """Return the last part of the path."""
    return path.rpartition("/")[2]
