"""Three model servers answer as three real ones: sessions that move, a lost quorum, restarts."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, Final, Protocol

import pytest
from tests.support import zookeeper
from tests.support.zookeeper_sequences import body_of
from tests.support.zookeeper_wire import connect_frame, request_frame

from klamm.embedded.zookeeper import QUICK
from klamm.runtime.clock import RealClock
from klamm.runtime.network import RealNetwork
from klamm.runtime.randomness import Rng
from klamm.sim.zookeeper.ensemble import Ensemble, EnsembleSettings
from klamm.sim.zookeeper.server import Server
from klamm.zk import jute
from klamm.zk.operations import Create
from klamm.zk.requests import Opcode

LIMIT_S: Final = 60.0
_XIDS: Final = count(1)
"""For all connections: a server of ZooKeeper ends itself if two requests of a session have one xid at two servers.

Its CommitProcessor takes the commit of the one for that of the other, and loses a zxid.
"""


class Three(Protocol):
    """Servers 0, 1 and 2, of which 0 leads at first."""

    ports: list[int]

    async def stop(self, *servers: int) -> None: ...
    async def start(self, *servers: int) -> None: ...


class RealThree:
    def __init__(self, ensemble: zookeeper.Ensemble) -> None:
        self._servers = [ensemble.leader, *ensemble.followers]
        self.ports = [s.port for s in self._servers]

    async def stop(self, *servers: int) -> None:
        for number in servers:
            self._servers[number].kill()

    async def start(self, *servers: int) -> None:
        for number in servers:
            self._servers[number].start(wait=False)


class ModelThree:
    def __init__(self) -> None:
        quick = QUICK
        settings = EnsembleSettings(quick.tick_ms, quick.min_session_ms, quick.max_session_ms)
        self.ensemble = Ensemble(RealClock(), Rng("three"), settings)
        self._servers = [Server(self.ensemble) for _ in range(3)]
        self.ports: list[int] = []

    async def open(self) -> None:
        self.ensemble.start()
        self._listeners = [await s.listen(RealNetwork(), "127.0.0.1", 0) for s in self._servers]
        self.ports = [listener.port for listener in self._listeners]

    async def close(self) -> None:
        self.ensemble.stop()
        for listener in self._listeners:
            await listener.close()

    async def stop(self, *servers: int) -> None:
        for number in servers:
            self._servers[number].stop()

    async def start(self, *servers: int) -> None:
        for number in servers:
            self._servers[number].start()


class Raw:
    """A connection without a client."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.id, self.password, self.last_zxid = 0, bytes(16), 0
        self.events: list[tuple[int, str]] = []

    async def open_session(
        self, earlier: "Raw | None" = None, ahead: int = 0, password: bytes = b"", timeout_ms: int = 60_000
    ) -> str:
        """Open a session, or reconnect to that of an earlier connection."""
        known = earlier or self
        self.last_zxid = known.last_zxid
        try:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
            frame = connect_frame(known.id, password or known.password, known.last_zxid + ahead, timeout_ms)
            self._writer.write(frame)
            answer = await self._frame()
        except OSError:
            answer = None
        if answer is None:
            return "turned away"
        _, _, session = struct.unpack_from(">iiq", answer)
        was, self.id, self.password = known.id, session, answer[20:36]
        return "expired" if not session else "same session" if session == was else "new session"

    async def ask(self, opcode: int, body: bytes, xid: int | None = None) -> str:
        if self._writer.is_closing():
            return "closed"
        self._writer.write(request_frame(next(_XIDS) if xid is None else xid, opcode, body))
        while (frame := await self._frame()) is not None:
            answers, zxid, code = struct.unpack_from(">iqi", frame)
            if answers != -1:
                self.last_zxid = max(self.last_zxid, zxid)
                return f"answered {code}"
            reader = jute.Reader(frame, 16)
            kind, _, path = reader.int32(), reader.int32(), reader.text()
            self.events.append((kind, path))
        return "closed"

    async def create(self, path: str, ephemeral: bool = False) -> str:
        return await self.ask(Opcode.CREATE2, body_of(Create(path, b"", ephemeral)))

    async def exists(self, path: str, watch: bool = False) -> str:
        return await self.ask(Opcode.EXISTS, jute.text(path) + bytes([watch]))

    async def sync(self) -> str:
        return await self.ask(Opcode.SYNC, jute.text("/"))

    async def _frame(self) -> bytes | None:
        try:
            async with asyncio.timeout(LIMIT_S):
                (size,) = struct.unpack(">i", await self._reader.readexactly(4))
                return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, OSError):
            return None

    def close(self) -> None:
        self._writer.close()


