"""Our registration stays as long as its session: who deletes it while we live gets it back, aloud.

Apache Kafka's broker does not look: it serves on, and nobody knows it until it is restarted.
"""

from collections.abc import Awaitable, Callable

import structlog

from klamm.broker.znode_follower import OnUnexpectedError, ZnodeFollower, log_unexpected_error
from klamm.model.ids import BrokerId
from klamm.zk.store import Store
from klamm.zk.watches import WatchEvent
from klamm.zk.znodes import broker_path

log = structlog.get_logger("node")


class RegistrationWatch:
    """`registered` after each registration; `start` once ZooKeeper may be asked; `close` at the end."""

    def __init__(
        self,
        store: Callable[[], Store],
        broker_id: BrokerId,
        register: Callable[[Store], Awaitable[None]],
        on_unexpected_error: OnUnexpectedError = log_unexpected_error,
    ) -> None:
        """`store()` is that of the newest ZooKeeper session; it and `register` raise KlammError."""
        self._store = store
        self._path = broker_path(broker_id)
        self._register = register
        self._session_id = 0
        self._following = ZnodeFollower("our registration", self.look, on_unexpected_error)

    def start(self) -> None:
        self._following.start()

    async def close(self) -> None:
        await self._following.close()

    def on_watch(self, event: WatchEvent) -> None:
        if event.path == self._path:
            self._following.wake()

    def registered(self, session_id: int) -> None:
        """In this session; in a later one the controller, who has to resign before, registers first."""
        self._session_id = session_id
        self._following.wake()

    async def look(self) -> None:
        """Watch it; where it is gone, register again. Raises KlammError."""
        store = self._store()
        if store.client.session_id != self._session_id:
            return
        while (stat := await store.client.exists(self._path, watch=True)) is None:
            log.error("somebody deleted our registration; registering again", znode=self._path)
            await self._register(store)
        if stat.ephemeral_owner != self._session_id:
            log.error("our registration is another's", znode=self._path, session=f"0x{stat.ephemeral_owner:x}")
