"""What handlers may know of the connection that a request came on. Source: RequestContext.java, KafkaPrincipal.java."""

from typing import Final, NamedTuple


class Peer(NamedTuple):
    """Where a connection came from and on which of our listeners."""

    listener: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Principal(NamedTuple):
    """Who asks, as ACLs and quotas name it: `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")


class ClientSoftware(NamedTuple):
    """What a client calls itself in ApiVersions (KIP-511)."""

    name: str = "unknown"
    version: str = "unknown"


class ClientConnection:
    """The state of one connection, from its first request to its last. Handlers get it with each request."""

    __slots__ = ("peer", "principal", "software")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.principal = ANONYMOUS
        """Anonymous until a handler has authenticated the client."""
        self.software = ClientSoftware()
