"""The open connections and their limits. Source: ConnectionQuotas (SocketServer.scala).

At `max.connections` Kafka's acceptor waits; here a further connection is closed at once and logged.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

NO_LIMIT: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    max_connections: int = NO_LIMIT
    max_per_address: int = NO_LIMIT
    per_address: Mapping[str, int] = field(default_factory=dict)


class Connection(Protocol):
    """The part of a connection that the table uses."""

    last_active: float

    @property
    def listener(self) -> str:
        """The name of the listener that accepted the connection."""

    @property
    def remote_host(self) -> str:
        """The address of the client, by which connections are counted."""

    def is_idle_since(self, moment: float) -> bool:
        """Whether the connection may be closed as idle: no byte was received or sent since `moment`.

        `moment` is a time of the loop's clock in seconds. A connection with a request in progress is not idle unless
        its client does not read.
        """

    def end(self) -> None:
        """Close the connection at once."""


class ConnectionTable:
    """The open connections, oldest first."""

    def __init__(self, limits: ConnectionLimits, protected_listener: str | None = None) -> None:
        self._limits = limits
        self._protected = protected_listener
        self._open: dict[Connection, None] = {}
        self._per_address: Counter[str] = Counter()

    def set_limits(self, limits: ConnectionLimits) -> None:
        """Set new limits for later connections; open ones stay."""
        self._limits = limits

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._open)

    def admit(self, connection: Connection) -> str | None:
        """Add a connection, or return the reason for refusing it.

        At the limit, an inter-broker connection replaces the least recently used client.
        """
        limit = self._limits.per_address.get(connection.remote_host, self._limits.max_per_address)
        if self._per_address[connection.remote_host] >= limit:
            return (
                f"already {limit} connections from {connection.remote_host}; raise max.connections.per.ip to allow more"
            )
        if len(self._open) >= self._limits.max_connections and not self._close_least_used(connection):
            return f"already {len(self._open)} connections; raise max.connections to allow more"
        self._open[connection] = None
        self._per_address[connection.remote_host] += 1
        return None

    def remove(self, connection: Connection) -> None:
        """Stop counting the connection; does nothing where it is not in the table."""
        if connection in self._open:
            del self._open[connection]
            self._per_address[connection.remote_host] -= 1
            if not self._per_address[connection.remote_host]:
                del self._per_address[connection.remote_host]

    def _close_least_used(self, connection: Connection) -> bool:
        """Close the least recently used client connection to make room for an inter-broker one.

        False if there is none.
        """
        others = [c for c in self._open if c.listener != self._protected]
        if connection.listener != self._protected or not others:
            return False
        least_used = min(others, key=lambda c: c.last_active)
        self.remove(least_used)
        least_used.end()
        return True
