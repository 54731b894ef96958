"""ZooKeeper in memory, with the client's own interface: znodes, versions, sessions, one-shot watches, multi.

For tests of what stands above the client. The client itself is tested against a real server.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from klamm.zk.acl import OPEN_ACL, Acl
from klamm.zk.errors import SessionExpired, ZkCode, error_of
from klamm.zk.jute import Stat
from klamm.zk.operations import Check, ChildrenResult, Create, Delete, GetResult, Op, Result, Set
from klamm.zk.watches import EventType, WatchEvent


@dataclass
class Node:
    data: bytes | None
    czxid: int
    mzxid: int
    owner: int
    version: int = 0
    created: int = 0  # children ever, for sequence numbers
    children: dict[str, None] = field(default_factory=dict)


class MemoryEnsemble:
    """The tree, and every session on it."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {"/": Node(None, 0, 0, 0)}
        self.zxid = 0
        self.sessions: dict[int, MemoryZooKeeper] = {}
        self.before_multi: Callable[[Sequence[Op]], None] = lambda ops: None
        """Called before each multi is carried out: a place for someone else to be faster."""
        self.multis: list[list[Op]] = []
        self._next_session = 0x100

    def client(self) -> "MemoryZooKeeper":
        self._next_session += 1
        client = self.sessions[self._next_session] = MemoryZooKeeper(self, self._next_session)
        return client

    def expire(self, client: "MemoryZooKeeper") -> None:
        client.is_alive = False
        self.sessions.pop(client.session_id, None)
        for path in [p for p, n in self.nodes.items() if n.owner == client.session_id]:
            self.apply([Delete(path)])

    # ---- what one session asks, others see

    def apply(self, ops: Sequence[Op], session: int = 0) -> list[Result]:
        """All or none."""
        before = {p: Node(n.data, n.czxid, n.mzxid, n.owner, n.version, n.created, dict(n.children)) for p, n in
                  self.nodes.items()} if len(ops) > 1 else None  # fmt: skip
        self.zxid += 1
        results: list[Result] = []
        fired: list[WatchEvent] = []
        for index, op in enumerate(ops):
            code, result = self._one(op, session, fired)
            if code is not ZkCode.OK:
                if before is not None:
                    self.nodes = before
                rest = [Result(ZkCode.RUNTIME_INCONSISTENCY)] * (len(ops) - index - 1)
                return [Result(ZkCode.OK)] * index + [Result(code)] + rest
            results.append(result)
        for event in fired:
            for client in list(self.sessions.values()):
                client.fire(event)
        return results

    def _one(self, op: Op, session: int, fired: list[WatchEvent]) -> tuple[ZkCode, Result]:
        node = self.nodes.get(op.path)
        if isinstance(op, Create):
            return self._create(op, session, fired)
        if node is None:
            return ZkCode.NO_NODE, Result(ZkCode.NO_NODE)
        if op.version not in (-1, node.version):
            return ZkCode.BAD_VERSION, Result(ZkCode.BAD_VERSION)
        if isinstance(op, Check):
            return ZkCode.OK, Result(ZkCode.OK)
        if isinstance(op, Set):
            node.data, node.version, node.mzxid = op.data, node.version + 1, self.zxid
            fired.append(WatchEvent(EventType.DATA_CHANGED, op.path))
            return ZkCode.OK, Result(ZkCode.OK, stat=self.stat(node))
        if node.children:
            return ZkCode.NOT_EMPTY, Result(ZkCode.NOT_EMPTY)
        parent = _parent(op.path)
        del self.nodes[op.path]
        self.nodes[parent].children.pop(op.path.rpartition("/")[2])
        fired += [WatchEvent(EventType.DELETED, op.path), WatchEvent(EventType.CHILDREN_CHANGED, parent)]
        return ZkCode.OK, Result(ZkCode.OK)

    def _create(self, op: Create, session: int, fired: list[WatchEvent]) -> tuple[ZkCode, Result]:
        parent = self.nodes.get(_parent(op.path))
        if parent is None:
            return ZkCode.NO_NODE, Result(ZkCode.NO_NODE)
        path = f"{op.path}{parent.created:010}" if op.sequential else op.path
        if path in self.nodes:
            return ZkCode.NODE_EXISTS, Result(ZkCode.NODE_EXISTS)
        node = self.nodes[path] = Node(op.data, self.zxid, self.zxid, session if op.ephemeral else 0)
        parent.children[path.rpartition("/")[2]] = None
        parent.created += 1
        fired += [WatchEvent(EventType.CREATED, path), WatchEvent(EventType.CHILDREN_CHANGED, _parent(path))]
        return ZkCode.OK, Result(ZkCode.OK, path, self.stat(node))

    @staticmethod
    def stat(node: Node) -> Stat:
        size = len(node.data or b"")
        return Stat(
            node.czxid, node.mzxid, 0, 0, node.version, node.created, 0, node.owner, size, len(node.children), 0
        )


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class MemoryZooKeeper:
    """One session; the methods of `klamm.zk.client.ZooKeeper` that the store uses."""

    def __init__(self, ensemble: MemoryEnsemble, session_id: int) -> None:
        self.ensemble = ensemble
        self.session_id = session_id
        self.is_alive = True
        self.on_watch: Callable[[WatchEvent], None] = lambda _: None
        self.data_watches: set[str] = set()
        self.child_watches: set[str] = set()

    def fire(self, event: WatchEvent) -> None:
        watches = self.child_watches if event.type is EventType.CHILDREN_CHANGED else self.data_watches
        if event.path in watches:
            watches.discard(event.path)
            self.on_watch(event)

    async def _turn(self) -> None:
        await asyncio.sleep(0)
        if not self.is_alive:
            raise SessionExpired("")

    async def get(self, path: str, watch: bool = False) -> tuple[bytes | None, Stat]:
        await self._turn()
        node = self._node(path)
        if watch:
            self.data_watches.add(path)
        return node.data, self.ensemble.stat(node)

    async def exists(self, path: str, watch: bool = False) -> Stat | None:
        await self._turn()
        if watch:
            self.data_watches.add(path)
        node = self.ensemble.nodes.get(path)
        return self.ensemble.stat(node) if node else None

    async def children(self, path: str, watch: bool = False) -> tuple[list[str], Stat]:
        await self._turn()
        node = self._node(path)
        if watch:
            self.child_watches.add(path)
        return list(node.children), self.ensemble.stat(node)

    async def create(
        self, path: str, data: bytes | None, *, ephemeral: bool = False, sequential: bool = False,
        acl: Sequence[Acl] = OPEN_ACL,
    ) -> tuple[str, Stat]:  # fmt: skip
        result = await self._single(Create(path, data, ephemeral, sequential, acl))
        return result.path or path, _stat(result)

    async def set(self, path: str, data: bytes | None, version: int = -1) -> Stat:
        return _stat(await self._single(Set(path, data, version)))

    async def delete(self, path: str, version: int = -1) -> None:
        await self._single(Delete(path, version))

    async def ensure_path(self, path: str, acl: Sequence[Acl] = OPEN_ACL) -> None:
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            if await self.exists("/" + "/".join(parts[:depth])) is None:
                await self.create("/" + "/".join(parts[:depth]), None)

    async def ensure_chroot(self, acl: Sequence[Acl] = OPEN_ACL) -> None:
        return

    async def multi(self, operations: Sequence[Op]) -> list[Result]:
        await self._turn()
        self.ensemble.before_multi(operations)
        await self._turn()
        results = self.ensemble.apply(operations, self.session_id)
        if all(r.code is ZkCode.OK for r in results):
            self.ensemble.multis.append(list(operations))
        return results

    async def get_many(self, paths: Sequence[str], watch: bool = False) -> list[GetResult]:
        await self._turn()
        results = []
        for path in paths:
            node = self.ensemble.nodes.get(path)
            if node is None:
                results.append(GetResult(path, ZkCode.NO_NODE, None, None))
                continue
            if watch:
                self.data_watches.add(path)
            results.append(GetResult(path, ZkCode.OK, node.data, self.ensemble.stat(node)))
        return results

    async def exists_many(self, paths: Sequence[str], watch: bool = False) -> list[Stat | None]:
        return [await self.exists(p, watch) for p in paths]

    async def children_many(self, paths: Sequence[str], watch: bool = False) -> list[ChildrenResult]:
        await self._turn()
        found = [self.ensemble.nodes.get(p) for p in paths]
        return [
            ChildrenResult(p, ZkCode.OK if node else ZkCode.NO_NODE, list(node.children) if node else [])
            for p, node in zip(paths, found, strict=True)
        ]

    async def _single(self, op: Op) -> Result:
        await self._turn()
        [result] = self.ensemble.apply([op], self.session_id)
        if result.code is not ZkCode.OK:
            raise error_of(result.code, op.path)
        return result

    def _node(self, path: str) -> Node:
        node = self.ensemble.nodes.get(path)
        if node is None:
            raise error_of(ZkCode.NO_NODE, path)
        return node


def _stat(result: Result) -> Stat:
    assert result.stat is not None
    return result.stat
