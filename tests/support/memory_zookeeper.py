"""ZooKeeper in memory, for tests of code above the ZooKeeper client; no wire protocol."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from klamm.runtime.randomness import Rng
from klamm.sim.zookeeper.ensemble import Ensemble, SessionRecord
from klamm.sim.zookeeper.tree import Transaction, Tree, Znode
from klamm.sim.zookeeper.watchers import Watchers
from klamm.zk.acl import OPEN_ACL, Acl
from klamm.zk.errors import NoAuth, SessionExpired, Unimplemented, ZkCode, error_of
from klamm.zk.jute import Stat
from klamm.zk.operations import ChildrenResult, Create, Delete, GetResult, Op, Result, Set
from klamm.zk.states import SessionState
from klamm.zk.watches import WatchEvent


class _NoTime:
    def now_ms(self) -> int:
        return 0


class MemoryEnsemble:
    """A ZooKeeper server with its sessions, which applies every write at once."""

    is_up = True
    is_cut_off = False

    def __init__(self) -> None:
        self._ensemble = Ensemble(_NoTime(), Rng(0))
        self._ensemble.join(self)
        self._tree = Tree()
        self.watchers: Watchers[MemoryZooKeeper] = Watchers()
        self.before_multi: Callable[[Sequence[Op]], None] = lambda ops: None
        """Called before each multi is carried out: a place for someone else to be faster."""
        self.multis: list[list[Op]] = []
        self.unreadable: set[str] = set()
        """Paths that an ACL forbids to read, one by one."""
        self.unwritable: set[str] = set()
        """Paths that an ACL forbids to create, change or delete."""
        self.refuses_subtree_watches = False
        """As a server before 3.6."""
        self._next_session = 0x100

    @property
    def nodes(self) -> Mapping[str, Znode]:
        return self._tree.nodes

    @property
    def tree(self) -> Tree:
        return self._tree

    @property
    def zxid(self) -> int:
        return self._tree.zxid

    def client(self) -> "MemoryZooKeeper":
        self._next_session += 1
        self._ensemble.sessions[self._next_session] = SessionRecord(self._next_session, 0, b"")
        return MemoryZooKeeper(self, self._next_session)

    def expire(self, client: "MemoryZooKeeper") -> None:
        client.is_alive = False
        self.watchers.forget(client)
        self._ensemble.end_session(client.session_id)

    def apply(self, ops: Sequence[Op], session: int = 0) -> list[Result]:
        """Apply these operations, all or none."""
        for number, op in enumerate(ops if session else ()):
            if op.path in self.unwritable:
                return self._ensemble.refuse(session, ops, number)[1]
        return self._ensemble.write(session, ops, ())[1]

    # ---- for the model

    def receive_transaction(self, transaction: Transaction) -> None:
        """Apply a transaction and trigger its watches."""
        self._tree.zxid = transaction.zxid
        for change in transaction.changes:
            fired = self._tree.triggered_watches(change)
            self._tree.apply(change, transaction.zxid, transaction.time_ms)
            for event, _ in fired:
                for client in self.watchers.fire(event):
                    client.on_watch(event)

    def on_leader_reachable(self) -> None:
        """Does nothing: this server is never behind."""

    def on_leader_lost(self) -> None:
        """Does nothing: this server never loses its leader."""


class MemoryZooKeeper:
    """A session of a `MemoryEnsemble`; implements `ZooKeeperClient`."""

    def __init__(self, ensemble: MemoryEnsemble, session_id: int) -> None:
        self.ensemble = ensemble
        self.session_id = session_id
        self.is_alive = True
        self.on_watch: Callable[[WatchEvent], None] = lambda _: None
        self.on_state: Callable[[SessionState], None] = lambda _: None
        self.session_timeout_ms = 18_000
        self.server = "in memory"
        self.last_seen_zxid: int | None = None  # None: this client has seen every write

    @property
    def seen_zxid(self) -> int:
        return self.ensemble.zxid if self.last_seen_zxid is None else self.last_seen_zxid

    @property
    def data_watches(self) -> frozenset[str]:
        return frozenset(self.ensemble.watchers.paths_of(self)[0])

    @property
    def child_watches(self) -> frozenset[str]:
        return frozenset(self.ensemble.watchers.paths_of(self)[1])

    def drop_data_watch(self, path: str) -> None:
        """Remove the data watch on a path, as if its event were still on its way."""
        self.ensemble.watchers.data.get(path, {}).pop(self, None)

    async def _next_pass(self) -> None:
        """Wait for the next pass of the event loop, as a real request does."""
        await asyncio.sleep(0)
        if not self.is_alive:
            raise SessionExpired("")

    async def watch_subtree(self, path: str) -> None:
        await self._next_pass()
        if self.ensemble.refuses_subtree_watches:
            raise Unimplemented(path)
        self.ensemble.watchers.watch_subtree(path, self)

    async def close(self) -> None:
        self.ensemble.expire(self)
        self.on_state(SessionState.CLOSED)

    async def get(self, path: str, watch: bool = False) -> tuple[bytes | None, Stat]:
        await self._next_pass()
        node = self._node(path)
        if watch:
            self.ensemble.watchers.watch_data(path, self)
        return node.data, node.stat()

    async def exists(self, path: str, watch: bool = False) -> Stat | None:
        [found] = await self.exists_many([path], watch)
        return found

    async def exists_many(self, paths: Sequence[str], watch: bool = False) -> list[Stat | None]:
        await self._next_pass()
        if hidden := [path for path in paths if path in self.ensemble.unreadable]:
            raise NoAuth(hidden[0])
        for path in paths if watch else ():
            self.ensemble.watchers.watch_data(path, self)
        found = [self.ensemble.nodes.get(p) for p in paths]
        return [node.stat() if node else None for node in found]

    async def children(self, path: str, watch: bool = False) -> tuple[list[str], Stat]:
        await self._next_pass()
        node = self._node(path)
        if watch:
            self.ensemble.watchers.watch_children(path, self)
        return list(node.children), node.stat()

    async def create(
        self, path: str, data: bytes | None, *, ephemeral: bool = False, sequential: bool = False,
        acl: Sequence[Acl] = OPEN_ACL,
    ) -> tuple[str, Stat]:  # fmt: skip
        result = await self._apply_one(Create(path, data, ephemeral, sequential, acl))
        return result.path or path, _stat(result)

    async def set(self, path: str, data: bytes | None, version: int = -1) -> Stat:
        return _stat(await self._apply_one(Set(path, data, version)))

    async def delete(self, path: str, version: int = -1) -> None:
        await self._apply_one(Delete(path, version))

    async def ensure_path(self, path: str, acl: Sequence[Acl] = OPEN_ACL) -> None:
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            if await self.exists("/" + "/".join(parts[:depth])) is None:
                await self.create("/" + "/".join(parts[:depth]), None)

    async def ensure_paths(self, paths: Iterable[str]) -> None:
        for path in paths:
            await self.ensure_path(path)

    async def ensure_chroot(self, acl: Sequence[Acl] = OPEN_ACL) -> None:
        return

    async def sync(self, path: str) -> None:
        """Does nothing: this server is never behind."""
        await self._next_pass()

    async def multi(self, operations: Sequence[Op]) -> list[Result]:
        await self._next_pass()
        self.ensemble.before_multi(operations)
        await self._next_pass()
        results = self.ensemble.apply(operations, self.session_id)
        if all(r.code is ZkCode.OK for r in results):
            self.ensemble.multis.append(list(operations))
        return results

    async def get_many(self, paths: Sequence[str], watch: bool = False) -> list[GetResult]:
        await self._next_pass()
        results = []
        for path in paths:
            node = self.ensemble.nodes.get(path)
            if node is None:
                results.append(GetResult(path, ZkCode.NO_NODE, None, None))
                continue
            if path in self.ensemble.unreadable:
                results.append(GetResult(path, ZkCode.NO_AUTH, None, None))
                continue
            if watch:
                self.ensemble.watchers.watch_data(path, self)
            results.append(GetResult(path, ZkCode.OK, node.data, node.stat()))
        return results

    async def children_many(self, paths: Sequence[str], watch: bool = False) -> list[ChildrenResult]:
        await self._next_pass()
        found = [self.ensemble.nodes.get(p) for p in paths]
        for path in (p for p, node in zip(paths, found, strict=True) if node and watch):
            self.ensemble.watchers.watch_children(path, self)
        hidden = self.ensemble.unreadable
        return [
            ChildrenResult(p, ZkCode.NO_AUTH, [])
            if node and p in hidden
            else ChildrenResult(p, ZkCode.OK if node else ZkCode.NO_NODE, list(node.children) if node else [])
            for p, node in zip(paths, found, strict=True)
        ]

    async def _apply_one(self, op: Op) -> Result:
        """Apply one operation. Raises ZkError."""
        await self._next_pass()
        [result] = self.ensemble.apply([op], self.session_id)
        if result.code is not ZkCode.OK:
            raise error_of(result.code, op.path)
        return result

    def _node(self, path: str) -> Znode:
        """The znode with this path. Raises ZkError."""
        if path in self.ensemble.unreadable:
            raise error_of(ZkCode.NO_AUTH, path)
        node = self.ensemble.nodes.get(path)
        if node is None:
            raise error_of(ZkCode.NO_NODE, path)
        return node


def _stat(result: Result) -> Stat:
    assert result.stat is not None
    return result.stat
