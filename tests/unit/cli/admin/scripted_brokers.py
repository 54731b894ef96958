"""A network of scripted brokers that record the requests they receive."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from tests.unit.net.transports import RecordingTransport, connect, feed

from klamm.cli.admin.client import Admin
from klamm.client.connection import Connection
from klamm.model.cluster import Address
from klamm.runtime.world import World
from klamm.sim.loop import SimulatedLoop
from klamm.wire.api import APIS, ApiKey, api
from klamm.wire.frames import decode_request_header, encode_response
from klamm.wire.messages import ApiVersion, ApiVersionsResponse, MetadataResponse, MetadataResponseBroker

T = TypeVar("T")
Answer = Callable[[int, Any], Any]
"""From version and request to the response; None: it never comes."""
UNSUPPORTED = 35


class Brokers:
    """Broker N is at `bN:9092`."""

    def __init__(self, *ids: int) -> None:
        self.ids = ids
        self.controller = ids[0]
        self.down: set[str] = set()
        self.silent: set[str] = set()
        """They accept connections and answer nothing."""
        self.newest: dict[ApiKey, int] = {}
        """Where a broker's highest version is not ours; -1: it does not offer the API."""
        self.old_api_versions = False
        self.answers: dict[ApiKey, Answer] = {ApiKey.METADATA: lambda _v, _m: self.metadata()}
        self.asked: list[tuple[str, str, int]] = []
        """Host, API and version, in order; without ApiVersions and Metadata."""

    def metadata(self, topics: list[Any] | None = None) -> MetadataResponse:
        brokers = [MetadataResponseBroker(n, f"b{n}", 9092) for n in self.ids if f"b{n}" not in self.down]
        return MetadataResponse(brokers=brokers, controller_id=self.controller, topics=topics or [])

    async def connect(self, make: Any, host: str, _port: int) -> Connection:
        if host in self.down:
            raise ConnectionRefusedError(111, "Connection refused")
        connection: Connection = make()
        transport = connect(connection)
        transport.write = lambda data: self._receive(host, transport, bytes(data))  # type: ignore[method-assign]
        return connection

    def _receive(self, host: str, transport: RecordingTransport, sent: bytes) -> None:
        if host in self.silent:
            return
        frame = sent[4:]
        header, at = decode_request_header(frame)
        key, version = ApiKey(header.api_key), header.api_version
        if key is ApiKey.API_VERSIONS:
            if self.old_api_versions and version > 0:
                answer: Any = ApiVersionsResponse(error_code=UNSUPPORTED)
                version = 99  # answered in the layout of version 0
            else:
                answer = ApiVersionsResponse(api_keys=[self._offer(ApiKey(k)) for k in APIS if self._offers(ApiKey(k))])
        else:
            if key is not ApiKey.METADATA:
                self.asked.append((host, key.name, version))
            answer = self.answers[key](version, api(key).request.decode(frame, version, at))
        if answer is not None:
            feed(transport, b"".join(encode_response(key, version, header.correlation_id, answer)))

    def _offers(self, key: ApiKey) -> bool:
        """Whether the brokers support this API."""
        return self.newest.get(key, 0) >= 0

    def _offer(self, key: ApiKey) -> ApiVersion:
        """The versions of this API that the brokers support."""
        ours = api(key)
        return ApiVersion(key, ours.min_version, self.newest.get(key, ours.max_version))


def run(brokers: Brokers, work: Callable[[Admin], Coroutine[Any, Any, T]], timeout_s: float = 5.0) -> T:
    """On virtual time, with all brokers as bootstrap servers."""
    network = cast(World, type("Network", (), {"network": brokers}))
    bootstrap = [Address(f"b{n}", 9092) for n in brokers.ids]

    async def main() -> T:
        async with Admin(network, bootstrap, timeout_s) as admin:
            return await work(admin)

    return SimulatedLoop().run(main())
