"""Three model servers and three real ones tell the same story: sessions that move, quorums lost and found, restarts."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import pytest
from tests.support import zookeeper
from tests.support.zookeeper_sequences import body_of
from tests.support.zookeeper_wire import connect_frame, request_frame

from klamm.runtime.clock import RealClock
from klamm.runtime.network import RealNetwork
from klamm.runtime.randomness import Rng
from klamm.sim.zookeeper.ensemble import Ensemble, EnsembleSettings
from klamm.sim.zookeeper.server import Server
from klamm.zk import jute
from klamm.zk.operations import Create
from klamm.zk.requests import Opcode

LIMIT_S = 60.0


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
        quick = zookeeper.QUICK
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

    async def greet(
        self, earlier: "Raw | None" = None, ahead: int = 0, password: bytes = b"", timeout_ms: int = 30_000
    ) -> str:
        """A session of its own, or that of an earlier connection."""
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

    async def ask(self, opcode: int, body: bytes, xid: int = 1) -> str:
        if self._writer.is_closing():
            return "closed"
        self._writer.write(request_frame(xid, opcode, body))
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


async def until(expected: str, attempt: Callable[[], Awaitable[str]]) -> str:
    """Again and again: elections take their time."""
    async with asyncio.timeout(LIMIT_S):
        while (found := await attempt()) != expected:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return found


async def story(three: Three) -> list[Any]:
    told: list[Any] = []

    def tell(what: str, *seen: Any) -> None:
        told.append((what, *seen))

    leader, first, second = three.ports
    other = Raw(second)
    tell("a second client", await other.greet())
    at = {leader: Raw(leader), first: Raw(first), second: other}
    tell("one at each of the others", await at[leader].greet(), await at[first].greet())

    async def caught_up(port: int) -> int:
        """A server turns a client away that has seen more than itself; once it answered this, it has seen all."""
        await at[port].sync()
        return port

    for where, port in (("follower", first), ("leader", leader)):
        early, late, path = Raw(port), Raw(second), f"/{where}"
        tell(f"a session at the {where}", await early.greet(), await early.create(path, True))
        tell("watches", await early.exists(path, True), await early.exists("/" + where + "-new", True))
        await caught_up(second)
        tell("it moves", await late.greet(early))
        tell("the earlier connection reads", await early.exists("/"))
        tell("the earlier connection writes", await early.create("/never"))
        tell("it did not", await late.sync(), await late.exists("/never"))
        await other.create(f"/{where}-new")
        body = jute.LONG.pack(late.last_zxid) + jute.texts([path]) + jute.texts([f"/{where}-new"]) + jute.texts([])
        await late.sync()
        tell("it sets its watches again", await late.ask(Opcode.SET_WATCHES, body, -8), list(late.events))
        wrong = Raw(await caught_up(first))
        tell("a wrong password elsewhere", await wrong.greet(late, password=b"x" * 16))
        tell("it lives on", await late.exists(path))
        tell("it has seen more than any server", await Raw(first).greet(late, ahead=1_000))
        last = Raw(await caught_up(leader))
        tell("it ends at another server", await last.greet(late), await late.ask(Opcode.CLOSE_SESSION, b""))
        await other.sync()
        tell("its znode is gone", await other.exists(path))
    tell(
        "one that will fall silent",
        await (silent := Raw(second)).greet(timeout_ms=2_000),
        await silent.create("/s", True),
    )
    tell("and one that will not", await (keeper := Raw(second)).greet(), await keeper.create("/keeper", True))
    await three.stop(1)
    tell("two of three", await keeper.create("/two"))
    await three.stop(0)

    async def alone() -> str:
        return await keeper.exists("/")

    tell("one of three", await until("closed", alone), await Raw(second).greet(keeper))
    await three.start(0)

    async def back() -> str:
        nonlocal keeper
        again = Raw(second)
        if (found := await again.greet(keeper)) == "same session":
            keeper = again
        return found

    tell("two again", await until("same session", back), await keeper.create("/again"), await keeper.exists("/keeper"))
    await three.stop(0, 2)
    tell("none", await Raw(second).greet(keeper))
    await three.start(0, 1, 2)
    tell("all anew", await until("same session", back), await keeper.sync(), await keeper.exists("/keeper"))

    async def forgotten() -> str:
        return await keeper.exists("/s")

    tell("the silent one expires", await until("answered -101", forgotten), await Raw(second).greet(silent))
    return told


@pytest.mark.timeout(240)
async def test_both_tell_the_same_story(zookeeper_ensemble: zookeeper.Ensemble) -> None:
    model = ModelThree()
    await model.open()
    of_the_model = await story(model)
    await model.close()

    assert of_the_model == await story(RealThree(zookeeper_ensemble))
