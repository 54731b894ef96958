"""Controlled shutdown: the controller moves this broker's leaders first. Source: KafkaServer.scala (3.9)."""

import asyncio
from collections.abc import Callable
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


class _Skipped(Exception):
    """There is nobody to ask; the reason is the text."""


class ControlledShutdown:
    """Asks up to `controlled.shutdown.max.retries` times. The last node of a cluster does not ask.

    Between two times it waits for `controlled.shutdown.retry.backoff.ms`, as Apache Kafka does. Without an answer of a
    controller it looks for one all that time, so that it leaves soon after another controller was elected.
    """

    def __init__(
        self,
        world: World,
        config: NodeConfig,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        sessions: ZooKeeperSessions,
    ) -> None:
        """`broker_epoch` returns that of the newest registration: a session may end while the broker shuts down."""
        self._world = world
        self._config = config
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._sessions = sessions

    async def run(self) -> bool:
        """Ask the controller to move this broker's leaders; True once it has moved all that can move. Never raises."""
        loop = asyncio.get_running_loop()
        retry_s = self._config.controlled_shutdown_retry_backoff_ms / 1000
        attempts = self._config.controlled_shutdown_max_retries
        try:
            for attempt in range(1, attempts + 1):
                until = loop.time() + (retry_s if attempt < attempts else 0)
                remaining = await self._ask(attempt, until)
                if remaining == 0:
                    log.info("controlled shutdown: all leaders have moved", attempt=attempt)
                    return True
                if remaining is not None:
                    log.warning(
                        "controlled shutdown: this broker still leads partitions",
                        attempt=attempt,
                        attempts=attempts,
                        partitions=remaining,
                    )
                await asyncio.sleep(until - loop.time())
        except _Skipped as skipped:
            log.warning("controlled shutdown skipped", reason=str(skipped))
        return False

    async def _ask(self, attempt: int, until: float) -> int | None:
        """Return how many partitions this broker still leads that could move; None without an answer.

        Where no controller answers, others are asked until the loop's time `until`. Raises _Skipped.
        """
        loop = asyncio.get_running_loop()
        logged = ""
        while True:
            try:
                return await self._request_shutdown(await self._controller_address())
            except KlammError as error:
                if str(error) != logged:
                    logged = str(error)
                    log.warning("controlled shutdown: no answer from the controller", attempt=attempt, reason=logged)
            if loop.time() + _CONTROLLER_RETRY_S > until:
                return None
            await asyncio.sleep(_CONTROLLER_RETRY_S)

    async def _controller_address(self) -> Address:
        """Return the address of the controller. Raises KlammError where there is none, _Skipped."""
        store = self._sessions.store
        try:
            async with asyncio.timeout(_ZOOKEEPER_TIMEOUT_S):
                brokers = (await store.read_brokers()).brokers
                controller = await store.read_controller()
        except (KlammError, TimeoutError) as error:
            why = str(error) or f"no answer from ZooKeeper within {_ZOOKEEPER_TIMEOUT_S:g} s"
            raise _Skipped(
                f"cannot read the controller from ZooKeeper: {why}. The controller moves the leaders when the session "
                "of this broker ends."
            ) from error
        if set(brokers) <= {self._broker_id}:
            raise _Skipped("no other broker is registered")
        if controller is not None and controller.broker in brokers:
            name = self._config.control_plane_listener or self._config.inter_broker_listener
            endpoint = brokers[controller.broker].broker.endpoint(name)
            if endpoint is not None:
                return Address(endpoint.host, endpoint.port)
        raise KlammError("no controller is elected, or it is not registered as a broker")

    async def _request_shutdown(self, controller: Address) -> int:
        """Send ControlledShutdown.

        Returns how many partitions this broker still leads that could move. Raises KlammError.
        """
        timeout_s = self._config.controller_socket_timeout_ms / 1000
        request = ControlledShutdownRequest(self._broker_id, self._broker_epoch())
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
