"""Controlled shutdown: the controller moves this broker's leaders first. Source: KafkaServer.scala (3.9)."""

import asyncio
from contextlib import suppress
from typing import Final

import structlog

from klamm.broker.zookeeper_sessions import ZooKeeperSessions
from klamm.client.asynchronous import AsyncClient, AsyncSettings
from klamm.client.versions import Request
from klamm.config.node_config import NodeConfig
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId
from klamm.replication.partition import Partition
from klamm.runtime.world import World
from klamm.wire.api import ApiKey
from klamm.wire.messages import ControlledShutdownRequest, ControlledShutdownResponse

_CONTROLLER_RETRY_S: Final = 0.25
_ZOOKEEPER_TIMEOUT_S: Final = 3.0
LEADERSHIP_TIMEOUT_S: Final = 1.0
"""How long the LeaderAndIsr is awaited that takes away the leaders: Kafka's controller answers before it sends that."""
CLIENTS_TIMEOUT_S: Final = 0.05
"""How long clients are served after that: each learns of the new leaders with its next request."""
_LEADERSHIP_CHECK_S: Final = 0.01
log = structlog.get_logger("node")


class ControlledShutdown:
    """Asks up to `controlled.shutdown.max.retries` times. The last node of a cluster does not ask."""

    def __init__(
        self, world: World, config: NodeConfig, broker_id: BrokerId, broker_epoch: int, sessions: ZooKeeperSessions
    ) -> None:
        self._world = world
        self._config = config
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._sessions = sessions

    async def run(self) -> bool:
        """Ask the controller to move this broker's leaders; True once it has moved all that can move. Never raises."""
        for attempt in range(1, self._config.controlled_shutdown_max_retries + 1):
            try:
                async with asyncio.timeout(_ZOOKEEPER_TIMEOUT_S):
                    address = await self._controller_address()
            except (KlammError, TimeoutError) as error:
                why = str(error) or f"no answer from ZooKeeper within {_ZOOKEEPER_TIMEOUT_S:g} s"
                log.warning(
                    "controlled shutdown skipped: cannot read the controller from ZooKeeper; the controller moves the "
                    "leaders when the session of this broker expires",
                    reason=why,
                )
                return False
            if address is None:
                log.info("controlled shutdown skipped: no other broker is registered")
                return False
            try:
                remaining = await self._request_shutdown(address)
            except KlammError as error:
                log.warning(
                    "controlled shutdown: no answer from the controller; retrying",
                    attempt=attempt,
                    reason=str(error),
                    retry_s=_CONTROLLER_RETRY_S,
                )
                await asyncio.sleep(_CONTROLLER_RETRY_S)  # the next one is elected at once
                continue
            if not remaining:
                log.info("controlled shutdown: all leaders have moved", attempt=attempt)
                return True
            retry_s = self._config.controlled_shutdown_retry_backoff_ms / 1000
            log.warning(
                "controlled shutdown: this broker still leads partitions; retrying",
                attempt=attempt,
                partitions=remaining,
                retry_s=retry_s,
            )
            await asyncio.sleep(retry_s)
        return False

    async def _controller_address(self) -> Address | None:
        """Return the address of the controller; None where no other broker is registered."""
        store = self._sessions.store
        while True:
            brokers = (await store.read_brokers()).brokers
            if set(brokers) <= {self._broker_id}:
                return None
            controller = await store.read_controller()
            if controller is not None and controller.broker in brokers:
                name = self._config.control_plane_listener or self._config.inter_broker_listener
                endpoint = brokers[controller.broker].broker.endpoint(name)
                if endpoint is not None:
                    return Address(endpoint.host, endpoint.port)
            await asyncio.sleep(_CONTROLLER_RETRY_S)

    async def _request_shutdown(self, controller: Address) -> int:
        """Send ControlledShutdown.

        Returns how many partitions this broker still leads that could move. Raises KlammError.
        """
        timeout_s = self._config.controller_socket_timeout_ms / 1000
        request = ControlledShutdownRequest(self._broker_id, self._broker_epoch)
        async with AsyncClient(self._world, (), AsyncSettings(str(self._broker_id), timeout_s, timeout_s)) as client:
            answer: ControlledShutdownResponse = await client.ask(
                controller, Request(ApiKey.CONTROLLED_SHUTDOWN, request)
            )
        if answer.error_code:
            raise KlammError(f"the controller refused ControlledShutdown with {ErrorCode(answer.error_code).name}")
        return len(answer.remaining_partitions)


async def let_clients_move(led: list[Partition]) -> None:
    """Serve clients until this broker has stopped leading `led`, and a moment longer, so that they move at once.

    A client whose connection is closed instead waits for its backoff and for new metadata. Empties `led`.
    """
    if not led:
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(LEADERSHIP_TIMEOUT_S):
            while led:
                if led[-1].is_leader:
                    await asyncio.sleep(_LEADERSHIP_CHECK_S)
                else:
                    led.pop()
    await asyncio.sleep(CLIENTS_TIMEOUT_S)
