"""One ZooKeeper session after another, for as long as the node lives. Source: ZooKeeperClient.reinitialize (3.9).

A session that expired is gone with its ephemeral znodes. Who depends on it is told at once; a new one is sought until
there is one, and then they are told again.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from klamm.config.node_config import NodeConfig
from klamm.runtime.world import World
from klamm.telemetry.meters import Timer
from klamm.zk.client import ZooKeeper
from klamm.zk.errors import SessionExpired, ZkError
from klamm.zk.states import SessionState
from klamm.zk.store import Store

_RETRY_S: Final = 1.0
log = structlog.get_logger("zookeeper")


class ZooKeeperSessions:
    """`on_expired` is awaited before a new session is sought; `on_renewed` gets the store of each later one."""

    def __init__(
        self,
        world: World,
        config: NodeConfig,
        on_expired: Callable[[], Awaitable[None]],
        on_renewed: Callable[[Store], None],
    ) -> None:
        self._world = world
        self._config = config
        self._on_expired = on_expired
        self._on_renewed = on_renewed
        self._client: ZooKeeper | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._closed = False
        self._state = SessionState.DISCONNECTED
        self.counts: Counter[SessionState] = Counter()
        """How often a session came into each state."""
        self.latency = Timer()
        """From a request's sending to its answer, over all sessions."""

    @property
    def is_connected(self) -> bool:
        return self._state is SessionState.CONNECTED

    @property
    def store(self) -> Store:
        """Of the newest session; requests on one that expired raise SessionExpired. Raises it too before `open`."""
        if self._client is None:
            raise SessionExpired("", "there is no ZooKeeper session yet")
        return Store(self._client)

    async def open(self) -> Store:
        """The first session. Raises ConnectionLoss where no server gives one in time."""
        self._client = await self._connect(self._config.zookeeper_connection_timeout_ms / 1000)
        self._came_into(SessionState.CONNECTED)
        return self.store

    async def renewed(self) -> Store:
        """The store of a session that lives: where one has expired meanwhile, of the next, once there is one."""
        while self._renewal is not None and not self._renewal.done():
            await asyncio.wait([self._renewal])
        return self.store

    async def close(self) -> None:
        """End the session, and with it our registration."""
        self._closed = True
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    async def _connect(self, timeout_s: float) -> ZooKeeper:
        client = ZooKeeper(
            self._world,
            self._config.zookeeper_hosts,
            self._config.zookeeper_session_timeout_ms,
            self._config.zookeeper_chroot,
            max_in_flight=self._config.zookeeper_max_in_flight_requests,
        )
        client.on_state = lambda state: self._state_changed(client, state)
        client.on_latency_ms(self.latency.observe)
        await client.connect(timeout_s)
        return client

    def _came_into(self, state: SessionState) -> None:
        self._state = state
        self.counts[state] += 1

    def _state_changed(self, client: ZooKeeper, state: SessionState) -> None:
        if client is not self._client or self._closed:
            return
        self._came_into(state)
        log.info("session state", state=state.name, session=f"0x{client.session_id:x}", server=client.server)
        if state is SessionState.EXPIRED:
            self._renewal = asyncio.get_running_loop().create_task(self._renew(), name="zookeeper-renewal")

    async def _renew(self) -> None:
        await self._on_expired()
        while True:
            try:
                self._client = await self._connect(self._config.zookeeper_session_timeout_ms / 1000)
            except ZkError as error:
                log.warning("no new session yet, trying on", reason=str(error))
                await asyncio.sleep(_RETRY_S)
            else:
                self._came_into(SessionState.CONNECTED)
                self._on_renewed(self.store)
                return
