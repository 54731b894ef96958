"""What a broker needs of a connection to another broker, so that tests and the simulation may stand in for it."""

from typing import Any, Protocol

from klamm.wire.api import ApiKey


class BrokerConnection(Protocol):
    """`Connection`, as far as brokers among themselves use it. Errors are KlammError."""

    @property
    def closed(self) -> bool: ...
    async def request(self, api_key: ApiKey, version: int, message: Any, timeout_s: float) -> Any: ...
    def close(self) -> None: ...


class Connect(Protocol):
    async def __call__(self, host: str, port: int, client_id: str, timeout_s: float) -> BrokerConnection:
        """Raises KlammError where nobody answers there."""
        ...
