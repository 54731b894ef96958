"""Requests to whoever is controller. Source: NodeToControllerChannelManager.scala.

The controller is the one the metadata cache names. A lost connection, or NOT_CONTROLLER anywhere in the answer, means
looking again; the request is repeated until somebody answers it or its caller gives up.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import structlog

from klamm.broker.metadata_cache import MetadataCache
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.net.client import Connection, ConnectionLost
from klamm.runtime.world import World
from klamm.wire.api import ApiKey

_LOOK_AGAIN_S: Final = 0.1
log = structlog.get_logger("controller channel")


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
        self._address: tuple[str, int] | None = None
        self._opening = asyncio.Lock()

    async def ask(
        self, api_key: ApiKey, version: int, message: Any, is_refused: Callable[[Any], bool] = lambda answer: False
    ) -> Any:
        """The controller's answer; waits as long as there is none. `is_refused`: it says that it is not controller."""
        while True:
            address = self._controller_address()
            if address is None:
                await asyncio.sleep(_LOOK_AGAIN_S)
                continue
            try:
                connection = await self._connected(address)
                answer = await connection.request(api_key, version, message, self._answer_timeout_s)
            except ConnectionLost as error:
                log.info("no answer from the controller, asking again", api=api_key.name, reason=str(error))
                await asyncio.sleep(_LOOK_AGAIN_S)
                continue
            if not is_refused(answer):
                return answer
            if self._controller_address() == address:
                self._cache.forget_controller()
            await asyncio.sleep(_LOOK_AGAIN_S)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _controller_address(self) -> tuple[str, int] | None:
        controller = self._cache.controller_id
        return None if controller is None else self._cache.endpoint(controller)

    async def _connected(self, address: tuple[str, int]) -> Connection:
        async with self._opening:
            connection = self._connection
            if connection is not None and self._address == address and not connection.closed:
                return connection
            self.close()
            host, port = address
            connection = await Connection.open(self._world, host, port, self._client_id, self._connect_timeout_s)
            self._connection, self._address = connection, address
            return connection


def says_not_controller(answer: Any) -> bool:
    return bool(answer.error_code == ErrorCode.NOT_CONTROLLER)
