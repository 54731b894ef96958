"""Taking the office when an operator wants this node to have it: `klamm controller reelect --broker N`."""

from collections.abc import Callable
from typing import Protocol

import structlog

from klamm.broker.znode_follower import OnUnexpectedError, ZnodeFollower, log_unexpected_error
from klamm.model.ids import BrokerId
from klamm.zk.office_requests import remove_office_request, watch_office_request
from klamm.zk.store import Store
from klamm.zk.watches import WatchEvent
from klamm.zk.znodes import NEXT_CONTROLLER, MalformedZnode

log = structlog.get_logger("node")


class Candidate(Protocol):
    async def take_office(self, epoch: int) -> bool: ...


class ControllerHandover:
    """`start` once ZooKeeper may be asked; `renewed` with each later session; `close` at the end."""

    def __init__(
        self,
        store: Callable[[], Store],
        broker_id: BrokerId,
        candidate: Candidate,
        on_unexpected_error: OnUnexpectedError = log_unexpected_error,
    ) -> None:
        """`store()` is that of the newest ZooKeeper session; raises KlammError where there is none."""
        self._store = store
        self._broker_id = broker_id
        self._candidate = candidate
        self._following = ZnodeFollower("requests for the office", self.look, on_unexpected_error)
        self._obeyed: int | None = None
        """The last wish, by its zxid."""

    def start(self) -> None:
        self._following.start()

    async def close(self) -> None:
        await self._following.close()

    def on_watch(self, event: WatchEvent) -> None:
        if event.path == NEXT_CONTROLLER:
            self._following.wake()

    def renewed(self) -> None:
        """A new session knows no watches of the old one."""
        self._following.wake()

    async def look(self) -> None:
        """Do what is asked of us; what cannot be done now is not done later. Raises KlammError.

        A wish that ZooKeeper does not let us remove is looked at again and again, and obeyed once.
        """
        client = self._store().client
        try:
            request = await watch_office_request(client)
        except MalformedZnode as error:
            log.error("request for the office ignored", reason=str(error))
            return
        if request is None or request.broker != self._broker_id:
            return
        if request.zxid != self._obeyed:
            self._obeyed = request.zxid
            taken = await self._candidate.take_office(request.epoch)
            log.info("the office was asked for", epoch=request.epoch, taken=taken)
        await remove_office_request(client, request.version)
