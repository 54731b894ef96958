"""Brokers' requests to the controller: ControlledShutdown, AlterPartition, AllocateProducerIds, Envelope.

In ZooKeeper mode brokers forward nothing, so the connection that sends an Envelope is closed, as in Kafka after an
unreadable request. Source: KafkaApis.scala (3.9).
"""

from typing import Final

from klamm.broker.dispatch import Offered, Request
from klamm.controller.controller import Controller
from klamm.model.ids import BrokerId
from klamm.net.server import CloseConnection
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    EnvelopeRequest,
    EnvelopeResponse,
    RemainingPartition,
)

CONTROLLED_SHUTDOWN: Final = Offered(ApiKey.CONTROLLED_SHUTDOWN, 0, 3)
ALTER_PARTITION: Final = Offered(ApiKey.ALTER_PARTITION, 0, 3)
ALLOCATE_PRODUCER_IDS: Final = Offered(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0)


class ControllerApis:
    """Serves the requests of brokers to this node's controller."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def controlled_shutdown(
        self, request: Request, message: ControlledShutdownRequest
    ) -> ControlledShutdownResponse:
        """Answer ControlledShutdown: the controller moves leaders off the broker.

        The response names the partitions that the broker still leads.
        """
        answer = await self._controller.controlled_shutdown(BrokerId(message.broker_id), message.broker_epoch)
        return ControlledShutdownResponse(
            error_code=answer.error,
            remaining_partitions=[RemainingPartition(p.topic, p.partition) for p in answer.remaining],
        )

    async def alter_partition(self, request: Request, message: AlterPartitionRequest) -> AlterPartitionResponse:
        """Answer AlterPartition: the controller stores the ISRs that leaders propose."""
        return await self._controller.alter_partition(message, request.version)

    async def allocate_producer_ids(
        self, request: Request, message: AllocateProducerIdsRequest
    ) -> AllocateProducerIdsResponse:
        """Answer AllocateProducerIds: the controller gives the broker a block of producer ids that no other has."""
        block = await self._controller.allocate_producer_ids(BrokerId(message.broker_id), message.broker_epoch)
        return AllocateProducerIdsResponse(
            error_code=block.error, producer_id_start=block.first, producer_id_len=block.length
        )


ENVELOPE: Final = Offered(ApiKey.ENVELOPE, 0, 0)


class Envelope:
    """Serves Envelope."""

    def handle(self, request: Request, message: EnvelopeRequest) -> EnvelopeResponse:
        """Close the connection, because no broker in ZooKeeper mode forwards requests. Raises CloseConnection."""
        raise CloseConnection("the client sent an Envelope request, which only KRaft supports. Check the client.")
