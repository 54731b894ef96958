"""Blocks of producer ids for brokers. Source: processAllocateProducerIds (3.9)."""

from klamm.controller.events import AllocateProducerIds, ProducerIds
from klamm.controller.term_context import TermContext
from klamm.model.errors import ErrorCode


async def on_allocate_producer_ids(term: TermContext, event: AllocateProducerIds) -> None:
    """Allocate a block of producer ids for a registered broker, and answer."""
    known = term.context.registered.get(event.broker)
    if known is None:
        event.refuse(ErrorCode.BROKER_ID_NOT_REGISTERED)
    elif known.epoch != event.broker_epoch:
        event.refuse(ErrorCode.STALE_BROKER_EPOCH)
    else:
        block = await term.store.allocate_producer_ids(event.broker)
        term.journal.write(term.cause, "producer ids", broker=event.broker, first=block.first, last=block.last)
        event.answer(ProducerIds(ErrorCode.NONE, block.first, block.last - block.first + 1))
