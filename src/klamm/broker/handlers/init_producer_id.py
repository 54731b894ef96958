"""InitProducerId of idempotent and transactional producers. Source: KafkaApis.handleInitProducerIdRequest (3.9)."""

from typing import Final

from klamm.broker.dispatch import Offered, Request
from klamm.broker.producer_ids import ProducerIds
from klamm.coordinator.requests import ProducerIdAndEpoch
from klamm.coordinator.transactions.coordinator import TransactionCoordinator
from klamm.coordinator.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID
from klamm.model.errors import ErrorCode
from klamm.wire.api import ApiKey
from klamm.wire.messages import InitProducerIdRequest, InitProducerIdResponse

INIT_PRODUCER_ID: Final = Offered(ApiKey.INIT_PRODUCER_ID, 0, 5)
_KNOWS_PRODUCER_FENCED: Final = 4


class InitProducerId:
    """Serves InitProducerId."""

    def __init__(self, producer_ids: ProducerIds, coordinator: TransactionCoordinator) -> None:
        self._producer_ids = producer_ids
        self._coordinator = coordinator

    async def handle(self, request: Request, message: InitProducerIdRequest) -> InitProducerIdResponse:
        """Answer InitProducerId: a new producer id, or the id of the transactional id with the next epoch."""
        if (message.producer_id == NO_PRODUCER_ID) != (message.producer_epoch == NO_EPOCH):
            return _error_response(ErrorCode.INVALID_REQUEST)
        if message.transactional_id is None:
            return await self._new_id()
        has_id = message.producer_id != NO_PRODUCER_ID
        expected = ProducerIdAndEpoch(message.producer_id, message.producer_epoch) if has_id else None
        error, producer_id, epoch = await self._coordinator.init_producer_id(
            message.transactional_id, message.transaction_timeout_ms, expected
        )
        if error is ErrorCode.PRODUCER_FENCED and request.version < _KNOWS_PRODUCER_FENCED:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        return InitProducerIdResponse(error_code=error, producer_id=producer_id, producer_epoch=epoch)

    async def _new_id(self) -> InitProducerIdResponse:
        """A new producer id with epoch 0. An id in the request is not continued, as in Kafka."""
        producer_id = await self._producer_ids.next_id()
        if producer_id is None:
            return _error_response(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _error_response(error: ErrorCode) -> InitProducerIdResponse:
    """Return a response with this error, and -1 for producer id and epoch."""
    return InitProducerIdResponse(error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)
