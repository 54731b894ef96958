"""Clients that stay open between the tasks of one Spark worker: with their connections, API versions and leaders.

A worker runs one task at a time, but may leave one half read and begin another: a client is lent to one reader only.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from klamm.client.blocking import BlockingClient, BlockingSettings
from klamm.model.cluster import Address
from klamm.runtime.blocking import BlockingWorld

MAX_IDLE_S: Final = 60.0
MAX_IDLE_CLIENTS: Final = 8
"""One for each cluster and set of options that a worker reads with; the one idle for longest goes first."""


class _Key(NamedTuple):
    bootstrap: Sequence[Address]
    settings: BlockingSettings


class _Idle(NamedTuple):
    key: _Key
    client: BlockingClient
    since_s: float


class ClientPool:
    def __init__(self) -> None:
        self._idle: list[_Idle] = []
        """The one given back last at the end."""

    @contextmanager
    def lend(
        self, world: BlockingWorld, bootstrap: Sequence[Address], settings: BlockingSettings
    ) -> Iterator[BlockingClient]:
        """Lend a client for these brokers; after an error it is closed, else kept for the next reader."""
        key = _Key(tuple(bootstrap), settings)
        self._close_expired(world.now_s())
        client = self._take_idle(key) or BlockingClient(world, bootstrap, settings)
        try:
            yield client
        except BaseException:
            client.close()
            raise
        self._return(_Idle(key, client, world.now_s()))

    def close(self) -> None:
        """Close all idle clients."""
        for idle in self._idle:
            idle.client.close()
        self._idle.clear()

    def _take_idle(self, key: _Key) -> BlockingClient | None:
        """The client of this key that was returned last; None where none is idle."""
        for at in reversed(range(len(self._idle))):
            if self._idle[at].key == key:
                client = self._idle.pop(at).client
                client.prepare_reuse()
                return client
        return None

    def _return(self, idle: _Idle) -> None:
        """Keep a client for the next reader."""
        self._idle.append(idle)
        if len(self._idle) > MAX_IDLE_CLIENTS:
            self._idle.pop(0).client.close()

    def _close_expired(self, now_s: float) -> None:
        """Close the clients that have been idle for more than `MAX_IDLE_S` seconds."""
        expired = [idle for idle in self._idle if now_s - idle.since_s > MAX_IDLE_S]
        self._idle = [idle for idle in self._idle if now_s - idle.since_s <= MAX_IDLE_S]
        for idle in expired:
            idle.client.close()
