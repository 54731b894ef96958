"""CreatePartitions, on the active controller's broker. Source: KafkaApis.handleCreatePartitionsRequest (3.9)."""

from collections import Counter
from functools import partial
from typing import Final, Protocol

from klamm.broker.dispatch import Offered, Request
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.topic_growth import Grown, TopicGrowth
from klamm.model.errors import ErrorCode
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

CREATE_PARTITIONS: Final = Offered(ApiKey.CREATE_PARTITIONS, 0, 3)


class ControllerDeletions(Protocol):
    """What CreatePartitions needs to know of the controller."""

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller."""

    def is_queued_for_deletion(self, topic: str) -> bool:
        """Whether the topic is being deleted."""


class CreatePartitions:
    """Serves CreatePartitions."""

    def __init__(self, cache: MetadataCache, growth: TopicGrowth, controller: ControllerDeletions) -> None:
        self._cache = cache
        self._growth = growth
        self._controller = controller

    async def handle(self, request: Request, message: CreatePartitionsRequest) -> CreatePartitionsResponse:
        """Answer CreatePartitions: add partitions to each topic, and wait for their leaders.

        The wait ends at the request's timeout. With `validate_only` nothing is changed.
        """
        slices = request.slices
        counts: Counter[str] = Counter()
        requested: dict[str, CreatePartitionsTopic] = {}
        async for piece in slices.over(message.topics):
            counts.update(t.name for t in piece)
            requested.update({t.name: t for t in piece})
        grown = [
            await self._add_partitions(topic, counts[name], message.validate_only)
            async for name, topic in slices.each(requested.items())
        ]
        if not message.validate_only:
            await self._wait_for_leaders([g for g in grown if not g.error], message.timeout_ms)
        results = await slices.list_of(CreatePartitionsTopicResult(g.name, g.error, g.message) for g in grown)
        await slices.clear(grown)
        await slices.clear(requested)
        return CreatePartitionsResponse(results=results)

    async def _add_partitions(self, topic: CreatePartitionsTopic, times: int, validate_only: bool) -> Grown:
        """Add partitions to one topic, unless this broker is not controller or the request is invalid for it."""
        name = topic.name
        if not self._controller.is_active:
            return Grown(name, ErrorCode.NOT_CONTROLLER)
        if times > 1:
            return Grown(name, ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
        if self._controller.is_queued_for_deletion(name):
            return Grown(name, ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
        lists = None if topic.assignments is None else [a.broker_ids for a in topic.assignments]
        return await self._growth.add_partitions(name, topic.count, lists, validate_only=validate_only)

    async def _wait_for_leaders(self, grown: list[Grown], timeout_ms: int) -> None:
        """Wait until all new partitions have leaders in the metadata cache; late ones get a timeout error."""
        by_name = {g.name: g for g in grown}
        leading = {g.name: partial(self._cache.has_leaders, g.name, g.partitions) for g in grown}
        late = await self._cache.wait_until(leading, timeout_ms / 1000) if timeout_ms > 0 else by_name
        for name in late:
            by_name[name].error = ErrorCode.REQUEST_TIMED_OUT
