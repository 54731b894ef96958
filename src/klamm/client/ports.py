"""The interface of a connection between brokers; tests and the simulation have their own implementations."""

from typing import Any, Protocol

from klamm.wire.api import ApiKey


class BrokerConnection(Protocol):
    """The part of `Connection` that brokers use among themselves. Errors are KlammError."""

    @property
    def closed(self) -> bool:
        """Whether the connection is closed."""

    async def request(self, api_key: ApiKey, version: int, message: Any, timeout_s: float) -> Any:
        """Send the request in this version and return its response."""

    def close(self) -> None:
        """Close the connection."""


class Connect(Protocol):
    async def __call__(self, host: str, port: int, client_id: str, timeout_s: float) -> BrokerConnection:
        """Connect to a broker. Raises KlammError if it does not answer."""
        ...
