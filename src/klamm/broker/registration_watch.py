"""Watches this broker's registration and restores it if somebody deletes it while the session lives.

Apache Kafka's broker does not watch it: it continues serving, unknown to the cluster, until it is restarted.
"""

from collections.abc import Awaitable, Callable

import structlog

from klamm.broker.znode_follower import OnUnexpectedError, ZnodeFollower, log_unexpected_error
from klamm.model.ids import BrokerId
from klamm.zk.store import Store
from klamm.zk.znodes import broker_path

log = structlog.get_logger("node")


class RegistrationWatch(ZnodeFollower):
    """Call `registered` after each registration."""

    def __init__(
        self,
        store: Callable[[], Store],
        broker_id: BrokerId,
        register: Callable[[Store], Awaitable[None]],
        on_unexpected_error: OnUnexpectedError = log_unexpected_error,
    ) -> None:
        """`store()` is that of the newest ZooKeeper session; it and `register` raise KlammError."""
        super().__init__(
            "this broker's registration", broker_path(broker_id), self.check_registration, on_unexpected_error
        )
        self._store = store
        self._broker_id = broker_id
        self._register = register
        self._session_id = 0

    def on_registered(self, session_id: int) -> None:
        """Watch the registration that was made in this session.

        After the expiry of a session, the controller of this node resigns and then registers the broker; this class
        only watches.
        """
        self._session_id = session_id
        self.wake()

    async def check_registration(self) -> None:
        """Watch this broker's registration, and register again where it is gone. Raises KlammError."""
        store = self._store()
        if store.session_id != self._session_id:
            return
        while (owner := await store.watch_registration(self._broker_id)) is None:
            log.error("another client deleted the registration of this broker; registering again", znode=self._path)
            await self._register(store)
        if owner != self._session_id:
            log.error(
                "the registration of this broker belongs to another ZooKeeper session",
                znode=self._path,
                session=f"0x{owner:x}",
                action="Stop the other process with this broker.id, then restart this node.",
            )