async def wait_for(expected: str, attempt: Callable[[], Awaitable[str]]) -> str:
    """Repeat the attempt until it returns `expected`: elections take time."""
    async with asyncio.timeout(LIMIT_S):
        while (found := await attempt()) != expected:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return found


Record = Callable[..., None]
"""Notes what was done and what the servers answered."""


async def run_scenario(three: Three) -> list[Any]:
    """What clients see while sessions move between the servers, and while servers stop and start."""
    seen: list[Any] = []

    def record(what: str, *answers: Any) -> None:
        seen.append((what, *answers))

    leader, first, second = three.ports
    other = Raw(second)
    record("a second client", await other.open_session())
    at = {leader: Raw(leader), first: Raw(first), second: other}
    record("one at each of the others", await at[leader].open_session(), await at[first].open_session())
    await move_a_session("follower", first, three, at, record)
    await move_a_session("leader", leader, three, at, record)
    await lose_servers(three, record)
    return seen


async def move_a_session(where: str, port: int, three: Three, at: dict[int, Raw], record: Record) -> None:
    """Open a session at one server, reconnect to it at others with its watches, and close it."""
    leader, first, second = three.ports
    other, path = at[second], f"/{where}"

    async def sync_server(port: int) -> int:
        """Return the port after its server has applied all writes: it rejects clients that have seen more."""
        await at[port].sync()
        return port

    early, late = Raw(port), Raw(second)
    record(f"a session at the {where}", await early.open_session(), await early.create(path, True))
    record("watches", await early.exists(path, True), await early.exists(f"{path}-new", True))
    await sync_server(second)
    record("it moves", await late.open_session(early))
    record("the earlier connection reads", await early.exists("/"))
    record("the earlier connection writes", await early.create("/never"))
    record("it did not", await late.sync(), await late.exists("/never"))
    await other.create(f"{path}-new")
    body = jute.LONG.pack(late.last_zxid) + jute.texts([path]) + jute.texts([f"{path}-new"]) + jute.texts([])
    await late.sync()
    record("it sets its watches again", await late.ask(Opcode.SET_WATCHES, body, -8), list(late.events))
    wrong = Raw(await sync_server(first))
    record("a wrong password elsewhere", await wrong.open_session(late, password=b"x" * 16))
    record("it lives on", await late.exists(path))
    record("it has seen more than any server", await Raw(first).open_session(late, ahead=1_000))
    last = Raw(await sync_server(leader))
    record("it ends at another server", await last.open_session(late), await late.ask(Opcode.CLOSE_SESSION, b""))
    await other.sync()
    record("its znode is gone", await other.exists(path))


async def lose_servers(three: Three, record: Record) -> None:
    """Stop one, two and all three servers; one session is kept all the while, another expires."""
    second = three.ports[2]
    silent, keeper = Raw(second), Raw(second)
    record("one that will fall silent", await silent.open_session(timeout_ms=4_000), await silent.create("/s", True))
    record("and one that will not", await keeper.open_session(), await keeper.create("/keeper", True))
    await three.stop(1)
    record("two of three", await keeper.create("/two"))
    await three.stop(0)

    async def reconnect() -> str:
        nonlocal keeper
        again = Raw(second)
        if (found := await again.open_session(keeper)) == "same session":
            keeper = again
        return found

    closed = await wait_for("closed", lambda: keeper.exists("/"))
    record("one of three", closed, await Raw(second).open_session(keeper))
    await three.start(0)
    same = await wait_for("same session", reconnect)
    record("two again", same, await keeper.create("/again"), await keeper.exists("/keeper"))
    await three.stop(0, 2)
    record("none", await Raw(second).open_session(keeper))
    await three.start(0, 1, 2)
    same = await wait_for("same session", reconnect)
    record("all anew", same, await keeper.sync(), await keeper.exists("/keeper"))
    expired = await wait_for("answered -101", lambda: keeper.exists("/s"))
    record("the silent one expires", expired, await Raw(second).open_session(silent))


@pytest.mark.timeout(240)
async def test_three_servers_of_the_zookeeper_model_answer_like_three_real_servers_during_failures(
    zookeeper_ensemble: zookeeper.Ensemble,
) -> None:
    model = ModelThree()
    await model.open()
    of_the_model = await run_scenario(model)
    await model.close()

    assert of_the_model == await run_scenario(RealThree(zookeeper_ensemble))
