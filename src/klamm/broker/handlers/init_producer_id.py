"""InitProducerId for idempotent producers. Source: KafkaApis.handleInitProducerIdRequest (3.9).

Transactions are not offered: a transactional id finds no coordinator, which clients know how to report.
"""

from typing import Final

from klamm.broker.dispatch import Offered, Request
from klamm.broker.producer_ids import ProducerIds
from klamm.model.errors import ErrorCode
from klamm.wire.api import ApiKey
from klamm.wire.messages import InitProducerIdRequest, InitProducerIdResponse

INIT_PRODUCER_ID: Final = Offered(ApiKey.INIT_PRODUCER_ID, 0, 5)


class InitProducerId:
    """Serves InitProducerId."""

    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    async def handle(self, request: Request, message: InitProducerIdRequest) -> InitProducerIdResponse:
        """A new producer id with epoch 0. An id in the request is not continued, as in Kafka."""
        if message.transactional_id is not None:
            empty = message.transactional_id == ""
            return _error_response(ErrorCode.INVALID_REQUEST if empty else ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if (message.producer_id == -1) != (message.producer_epoch == -1):
            return _error_response(ErrorCode.INVALID_REQUEST)
        producer_id = await self._producer_ids.next_id()
        if producer_id is None:
            return _error_response(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _error_response(error: ErrorCode) -> InitProducerIdResponse:
    """Return a response with this error, and -1 for producer id and epoch."""
    return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
