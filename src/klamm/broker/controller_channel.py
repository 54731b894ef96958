"""Sends requests to the active controller. Source: NodeToControllerChannelManager.scala.

The metadata cache names the controller. After a lost connection or NOT_CONTROLLER in the response, the cache is read
again; a request is repeated until a controller answers it or its caller is cancelled.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import structlog

from klamm.broker.metadata_cache import MetadataCache
from klamm.client.connection import Connection
from klamm.client.errors import ConnectionLost, UnsupportedVersion
from klamm.client.versions import Request
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.runtime.world import World
from klamm.wire.api import ApiKey
from klamm.wire.messages import AlterPartitionResponse

_RETRY_BACKOFF_S: Final = 0.1
Address = tuple[str, int]
log = structlog.get_logger("controller-channel")


class ControllerChannel:
    """One connection, opened when first needed."""

    def __init__(
        self, world: World, cache: MetadataCache, broker_id: BrokerId, connect_timeout_s: float, answer_timeout_s: float
    ) -> None:
        self._world = world
        self._cache = cache
        self._client_id = str(broker_id)
        self._connect_timeout_s = connect_timeout_s
        self._answer_timeout_s = answer_timeout_s
        self._connection: Connection | None = None
        self._address: Address | None = None
        self._opening = asyncio.Lock()

    async def ask(
        self,
        api_key: ApiKey,
        newest: int,
        build: Callable[[int], Any],
        is_refused: Callable[[Any], bool] = lambda answer: False,
        is_repeated: Callable[[Any], bool] = lambda answer: False,
    ) -> Any:
        """Send a request to the active controller and return its response; waits and retries while there is none.

        `build` makes the request for a version, `newest` is the highest that may be sent. `is_refused` tells whether a
        response means that the broker that sent it is not the controller, `is_repeated` whether that broker is asked
        once more, because it may be the controller.
        """
        while True:
            address = self._controller_address()
            generation = self._cache.generation
            if address is not None:
                try:
                    connection = await self._connect(address)
                    answer = await connection.ask(Request(api_key, build, newest=newest), self._answer_timeout_s)
                    if is_refused(answer):
                        self._forget_controller(address, generation)
                    elif not is_repeated(answer):
                        return answer
                except (ConnectionLost, UnsupportedVersion) as error:
                    log.info(
                        "no answer from the controller; the request is sent again",
                        api=api_key.name,
                        reason=str(error),
                        retry_s=_RETRY_BACKOFF_S,
                    )
            await asyncio.sleep(_RETRY_BACKOFF_S)

    def close(self) -> None:
        """Close the connection to the controller, if there is one."""
        if self._connection is not None:
            self._connection.close()

    def controller_may_have_changed(self) -> None:
        """Close the connection if the controller was replaced.

        The old one may hang, and would block requests until the timeout.
        """
        address = self._controller_address()
        if address is not None and address != self._address:
            self.close()

    def _forget_controller(self, address: Address, generation: int) -> None:
        """Remove this address from the metadata as controller, unless newer metadata has arrived since the request."""
        if self._controller_address() == address and self._cache.generation == generation:
            self._cache.forget_controller()

    def _controller_address(self) -> Address | None:
        """The controller's address in the metadata cache, or None."""
        controller = self._cache.controller_id
        return None if controller is None else self._cache.endpoint(controller)

    async def _connect(self, address: Address) -> Connection:
        """The open connection to this address; a new one where there is none."""
        async with self._opening:
            connection = self._connection
            if connection is not None and self._address == address and not connection.closed:
                return connection
            self.close()
            host, port = address
            connection = await Connection.open(self._world, host, port, self._client_id, self._connect_timeout_s)
            self._connection, self._address = connection, address
            await connection.negotiate(self._answer_timeout_s)
            return connection


def is_not_controller(answer: Any) -> bool:
    """Whether the answer's only error code is NOT_CONTROLLER."""
    return bool(answer.error_code == ErrorCode.NOT_CONTROLLER)


def is_not_controller_for_any_topic(answer: Any) -> bool:
    """Whether the answer has NOT_CONTROLLER for one of its topics."""
    return any(is_not_controller(topic) for topic in answer.topics)


def is_not_controller_for_a_partition(answer: AlterPartitionResponse) -> bool:
    """Whether the answer has NOT_CONTROLLER for one of its partitions: the leader knows a newer epoch than the broker.

    So answers a controller that was replaced, but also the current one, if another client deleted the state znode.
    """
    return any(
        partition.error_code == ErrorCode.NOT_CONTROLLER for topic in answer.topics for partition in topic.partitions
    )
