"""The connection of a fetcher to its leader, and the requests sent over it.

Source: RemoteLeaderEndPoint.scala, BrokerBlockingSender.scala.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from klamm.client.offsets import offset_results
from klamm.client.ports import BrokerConnection
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.replication.ports import MetadataPort, PartitionRefused
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    FetchRequest,
    FetchResponse,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LIST_OFFSETS_VERSION: Final = 9


Connect = Callable[[str, int, str], Awaitable[BrokerConnection]]
"""`connect(host, port, client_id)`; raises KlammError, OSError or TimeoutError."""


class LeaderUnknown(KlammError):
    """The metadata has no address for the leader."""


class LeaderEndPoint:
    """Sends requests to one leader; looks its address up in the metadata for every new connection."""

    def __init__(
        self,
        broker_id: BrokerId,
        leader_id: BrokerId,
        client_id: str,
        metadata: MetadataPort,
        connect: Connect,
        timeout_s: float,
    ) -> None:
        self._broker_id = broker_id
        self._leader_id = leader_id
        self._client_id = client_id
        self._metadata = metadata
        self._connect = connect
        self._timeout_s = timeout_s
        self._connection: BrokerConnection | None = None

    async def fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        """Send the fetch request in this version to the leader and return its response."""
        response: FetchResponse = await self._send_request(ApiKey.FETCH, version, request)
        return response

    async def list_offset(self, topic_partition: TopicPartition, leader_epoch: int, timestamp: int) -> int:
        """Ask the leader for its first offset (EARLIEST) or its log end offset (LATEST). Raises PartitionRefused."""
        wanted = ListOffsetsPartition(
            partition_index=topic_partition.partition, current_leader_epoch=leader_epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=self._broker_id, topics=[ListOffsetsTopic(name=topic_partition.topic, partitions=[wanted])]
        )
        response: ListOffsetsResponse = await self._send_request(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, request)
        found = {result.partition: result for result in offset_results(response)}
        if topic_partition not in found:
            raise PartitionRefused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{topic_partition} is missing in the ListOffsets response of broker {self._leader_id}",
            )
        _, code, position = found[topic_partition]
        if code:
            raise PartitionRefused(
                ErrorCode(code),
                f"{topic_partition}: broker {self._leader_id} refused ListOffsets with {ErrorCode(code).name}",
            )
        return position.offset

    def close(self) -> None:
        """Close the connection to the leader, if there is one; the next request opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def _send_request(self, api_key: ApiKey, version: int, message: Any) -> Any:
        """Send a request to the leader, opening the connection if there is none."""
        connection = self._connection
        if connection is None or connection.closed:
            connection = self._connection = await self._open_connection()
        return await connection.request(api_key, version, message, self._timeout_s)

    async def _open_connection(self) -> BrokerConnection:
        """Connect to the leader's current address. Raises LeaderUnknown."""
        address = self._metadata.endpoint(self._leader_id)
        if address is None:
            raise LeaderUnknown(
                f"the leader, broker {self._leader_id}, is not in the metadata or has no inter-broker listener "
                "(inter.broker.listener.name)"
            )
        return await self._connect(*address, self._client_id)
