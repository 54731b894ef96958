"""The blocking client, for code without an event loop: Spark's Python workers."""

from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar, cast

from klamm.client.cluster import ClusterMetadata
from klamm.client.errors import AnswerTimedOut, ConnectionLost, ConnectionRefused, NotConnected, UnsupportedVersion
from klamm.client.protocol import ClientProtocol, InFlight
from klamm.client.steps import Running, Steps, Wait
from klamm.client.versions import ApiVersions, Request, negotiate
from klamm.model.cluster import Address
from klamm.model.errors import error_text
from klamm.runtime.blocking import BlockingWorld

T = TypeVar("T")
MAX_RESPONSE_BYTES: Final = 1 << 30
"""A batch may be as large as the topic allows; what is not Kafka's protocol announces more."""
MAX_VERSIONS_BYTES: Final = 1 << 20
"""Of the responses that open a connection, which are small: an alert of TLS announces 336 MiB."""


class BlockingSettings(NamedTuple):
    client_id: str
    connect_timeout_s: float
    answer_timeout_s: float


class BlockingConnection:
    """A blocking connection to one broker, versions negotiated; after an error every call raises ConnectionLost."""

    def __init__(self, world: BlockingWorld, address: Address, settings: BlockingSettings) -> None:
        self.address = address
        self._protocol: ClientProtocol[InFlight] = ClientProtocol(str(address), settings.client_id)
        self._max_bytes = MAX_VERSIONS_BYTES
        self._received: deque[Any] = deque()
        """Responses that came before another one that was waited for, at most one of each request in flight."""
        try:
            self._socket = world.connect(*address, settings.connect_timeout_s, settings.answer_timeout_s)
        except ConnectionRefusedError as error:
            raise ConnectionRefused(f"no connection to {address}: {error}") from error
        except OSError as error:
            raise NotConnected(f"no connection to {address}: {error_text(error)}") from error
        try:
            self._versions = self._negotiate()
        except BaseException:
            self.close()
            raise
        self._max_bytes = MAX_RESPONSE_BYTES

    @property
    def in_flight(self) -> int:
        """The number of requests that have no response yet."""
        return len(self._protocol)

    @property
    def is_usable(self) -> bool:
        """Whether the connection is open, with no request in flight, no response kept and no unexpected bytes."""
        return not self.in_flight and not self._received and self._socket.is_quiet()

    def version(self, request: Request) -> int:
        """The highest version of the request's API that both sides support. Raises UnsupportedVersion."""
        return self._versions.agreed_version(request)

    def ask(self, request: Request) -> Any:
        """Send a request and return its response. Raises ConnectionLost, UnsupportedVersion.

        Responses to earlier requests, which come before it, are kept for `receive`.
        """
        earlier = self.in_flight
        self.send(request)
        for _ in range(earlier):
            self._received.append(self._receive_next())
        return self._receive_next()

    def send(self, request: Request) -> None:
        """Send a request; `receive` returns the responses in order. Raises ConnectionLost, UnsupportedVersion."""
        version = self._versions.agreed_version(request)
        self._send(InFlight(request.key, version), request.body(version))

    def tell(self, request: Request) -> None:
        """Send a request that has no response, and after it ApiVersions, for whose response `receive` waits.

        Brokers execute the requests of a connection in order: the response shows that the first one was executed.
        Raises ConnectionLost, UnsupportedVersion.
        """
        version = self._versions.agreed_version(request)
        try:
            self._socket.send(self._protocol.encode_unanswered(request.key, version, request.body(version)))
        except OSError as error:
            raise ConnectionLost(f"{self.address}: cannot send: {error_text(error)}") from error
        greeting = next(negotiate(str(self.address)))
        self._send(InFlight(greeting.key, greeting.version), greeting.message)

    def receive(self) -> Any:
        """Return the response to the oldest request whose response was not returned yet. Raises ConnectionLost."""
        return self._received.popleft() if self._received else self._receive_next()

    def _receive_next(self) -> Any:
        """Wait for the response to the oldest request in flight. Raises ConnectionLost."""
        waiting = next(iter(self._protocol))
        try:
            size = int.from_bytes(self._socket.receive(4), signed=True)
            if not 4 <= size <= self._max_bytes:
                raise ConnectionLost(
                    f"{self.address} does not speak Kafka's protocol: it announced a response of {size} bytes. Give "
                    "the port of a broker's PLAINTEXT listener."
                )
            frame = self._socket.receive(size)
        except TimeoutError as error:
            raise AnswerTimedOut(f"{self.address}: no response to {waiting} before the timeout ({error})") from error
        except OSError as error:
            raise ConnectionLost(f"{self.address}: no response to {waiting}: {error_text(error)}") from error
        return self._protocol.decode(self._protocol.match(frame), frame)

    def close(self) -> None:
        """Close the connection; a request in flight that has not reached the broker never does."""
        if self.in_flight:
            self._socket.discard()
        else:
            self._socket.close()

    def _negotiate(self) -> ApiVersions:
        """Agree on API versions with ApiVersions requests."""
        handshake = negotiate(str(self.address))
        greeting = next(handshake)
        while True:
            self._send(InFlight(greeting.key, greeting.version), greeting.message)
            answer = self.receive()
            try:
                greeting = handshake.send(answer)
            except StopIteration as done:
                versions: ApiVersions = done.value
                return versions

    def _send(self, sent: InFlight, message: Any) -> None:
        """Write the request to the socket. Raises ConnectionLost."""
        try:
            self._socket.send(self._protocol.send(sent, message))
        except OSError as error:
            raise ConnectionLost(f"{self.address}: cannot send {sent}: {error_text(error)}") from error


class BlockingClient:
    """Keeps one connection per broker; a context manager that closes them."""

    def __init__(self, world: BlockingWorld, bootstrap: Sequence[Address], settings: BlockingSettings) -> None:
        self.world = world
        self.cluster = ClusterMetadata(bootstrap, world.now_s)
        self._settings = settings
        self._connections: dict[Address, BlockingConnection] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def prepare_reuse(self) -> None:
        """Prepare the client for another reader: close unusable connections, forget expected topic ids."""
        self.cluster.forget_topics()
        for address, connection in list(self._connections.items()):
            if not connection.is_usable:
                self.drop(address)

    def run(self, steps: Steps[T]) -> T:
        """Run the steps with this client's connections and return their result."""
        running = Running(steps)
        while (step := running.step) is not None:
            if isinstance(step, Wait):
                self.world.sleep(step.seconds)
                running.send(None)
                continue
            try:
                answer = self.at(step.address).ask(step.request)
            except (ConnectionLost, UnsupportedVersion) as error:
                if isinstance(error, ConnectionLost):
                    self.drop(step.address)
                running.throw(error)
            else:
                self.cluster.on_answer(step.address)
                running.send(answer)
        return cast(T, running.result)

    def at(self, address: Address) -> BlockingConnection:
        """The connection to a broker; opened if there is none. Raises ConnectionLost."""
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = BlockingConnection(self.world, address, self._settings)
        return connection

    def drop(self, address: Address) -> None:
        """Close a failed connection; leaders on that broker are looked up again."""
        if connection := self._connections.pop(address, None):
            connection.close()
        self.cluster.on_lost(address)
