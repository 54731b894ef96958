"""What request handlers know of a connection. Source: RequestContext.java, KafkaPrincipal.java."""

from collections.abc import Callable
from typing import Final, NamedTuple


class Peer(NamedTuple):
    """The address of a client, and the listener that accepted its connection."""

    listener: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Principal(NamedTuple):
    """The user of a connection, as ACLs and quotas name it: `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")


class ClientSoftware(NamedTuple):
    """The client's name and version from ApiVersions (KIP-511)."""

    name: str = "unknown"
    version: str = "unknown"


def do_nothing() -> None:
    """Do nothing: the connection is closed, or the request has no connection."""


class ClientConnection:
    """The state of one connection; handlers get it with each request."""

    __slots__ = ("let_next_begin", "peer", "principal", "software")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.principal = ANONYMOUS
        """Anonymous until a handler has authenticated the client."""
        self.software = ClientSoftware()
        self.let_next_begin: Callable[[], None] = do_nothing
        """Called by the handler of the newest request when all is done but the wait for its response.

        It must not need the request's frame any more, whose memory is released. The next request may begin then, if
        both may overlap. The responses keep their order.
        """
