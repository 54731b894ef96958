"""One blocking connection to one broker: versions agreed on first, then requests and their answers in order."""

from collections import deque
from typing import Any, Final

from klamm.model.errors import ErrorCode, KlammError
from klamm.runtime.blocking import BlockingWorld
from klamm.wire.api import ApiKey
from klamm.wire.codec import WireMessage
from klamm.wire.errors import WireError
from klamm.wire.frames import RequestHeader, decode_response, encode_request
from klamm.wire.messages import ApiVersionsRequest

Address = tuple[str, int]

VERSIONS_USED: Final = {
    ApiKey.FETCH: (4, 17),  # from 4 on batches come as they are stored; from 13 on topics go by id, not by name
    ApiKey.LIST_OFFSETS: (1, 7),  # version 0 has no offset for a time
    ApiKey.METADATA: (4, 12),  # from 4 on a topic that is asked about is not created by it; from 10 on it has an id
    ApiKey.API_VERSIONS: (0, 3),
}
LARGEST_ANSWER_BYTES: Final = 1 << 30  # a batch may be as large as the topic allows; rubbish announces more


class BrokerLost(KlammError):
    """The connection cannot be used any more, or never came to be."""


class BrokerConnection:
    """Raises BrokerLost from every call once something went wrong."""

    def __init__(
        self, world: BlockingWorld, address: Address, client_id: str, connect_timeout_s: float, answer_timeout_s: float
    ) -> None:
        self.address = address
        self._client_id = client_id
        self._waiting: deque[tuple[int, ApiKey, int]] = deque()
        self._correlation_id = 0
        self._ranges: dict[int, tuple[int, int]] = {}
        try:
            self._connection = world.connect(*address, connect_timeout_s, answer_timeout_s)
        except OSError as error:
            raise self._lost("cannot be reached", error) from error
        self._agree_on_versions()

    def request(self, message: WireMessage) -> Any:
        self.send(message)
        return self.receive()

    def send(self, message: WireMessage, newest: int | None = None) -> None:
        """In the newest version that both sides speak, `newest` at most. Several requests may be under way."""
        key = ApiKey(message.API_KEY)
        version = self.version(key)
        self._send(message, key, version if newest is None else min(version, newest))

    def receive(self) -> Any:
        correlation_id, key, version = self._waiting.popleft()
        try:
            size = int.from_bytes(self._connection.receive(4), signed=True)
            if not 4 <= size <= LARGEST_ANSWER_BYTES:
                raise self._lost("does not speak Kafka's protocol", f"an answer of {size} bytes")
            found, message = decode_response(self._connection.receive(size), key, version)
        except OSError as error:
            raise self._lost(f"gave no answer to {key.name}", error) from error
        except WireError as error:
            raise self._lost(f"gave an unreadable answer to {key.name}", error) from error
        if found != correlation_id:
            raise self._lost("mixed up its answers", f"number {found} instead of {correlation_id}")
        return message

    def close(self) -> None:
        self._connection.close()

    def _agree_on_versions(self) -> None:
        for version in reversed(VERSIONS_USED[ApiKey.API_VERSIONS]):
            request = ApiVersionsRequest("klamm", "1") if version else ApiVersionsRequest()
            self._send(request, ApiKey.API_VERSIONS, version)
            answer = self.receive()
            if answer.error_code == ErrorCode.NONE:
                self._ranges = {a.api_key: (a.min_version, a.max_version) for a in answer.api_keys}
                return
        raise self._lost("refuses ApiVersions", f"error code {answer.error_code}")

    def version(self, key: ApiKey) -> int:
        lowest, highest = self._ranges.get(key, (0, -1))
        oldest, newest = VERSIONS_USED[key]
        version = min(highest, newest)
        if version < max(lowest, oldest):
            raise self._lost(f"offers {key.name} in versions {lowest} to {highest}", "none that klamm speaks")
        return version

    def _send(self, message: WireMessage, key: ApiKey, version: int) -> None:
        self._correlation_id += 1
        header = RequestHeader(key, version, self._correlation_id, self._client_id)
        try:
            self._connection.send(encode_request(header, message))
        except OSError as error:
            raise self._lost(f"does not take {key.name}", error) from error
        self._waiting.append((self._correlation_id, key, version))

    def _lost(self, what: str, cause: object) -> BrokerLost:
        host, port = self.address
        return BrokerLost(f"broker {host}:{port} {what}: {cause or type(cause).__name__}")
