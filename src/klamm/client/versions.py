"""Which version of an API is used with a broker. Source: NodeApiVersions.java, NetworkClient.java (KIP-511)."""

from collections.abc import Callable, Generator, Mapping
from typing import Final, NamedTuple

from klamm import __version__
from klamm.client.errors import ConnectionLost, UnsupportedVersion, code_name
from klamm.model.errors import ErrorCode
from klamm.wire.api import ApiKey, api
from klamm.wire.codec import WireMessage
from klamm.wire.messages import ApiVersionsRequest, ApiVersionsResponse

Build = Callable[[int], WireMessage]
"""The message, as the version agreed upon has it."""
ANY: Final = 1 << 15
"""An upper limit above all versions."""
_ASKED_IN: Final = (3, 0)
"""The versions of the ApiVersions request: a broker that does not know the first is asked in the second."""


class Request(NamedTuple):
    """A message for a version between `oldest` and `newest`, within the versions that this code knows."""

    key: ApiKey
    message: WireMessage | Build
    oldest: int = 0
    newest: int = ANY

    def body(self, version: int) -> WireMessage:
        """Build the request message for this version."""
        return self.message if isinstance(self.message, WireMessage) else self.message(version)


class ApiVersions:
    """The API versions that one broker offers."""

    def __init__(self, peer: str, offered: Mapping[int, tuple[int, int]]) -> None:
        """`offered` has the lowest and highest version by API key."""
        self._peer = peer
        self._offered = offered

    def agreed_version(self, request: Request) -> int:
        """The highest version that both sides support. Raises UnsupportedVersion."""
        ours = api(request.key)
        oldest, newest = max(ours.min_version, request.oldest), min(ours.max_version, request.newest)
        offered = self._offered.get(request.key)
        if offered is None:
            raise UnsupportedVersion(
                f"{self._peer} does not offer the API {ours.name} ({ErrorCode.UNSUPPORTED_VERSION.name}). Give the "
                "address of another broker, or upgrade this one."
            )
        version = min(newest, offered[1])
        if version < max(oldest, offered[0]):
            raise UnsupportedVersion(
                f"{self._peer} offers {ours.name} in versions {offered[0]}-{offered[1]}, klamm needs one of "
                f"{oldest}-{newest} ({ErrorCode.UNSUPPORTED_VERSION.name}). Give the address of another broker, or "
                "upgrade the older side."
            )
        return version


class Greeting(NamedTuple):
    """A message of the version negotiation, and its version."""

    key: ApiKey
    version: int
    message: WireMessage


Handshake = Generator[Greeting, ApiVersionsResponse, ApiVersions]


def negotiate(peer: str) -> Handshake:
    """The ApiVersions requests that open a connection; the driver sends each and passes its response.

    Raises ConnectionLost if the broker does not report its versions.
    """
    message = ApiVersionsRequest(client_software_name="klamm", client_software_version=__version__)
    code = ErrorCode.NONE.value
    for version in _ASKED_IN:
        answer = yield Greeting(ApiKey.API_VERSIONS, version, message)
        code = answer.error_code
        if code == ErrorCode.NONE:
            return ApiVersions(peer, {a.api_key: (a.min_version, a.max_version) for a in answer.api_keys})
    raise ConnectionLost(f"{peer} refused ApiVersions with {code_name(code)}; check that it is a Kafka broker")
