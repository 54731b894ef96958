"""Handover of the controller to this node on an operator's request: `klamm controller reelect --broker N`."""

from collections.abc import Callable
from typing import Protocol

import structlog

from klamm.broker.znode_follower import OnUnexpectedError, ZnodeFollower, log_unexpected_error
from klamm.model.ids import BrokerId
from klamm.zk.store import Store
from klamm.zk.znodes import NEXT_CONTROLLER, MalformedZnode

log = structlog.get_logger("node")


class Candidate(Protocol):
    """This node's controller, which may take over."""

    async def become_controller(self, epoch: int) -> bool:
        """Try to become controller in place of the controller of this epoch.

        Returns whether this node is controller now.
        """


class ControllerHandover(ZnodeFollower):
    """Follows the znode in which an operator names the next controller."""

    def __init__(
        self,
        store: Callable[[], Store],
        broker_id: BrokerId,
        candidate: Candidate,
        on_unexpected_error: OnUnexpectedError = log_unexpected_error,
    ) -> None:
        """`store()` is that of the newest ZooKeeper session; raises KlammError where there is none."""
        super().__init__("the requested controller handover", NEXT_CONTROLLER, self.handle_request, on_unexpected_error)
        self._store = store
        self._broker_id = broker_id
        self._candidate = candidate
        self._last_zxid: int | None = None
        """Of the last request that was carried out."""

    async def handle_request(self) -> None:
        """Carry out a handover request for this broker once, and remove it, whatever the result.

        Raises KlammError. A request whose removal fails is read again, and not carried out a second time.
        """
        store = self._store()
        try:
            request = await store.watch_handover_request()
        except MalformedZnode as error:
            log.error(
                "controller handover request ignored: its znode is malformed",
                reason=str(error),
                action=f"Delete it: klamm zk delete {NEXT_CONTROLLER}",
            )
            return
        if request is None or request.broker != self._broker_id:
            return
        if request.zxid != self._last_zxid:
            self._last_zxid = request.zxid
            taken = await self._candidate.become_controller(request.epoch)
            log.info("handled a request to make this node the controller", epoch=request.epoch, became_controller=taken)
        await store.remove_handover_request(request.version)
