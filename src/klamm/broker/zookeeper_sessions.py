"""Keeps a ZooKeeper session for as long as the node lives. Source: ZooKeeperClient.reinitialize (3.9).

A session that expired is lost with its ephemeral znodes. Listeners are told at once; then a new session is opened, with
retries, and listeners are told again.
"""

import asyncio
from collections import Counter
from typing import Final, Protocol

import structlog

from klamm.broker.crash_guard import CrashGuard
from klamm.config.node_config import NodeConfig
from klamm.runtime.crash_guard import GuardedSession
from klamm.runtime.world import World
from klamm.telemetry.meters import Timer
from klamm.zk.client import ZooKeeper
from klamm.zk.errors import SessionExpired, ZkError
from klamm.zk.hosts import parse_hosts
from klamm.zk.states import SessionState
from klamm.zk.store import Store
from klamm.zk.watches import WatchEvent

_RETRY_BACKOFF_S: Final = 1.0
log = structlog.get_logger("zookeeper")


class SessionListener(Protocol):
    """A part that depends on the ZooKeeper session."""

    async def session_expired(self) -> None:
        """Called when the session has expired; awaited before a new session is opened."""
        ...

    def session_established(self, store: Store) -> None:
        """Called when a new session was established after one that expired."""
        ...

    def on_watch(self, event: WatchEvent) -> None:
        """Called when a watch was triggered, in any session; must not raise."""
        ...


class ZooKeeperSessions:
    """A part of a node: `start` opens the first session, `close` ends the last one."""

    def __init__(self, world: World, config: NodeConfig, guard: CrashGuard) -> None:
        self._world = world
        self._config = config
        self.guard = guard
        """Closes the sessions when this process has ended without doing so."""
        self._listeners: list[SessionListener] = []
        self._client: ZooKeeper | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._closed = False
        self._state = SessionState.DISCONNECTED
        self.counts: Counter[SessionState] = Counter()
        """How often sessions entered each state."""
        self.latency = Timer()
        """From sending a request to its response, over all sessions."""

    @property
    def is_connected(self) -> bool:
        """Whether the current ZooKeeper session is connected."""
        return self._state is SessionState.CONNECTED

    @property
    def store(self) -> Store:
        """The store of the newest session. Raises SessionExpired before `start`; requests raise it after an expiry."""
        if self._client is None:
            raise SessionExpired("", "this node has no ZooKeeper session yet")
        return Store(self._client)

    def add_listener(self, listener: SessionListener) -> None:
        """Add a listener; listeners are called in the order of addition."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """Open the first session. Raises ConnectionLoss where no server gives one in time."""
        self._client = await self._connect(self._config.zookeeper_connection_timeout_ms / 1000)
        self._record_state(SessionState.CONNECTED)

    async def wait_for_session(self) -> Store:
        """The store of a live session; after an expiry, waits for the next session."""
        while self._renewal is not None and not self._renewal.done():
            await asyncio.wait([self._renewal])
        return self.store

    async def close(self) -> None:
        """End the session, and with it this broker's registration.

        Where no server answers, the crash guard process ends it.
        """
        self._closed = True
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)
        if self._client is not None:
            await self._client.close()
            if self._client.is_close_confirmed:
                self.guard.forget(self._client.session_id)

    async def open_mirror_session(self) -> ZooKeeper:
        """Open another session, for reads and notices only. Raises ZkError; its owner closes it.

        It holds no ephemeral znodes, therefore the crash guard need not know it.
        """
        client = self._new_client()
        await client.connect(self._config.zookeeper_session_timeout_ms / 1000)
        return client

    def _new_client(self) -> ZooKeeper:
        """Create a client with the node's settings."""
        return ZooKeeper(
            self._world,
            self._config.zookeeper_hosts,
            self._config.zookeeper_session_timeout_ms,
            self._config.zookeeper_chroot,
            max_in_flight=self._config.zookeeper_max_in_flight_requests,
        )

    async def _connect(self, timeout_s: float) -> ZooKeeper:
        """Open a session within this time."""
        client = self._new_client()
        client.on_state = lambda state: self._on_state(client, state)
        client.on_watch = self._on_watch
        client.on_latency_ms(self.latency.observe)
        await client.connect(timeout_s)
        servers = parse_hosts(self._config.zookeeper_hosts).servers
        self.guard.watch(GuardedSession(client.session_id, client.session_password, client.session_timeout_ms, servers))
        return client

    def _record_state(self, state: SessionState) -> None:
        """Set the current state, and count it for the metrics."""
        self._state = state
        self.counts[state] += 1

    def _on_state(self, client: ZooKeeper, state: SessionState) -> None:
        """Handle a state change of the client; an expiry opens a new session."""
        if client is not self._client or self._closed:
            return
        self._record_state(state)
        log.info("session state", state=state.name, session=f"0x{client.session_id:x}", server=client.server)
        if state is SessionState.EXPIRED:
            self.guard.forget(client.session_id)
            self._renewal = asyncio.get_running_loop().create_task(self._renew_session(), name="zookeeper-renewal")

    def _on_watch(self, event: WatchEvent) -> None:
        """Pass a watch event to all listeners."""
        for listener in self._listeners:
            listener.on_watch(event)

    async def _renew_session(self) -> None:
        """Notify the listeners that the session expired, then open a new one, retrying until it succeeds."""
        for listener in self._listeners:
            await listener.session_expired()
        while True:
            try:
                self._client = await self._connect(self._config.zookeeper_session_timeout_ms / 1000)
            except ZkError as error:
                log.warning(
                    "cannot open a new ZooKeeper session; retrying", reason=str(error), retry_s=_RETRY_BACKOFF_S
                )
                await asyncio.sleep(_RETRY_BACKOFF_S)
            else:
                self._record_state(SessionState.CONNECTED)
                for listener in self._listeners:
                    listener.session_established(self.store)
                return
