"""The ZooKeeper client: what a session can be asked, as coroutines. Source: ZooKeeper.java, ZooKeeperClient.scala.

Every call waits while there is no connection and is sent again after one was lost, for ever, until the session is
closed or expires (Kafka retries CONNECTION_LOSS alone, and so does this). See `session` for what that means for writes.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from klamm.runtime.world import World
from klamm.zk import requests
from klamm.zk.acl import OPEN_ACL, Acl
from klamm.zk.bulk import BulkReads, value_of
from klamm.zk.errors import ConnectionLoss, NodeExists, NoNode, ZkCode, error_of
from klamm.zk.hosts import check_path, parse_hosts
from klamm.zk.jute import Stat
from klamm.zk.multi import multi
from klamm.zk.operations import ChildrenResult, Create, Delete, GetResult, Op, Result, Set
from klamm.zk.requests import Request
from klamm.zk.session import MAX_PACKET_BYTES, Session
from klamm.zk.states import ENDED, SessionState
from klamm.zk.transport import Driver
from klamm.zk.watches import WatchEvent

T = TypeVar("T")

_CLOSE_TIMEOUT_S: Final = 5.0


class ZooKeeper:
    """One session. After expiry, refused credentials or `close` it is finished: make a new one.

    `hosts` is `h1:2181,h2:2181/chroot`; `chroot`, where given, replaces the one in the text ("" for none). Set
    `on_watch` and `on_state` at will; they are called from the event loop, must not block and must not raise.
    A watch event is handed out before any answer that already reflects the change.
    """

    def __init__(
        self,
        world: World,
        hosts: str,
        session_timeout_ms: int,
        chroot: str | None = None,
        *,
        max_in_flight: int = 256,
        max_packet_bytes: int = MAX_PACKET_BYTES,
        auth: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        ensemble = parse_hosts(hosts)
        self._hosts = hosts
        self._chroot = (ensemble.chroot if chroot is None else chroot).rstrip("/")
        if self._chroot:
            check_path(self._chroot)
        self.on_watch: Callable[[WatchEvent], None] = lambda _: None
        self.on_state: Callable[[SessionState], None] = lambda _: None
        self._session = Session(
            ensemble.servers,
            session_timeout_ms,
            world.randomness.stream("zookeeper"),
            max_in_flight=max_in_flight,
            max_packet_bytes=max_packet_bytes,
            auth=auth,
        )
        self._driver = Driver(
            world, self._session, 2 * max_in_flight, self._take_event, lambda state: self.on_state(state)
        )
        self._bulk = BulkReads(self._driver, self._chroot)

    # ---- the session

    def on_latency_ms(self, observe: Callable[[float], None]) -> None:
        """`observe` hears of each request that is answered how many milliseconds after it was sent; must not raise."""
        self._driver.on_latency_ms = observe

    @property
    def session_id(self) -> int:
        """0 before the first connection."""
        return self._session.session_id

    @property
    def session_timeout_ms(self) -> int:
        """As asked for; after the first connection, as negotiated with the ensemble."""
        return self._session.timeout_ms

    @property
    def is_alive(self) -> bool:
        """Not expired, refused or closed; says nothing about being connected."""
        return not self._session.has_ended

    @property
    def seen_zxid(self) -> int:
        """The newest transaction that a server told of: whatever is read from now on is not older."""
        return self._session.last_zxid

    @property
    def server(self) -> str:
        """The server that the session is connected to, or that it tried last."""
        return str(self._session.server)

    async def connect(self, timeout_s: float) -> None:
        """Raises ConnectionLoss where no server gives a session in time; then, or when cancelled, it is finished."""
        self._driver.run()
        try:
            async with asyncio.timeout(timeout_s):
                await self._driver.decided.wait()
        except asyncio.CancelledError:
            self._give_up()
            raise
        except TimeoutError:
            self._give_up()
            why = self._session.last_failure or "no server has answered"
            detail = (
                f"no ZooKeeper session with {self._hosts} within {timeout_s:g} s ({why}). Check that ZooKeeper runs, "
                "and the address in zookeeper.connect or --zookeeper."
            )
            raise ConnectionLoss("", detail) from None
        if self._session.has_ended:
            raise error_of(ENDED[self._session.phase], "")

    async def close(self) -> None:
        """End the session after what was asked before; without a connection the ensemble ends it by its time-out."""
        self._session.close()
        self._driver.wake()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._driver.ended.wait()
        except TimeoutError:
            self._give_up()
            await self._driver.ended.wait()

    def _give_up(self) -> None:
        """Abort the session without waiting for the server."""
        self._session.abort()
        self._driver.wake()

    async def add_auth(self, scheme: str, credentials: bytes) -> None:
        """Present credentials now and after every reconnection. Raises AuthFailed, which ends the session."""
        value_of(await self._driver.add_auth(requests.auth(scheme, credentials)))

    # ---- one znode

    async def get(self, path: str, watch: bool = False) -> tuple[bytes | None, Stat]:
        """Raises NoNode."""
        return await self._ask(requests.get(self._checked(path), watch))

    async def exists(self, path: str, watch: bool = False) -> Stat | None:
        """None where there is no such znode; the watch then waits for its creation."""
        request = await self._driver.complete(requests.exists(self._checked(path), watch))
        return None if request.code is ZkCode.NO_NODE else value_of(request)

    async def children(self, path: str, watch: bool = False) -> tuple[list[str], Stat]:
        """Names in no particular order. Raises NoNode."""
        return await self._ask(requests.children(self._checked(path), watch))

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        acl: Sequence[Acl] = OPEN_ACL,
    ) -> tuple[str, Stat]:
        """The path as created (ten digits are appended where `sequential`). Raises NodeExists, NoNode (the parent)."""
        full = self._full(path) if sequential else self._checked(path)
        created, stat = await self._ask(requests.create(Create(full, data, ephemeral, sequential, acl)))
        return self._relative(created), stat

    async def set(self, path: str, data: bytes | None, version: int = -1) -> Stat:
        """Raises NoNode, BadVersion."""
        return await self._ask(requests.set_data(Set(self._checked(path), data, version)))

    async def delete(self, path: str, version: int = -1) -> None:
        """Raises NoNode, BadVersion, NotEmpty."""
        await self._ask(requests.delete(Delete(self._checked(path), version)))

    async def sync(self, path: str) -> None:
        """Have the server we are connected to catch up with the leader, so that a read that follows is fresh."""
        await self._ask(requests.sync(self._checked(path)))

    async def get_acl(self, path: str) -> tuple[list[Acl], Stat]:
        """Raises NoNode."""
        return await self._ask(requests.get_acl(self._checked(path)))

    async def set_acl(self, path: str, acl: Sequence[Acl], version: int = -1) -> Stat:
        """`version` is that of the ACL (`aversion`). Raises NoNode, BadVersion, InvalidAcl."""
        return await self._ask(requests.set_acl(self._checked(path), acl, version))

    async def ensure_path(self, path: str, acl: Sequence[Acl] = OPEN_ACL) -> None:
        """Create the znode and what is missing above it, with null data; one that exists is left as it is."""
        await self._ensure(self._checked(path), acl)

    async def ensure_paths(self, paths: Iterable[str]) -> None:
        """The same for many, in two round trips.

        What is there is asked first: most often that is all of it, and a refused write is a transaction, too.
        """
        wanted = list(dict.fromkeys(place for path in paths for place in _from_the_top(path)))
        found = await self._bulk.get_many(wanted, watch=False)
        missing = [self._full(r.path) for r in found if r.code is ZkCode.NO_NODE]
        for ended in await self._driver.complete_all([requests.create(Create(full, None)) for full in missing]):
            if ended.code is not ZkCode.NODE_EXISTS:
                value_of(ended)

    async def ensure_chroot(self, acl: Sequence[Acl] = OPEN_ACL) -> None:
        """Create the chroot itself, which no path under it can name."""
        if self._chroot:
            await self._ensure(self._chroot, acl)

    async def _ensure(self, full: str, acl: Sequence[Acl]) -> None:
        """Create this path and its missing parents; an existing znode is left as it is."""
        try:
            await self._ask(requests.create(Create(full, None, acl=acl)))
        except NodeExists:
            return
        except NoNode:
            await self._ensure(full.rpartition("/")[0], acl)
            await self._ensure(full, acl)

    # ---- many at once

    async def multi(self, operations: Sequence[Op]) -> list[Result]:
        """All of them or none, in order; a refusal is data, see `Result`.

        Raises RequestTooLarge beyond the packet limit; a server's own limit is 1 MiB unless it is told otherwise.
        """
        if not operations:
            return []
        results = await self._ask(multi(operations, self._chroot, operations[0].path))
        if not self._chroot:
            return results
        return [r if r.path is None else r._replace(path=self._relative(r.path)) for r in results]

    async def get_many(self, paths: Sequence[str], watch: bool = False) -> list[GetResult]:
        """Data and stat of each, in order; refusals (NO_NODE, NO_AUTH) are data."""
        return await self._bulk.get_many(paths, watch)

    async def children_many(self, paths: Sequence[str], watch: bool = False) -> list[ChildrenResult]:
        """Children of each, in order; refusals are data."""
        return await self._bulk.children_many(paths, watch)

    async def exists_many(self, paths: Sequence[str], watch: bool = False) -> list[Stat | None]:
        """Stat of each, in order, None where there is none."""
        return await self._bulk.exists_many(paths, watch)

    # ---- inside

    async def _ask(self, request: Request[T]) -> T:
        """Send the request, and return its value or raise its ZooKeeper error."""
        return value_of(await self._driver.complete(request))

    def _checked(self, path: str) -> str:
        """The full path of a valid path; raises WrongPath for an invalid one."""
        check_path(path)
        return self._full(path)

    def _full(self, path: str) -> str:
        """The path with the chroot in front."""
        if path == "/":
            return self._chroot or path
        return self._chroot + path

    def _relative(self, full: str) -> str:
        """The path without the chroot."""
        return full.removeprefix(self._chroot) or "/"

    def _take_event(self, event: WatchEvent) -> None:
        """Pass a watch event to the owner, with its path relative to the chroot."""
        self.on_watch(WatchEvent(event.type, self._relative(event.path)) if self._chroot else event)


def _from_the_top(path: str) -> list[str]:
    """What is above it, and itself at last."""
    check_path(path)
    ends = [i for i, letter in enumerate(path) if letter == "/" and i]
    return [*(path[:end] for end in ends), path]
