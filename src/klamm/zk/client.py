"""The ZooKeeper client: coroutines that send requests in a session. Source: ZooKeeper.java, ZooKeeperClient.scala.

Every call waits while there is no connection, and is sent again after a connection was lost, until the session is
closed or expires. As in Kafka, no other error is retried. What this means for writes is described in `session`.
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
"""How long `close` waits for the server."""


class ZooKeeper:
    """One session. It cannot be used again after expiry, refused credentials or `close`: make a new one.

    `hosts` is `h1:2181,h2:2181/chroot`; `chroot`, if given, replaces the one in `hosts` ("" for none). `on_watch` and
    `on_state` may be set at any time; they are called from the event loop, must not block and must not raise. A watch
    event is delivered before any answer that already reflects the change.
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
            world, self._session, 2 * max_in_flight, self._forward_event, lambda state: self.on_state(state)
        )
        self._bulk = BulkReads(self._driver, self._chroot)

    # ---- the session

    def on_latency_ms(self, observe: Callable[[float], None]) -> None:
        """Call `observe` with the time in ms from sending each answered request to its answer; it must not raise."""
        self._driver.on_latency_ms = observe

    @property
    def session_id(self) -> int:
        """The session's id; 0 before the first connection."""
        return self._session.session_id

    @property
    def session_password(self) -> bytes:
        """The secret with which another connection attaches to the session; empty before the first connection."""
        return self._session.password

    @property
    def session_timeout_ms(self) -> int:
        """The requested session timeout; after the first connection the negotiated one."""
        return self._session.timeout_ms

    @property
    def is_alive(self) -> bool:
        """Whether the session has not expired, been refused or closed; it may be disconnected."""
        return not self._session.has_ended

    @property
    def is_close_confirmed(self) -> bool:
        """Whether a server answered `close`; otherwise the ensemble may keep the session until its timeout."""
        return self._session.is_close_confirmed

    @property
    def seen_zxid(self) -> int:
        """The newest transaction id that a server reported; later reads are not older."""
        return self._session.last_zxid

    @property
    def server(self) -> str:
        """The server that the session is connected to, or that it tried last."""
        return str(self._session.server)

    async def connect(self, timeout_s: float) -> None:
        """Wait for the first connection. Raises ConnectionLoss after `timeout_s`.

        After a failure or a cancellation the session cannot be used.
        """
        self._driver.run()
        try:
            async with asyncio.timeout(timeout_s):
                await self._driver.decided.wait()
        except asyncio.CancelledError:
            self._abort_session()
            raise
        except TimeoutError:
            self._abort_session()
            why = self._session.last_failure or "no server has answered"
            detail = (
                f"no ZooKeeper session with {self._hosts} within {timeout_s:g} s ({why}). Check that ZooKeeper runs, "
                "and the address in zookeeper.connect or --zookeeper"
            )
            raise ConnectionLoss("", detail) from None
        if self._session.has_ended:
            raise error_of(ENDED[self._session.phase], "")

    async def close(self) -> None:
        """End the session after the requests sent before; without a connection, the ensemble ends it by its timeout."""
        self._session.close()
        self._driver.wake()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._driver.ended.wait()
        except TimeoutError:
            self._abort_session()
            await self._driver.ended.wait()

    def _abort_session(self) -> None:
        """Abort the session without waiting for the server."""
        self._session.abort()
        self._driver.wake()

    async def add_auth(self, scheme: str, credentials: bytes) -> None:
        """Present credentials now and after every reconnection. Raises AuthFailed, which ends the session."""
        value_of(await self._driver.add_auth(requests.auth(scheme, credentials)))

    # ---- one znode

    async def get(self, path: str, watch: bool = False) -> tuple[bytes | None, Stat]:
        """Data and stat of a znode. Raises NoNode."""
        return await self._send_and_wait(requests.get(self._checked_full_path(path), watch))

    async def exists(self, path: str, watch: bool = False) -> Stat | None:
        """The stat of a znode, or None if it does not exist; then the watch fires when it is created."""
        request = await self._driver.complete(requests.exists(self._checked_full_path(path), watch))
        return None if request.code is ZkCode.NO_NODE else value_of(request)

    async def children(self, path: str, watch: bool = False) -> tuple[list[str], Stat]:
        """The names of a znode's children, in no particular order, and its stat. Raises NoNode."""
        return await self._send_and_wait(requests.children(self._checked_full_path(path), watch))

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        acl: Sequence[Acl] = OPEN_ACL,
    ) -> tuple[str, Stat]:
        """Create a znode; returns its path, with ten digits added if `sequential`.

        Raises NodeExists, NoNode (of the parent).
        """
        full = self._full_path(path) if sequential else self._checked_full_path(path)
        created, stat = await self._send_and_wait(requests.create(Create(full, data, ephemeral, sequential, acl)))
        return self._relative_path(created), stat

    async def set(self, path: str, data: bytes | None, version: int = -1) -> Stat:
        """Write data, if `version` is -1 or the znode's version. Raises NoNode, BadVersion."""
        return await self._send_and_wait(requests.set_data(Set(self._checked_full_path(path), data, version)))

    async def delete(self, path: str, version: int = -1) -> None:
        """Delete a znode, if `version` is -1 or its version. Raises NoNode, BadVersion, NotEmpty."""
        await self._send_and_wait(requests.delete(Delete(self._checked_full_path(path), version)))

    async def sync(self, path: str) -> None:
        """Let the connected server catch up with the leader, so that a following read is up to date."""
        await self._send_and_wait(requests.sync(self._checked_full_path(path)))

    async def watch_subtree(self, path: str) -> None:
        """Watch a znode and all znodes below it: created, deleted and changed ones, until the connection ends.

        Nothing restores the watch on another connection: what changed in between would be missing. Its owner reads
        everything again after `SessionState.DISCONNECTED`. Raises Unimplemented before ZooKeeper 3.6, which also ends
        the connection.
        """
        await self._send_and_wait(requests.watch_subtree(self._checked_full_path(path)))

    async def get_acl(self, path: str) -> tuple[list[Acl], Stat]:
        """The ACL of a znode, and its stat. Raises NoNode."""
        return await self._send_and_wait(requests.get_acl(self._checked_full_path(path)))

    async def set_acl(self, path: str, acl: Sequence[Acl], version: int = -1) -> Stat:
        """Write an ACL; `version` is the ACL's (`aversion`). Raises NoNode, BadVersion, InvalidAcl."""
        return await self._send_and_wait(requests.set_acl(self._checked_full_path(path), acl, version))

    async def ensure_path(self, path: str, acl: Sequence[Acl] = OPEN_ACL) -> None:
        """Create the znode and its missing parents, with null data; existing znodes are not changed."""
        await self._ensure(self._checked_full_path(path), acl)

    async def ensure_paths(self, paths: Iterable[str]) -> None:
        """Like `ensure_path` for many znodes, in two round trips.

        Existing znodes are read first: mostly all exist, and each refused create would be a transaction.
        """
        wanted = list(dict.fromkeys(place for path in paths for place in _ancestors_and_self(path)))
        found = await self._bulk.get_many(wanted, watch=False)
        missing = [self._full_path(r.path) for r in found if r.code is ZkCode.NO_NODE]
        for ended in await self._driver.complete_all([requests.create(Create(full, None)) for full in missing]):
            if ended.code is not ZkCode.NODE_EXISTS:
                value_of(ended)

    async def ensure_chroot(self, acl: Sequence[Acl] = OPEN_ACL) -> None:
        """Create the znode of the chroot, which no path below it can name, unless it exists.

        It is looked for first: where an ACL protects the parent, ZooKeeper refuses the creation of what exists, too
        (KAFKA-12866).
        """
        if not self._chroot:
            return
        found = await self._driver.complete(requests.exists(self._chroot, watch=False))
        if found.code is ZkCode.NO_NODE:
            await self._ensure(self._chroot, acl)
        else:
            value_of(found)

    async def _ensure(self, full: str, acl: Sequence[Acl]) -> None:
        """Create this full path and its missing parents; existing znodes stay as they are."""
        try:
            await self._send_and_wait(requests.create(Create(full, None, acl=acl)))
        except NodeExists:
            return
        except NoNode:
            await self._ensure(full.rpartition("/")[0], acl)
            await self._ensure(full, acl)

    # ---- many at once

    async def multi(self, operations: Sequence[Op]) -> list[Result]:
        """Apply all operations or none, in order; a refusal is returned, see `Result`.

        Raises RequestTooLarge above the packet limit. A server's own limit is 1 MiB by default.
        """
        if not operations:
            return []
        results = await self._send_and_wait(multi(operations, self._chroot, operations[0].path))
        if not self._chroot:
            return results
        return [r if r.path is None else r._replace(path=self._relative_path(r.path)) for r in results]

    async def get_many(self, paths: Sequence[str], watch: bool = False) -> list[GetResult]:
        """Data and stat of each path, in order; error codes (NO_NODE, NO_AUTH) are part of the results."""
        return await self._bulk.get_many(paths, watch)

    async def children_many(self, paths: Sequence[str], watch: bool = False) -> list[ChildrenResult]:
        """The children of each path, in order; error codes are part of the results."""
        return await self._bulk.children_many(paths, watch)

    async def exists_many(self, paths: Sequence[str], watch: bool = False) -> list[Stat | None]:
        """The stat of each path, in order; None where there is no znode."""
        return await self._bulk.exists_many(paths, watch)

    # ---- inside

    async def _send_and_wait(self, request: Request[T]) -> T:
        """Send the request, and return its value or raise its ZooKeeper error."""
        return value_of(await self._driver.complete(request))

    def _checked_full_path(self, path: str) -> str:
        """The path with the chroot in front. Raises WrongPath for an invalid path."""
        check_path(path)
        return self._full_path(path)

    def _full_path(self, path: str) -> str:
        """The path with the chroot in front."""
        if path == "/":
            return self._chroot or path
        return self._chroot + path

    def _relative_path(self, full: str) -> str:
        """The path without the chroot."""
        return full.removeprefix(self._chroot) or "/"

    def _forward_event(self, event: WatchEvent) -> None:
        """Pass a watch event to `on_watch`, with its path relative to the chroot."""
        self.on_watch(WatchEvent(event.type, self._relative_path(event.path)) if self._chroot else event)


def _ancestors_and_self(path: str) -> list[str]:
    """The paths of all parents, the topmost first, and then the path itself."""
    check_path(path)
    ends = [i for i, letter in enumerate(path) if letter == "/" and i]
    return [*(path[:end] for end in ends), path]
