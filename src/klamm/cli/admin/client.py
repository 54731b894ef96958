"""One client for the operator's commands: it connects, agrees on versions, and finds who has to be asked.

Works with any cluster that speaks Kafka's protocol. Everything ends within the time allowed; what may be asked twice
without harm is asked again, elsewhere, when a connection is lost. Source: KafkaAdminClient.java, NodeApiVersions.java.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from klamm import __version__
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode, KlammError, UsageError
from klamm.model.ids import NO_BROKER, BrokerId
from klamm.net.client import AnswerTimedOut, Connection, ConnectionLost, ConnectionRefused
from klamm.runtime.main_loop import run_loop
from klamm.runtime.world import World, real_world
from klamm.wire.api import ApiKey, api
from klamm.wire.codec import WireMessage
from klamm.wire.messages import ApiVersionsRequest, MetadataRequest

CLIENT_ID: Final = "klamm-cli"
T = TypeVar("T")
Build = Callable[[int], WireMessage]
"""The request, as the version agreed upon has it."""

_NOT_CONTROLLER: Final = ErrorCode.NOT_CONTROLLER
_PAUSE_S: Final = 0.2
_LEAST_S: Final = 0.05
_PATIENCE_S: Final = 5.0
"""With one broker where another may answer."""


class CannotAsk(KlammError):
    """Nobody answers in time, or not what was asked."""


class NoAnswer(CannotAsk):
    """Brokers took the question and did not answer in time: what it asks for may come about all the same."""


class _Peer(NamedTuple):
    connection: Connection
    versions: dict[int, tuple[int, int]]
    """By API key: the lowest and the highest version that it offers."""


class Admin:
    """`async with Admin(world, bootstrap, timeout_s) as admin`. `timeout_s` is for everything together."""

    def __init__(self, world: World, bootstrap: Sequence[Address], timeout_s: float) -> None:
        self._world = world
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._deadline = asyncio.get_running_loop().time() + timeout_s
        self._peers: dict[Address, _Peer] = {}
        self._opening: defaultdict[Address, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.brokers: dict[BrokerId, Address] = {}
        """As the last look at the cluster found them."""
        self.controller: BrokerId = NO_BROKER

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for peer in self._peers.values():
            peer.connection.close()

    @property
    def left_s(self) -> float:
        """Of the time allowed; never quite nothing."""
        return max(_LEAST_S, self._deadline - asyncio.get_running_loop().time())

    @property
    def left_ms(self) -> int:
        return int(self.left_s * 1000)

    async def pause(self, seconds: float = _PAUSE_S) -> bool:
        """Whether there is time for another try."""
        if self.left_s <= seconds:
            return False
        await asyncio.sleep(seconds)
        return True

    async def ask(self, key: ApiKey, message: WireMessage | Build) -> Any:
        """Any broker that answers."""

        patience_s = _PATIENCE_S

        async def once() -> Any:
            nonlocal patience_s
            last: ConnectionLost | None = None
            for address in dict.fromkeys((*self._bootstrap, *self.brokers.values())):
                try:
                    return await self._ask(address, key, message, min(patience_s, self.left_s))
                except ConnectionLost as error:
                    last = error
            patience_s *= 2  # a large answer may take its time
            raise last or ConnectionLost("no broker is known")

        return await self._again(once, f"nobody answers at {', '.join(map(str, self._bootstrap))}")

    async def ask_broker(
        self, broker: BrokerId, key: ApiKey, message: WireMessage | Build, *, awaits_start: bool = True
    ) -> Any:
        """That one, and no other. One that refuses connections may be starting; who does not wait hears so at once."""

        async def once() -> Any:
            if broker not in self.brokers:
                await self.look()
            if broker not in self.brokers:
                raise CannotAsk(
                    f"broker {broker} is not alive ({ErrorCode.BROKER_NOT_AVAILABLE.name}); alive are "
                    f"{', '.join(map(str, sorted(self.brokers)))}"
                )
            try:
                return await self._ask(self.brokers[broker], key, message)
            except ConnectionRefused:
                if awaits_start:
                    raise
                raise CannotAsk(f"refuses connections at {self.brokers[broker]}: is it running?") from None

        return await self._again(once, f"broker {broker} does not answer")

    async def ask_controller(self, key: ApiKey, message: WireMessage | Build, *, repeatable: bool = True) -> Any:
        """The controller, wherever it is by then; where another became it, that one.

        What is not `repeatable` is not asked again once it may have been done.
        """
        while True:
            address = await self._controller_address()
            try:
                answer = await self._ask(address, key, message)
            except ConnectionLost as error:
                if not repeatable:
                    raise CannotAsk(f"{error}; it may have been done all the same: look before you repeat it") from None
                problem = str(error)
            else:
                if not any(code == _NOT_CONTROLLER for code in error_codes(answer)):
                    return answer
                problem = f"{address} is not the controller any more ({_NOT_CONTROLLER.name})"
            self.controller = NO_BROKER
            if not await self.pause():
                raise CannotAsk(f"{problem}, not within {self._timeout_s:g} s; --timeout gives it more")

    async def look(self) -> None:
        """Who is alive, and who is controller."""
        no_topics = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        self.take_brokers(await self.ask(ApiKey.METADATA, no_topics))

    def take_brokers(self, metadata: Any) -> None:
        """What an answer to Metadata says of them."""
        self.brokers = {BrokerId(b.node_id): Address(b.host, b.port) for b in metadata.brokers}
        self.controller = BrokerId(metadata.controller_id)

    async def _controller_address(self) -> Address:
        while self.controller not in self.brokers:
            await self.look()
            if self.controller not in self.brokers and not await self.pause():
                raise CannotAsk(
                    f"the cluster names no controller within {self._timeout_s:g} s: klamm audit --zookeeper says why"
                )
        return self.brokers[self.controller]

    async def _again(self, once: Callable[[], Awaitable[T]], problem: str) -> T:
        while True:
            try:
                return await once()
            except ConnectionLost as error:
                if not await self.pause():
                    kind = NoAnswer if isinstance(error, AnswerTimedOut) else CannotAsk
                    raise kind(f"{problem} within {self._timeout_s:g} s: {error}") from None

    async def _ask(
        self, address: Address, key: ApiKey, message: WireMessage | Build, patience_s: float | None = None
    ) -> Any:
        peer = await self._peer(address)
        version = _agreed(peer, key)
        body = message if isinstance(message, WireMessage) else message(version)
        return await peer.connection.request(key, version, body, patience_s or self.left_s)

    async def _peer(self, address: Address) -> _Peer:
        async with self._opening[address]:  # one connection, however many ask at once
            peer = self._peers.get(address)
            if peer is None or peer.connection.closed:
                patience_s = min(_PATIENCE_S, self.left_s)
                connection = await Connection.open(self._world, address.host, address.port, CLIENT_ID, patience_s)
                try:
                    peer = self._peers[address] = _Peer(connection, await self._versions(connection))
                except BaseException:
                    connection.close()
                    raise
            return peer

    async def _versions(self, connection: Connection) -> dict[int, tuple[int, int]]:
        """An old broker that does not know our version of the question is asked in the oldest one."""
        asked = ApiVersionsRequest(client_software_name="klamm", client_software_version=__version__)
        for version in (3, 0):
            answer = await connection.request(ApiKey.API_VERSIONS, version, asked, min(_PATIENCE_S, self.left_s))
            if answer.error_code == ErrorCode.NONE:
                return {a.api_key: (a.min_version, a.max_version) for a in answer.api_keys}
        raise ConnectionLost(f"{connection.peer} does not say which versions it speaks: {code_name(answer.error_code)}")


def _agreed(peer: _Peer, key: ApiKey) -> int:
    """The highest version that both know. Raises CannotAsk."""
    ours = api(key)
    offered = peer.versions.get(key)
    if offered is None:
        raise CannotAsk(
            f"{peer.connection.peer} does not offer {ours.name} ({ErrorCode.UNSUPPORTED_VERSION.name}): it is too old "
            "for this command, or leaves it to others"
        )
    version = min(ours.max_version, offered[1])
    if version < max(ours.min_version, offered[0]):
        raise CannotAsk(
            f"{peer.connection.peer} offers {ours.name} {offered[0]}-{offered[1]}, we know {ours.min_version}-"
            f"{ours.max_version} ({ErrorCode.UNSUPPORTED_VERSION.name})"
        )
    return version


def error_codes(answer: Any) -> Iterator[int]:
    """Of the answer as a whole and of its items."""
    if (code := getattr(answer, "error_code", None)) is not None:
        yield code
    for name in ("topics", "responses", "results"):
        for item in getattr(answer, name, None) or ():
            if (code := getattr(item, "error_code", None)) is not None:
                yield code


def code_name(code: int) -> str:
    """Kafka's name of an error code; newer brokers may have ones we do not know."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def parse_addresses(text: str, option: str = "--bootstrap-server") -> list[Address]:
    """`host:port,host:port`. Raises UsageError."""
    found = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        host, _, port = part.rpartition(":")
        if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
            raise UsageError(f"{option} {part!r} is not HOST:PORT, for example 127.0.0.1:9092")
        found.append(Address(host.strip("[]"), int(port)))
    if not found:
        raise UsageError(f"{option} names nobody: HOST:PORT[,HOST:PORT], for example 127.0.0.1:9092")
    return found


def with_admin(bootstrap: str, timeout_s: float, work: Callable[[Admin], Awaitable[T]]) -> T:
    """Run `work` on a loop of its own, with connections that end with it. Raises CannotAsk."""
    addresses = parse_addresses(bootstrap)

    async def run() -> T:
        async with Admin(real_world(), addresses, timeout_s) as admin:
            return await work(admin)

    return run_loop(run())
