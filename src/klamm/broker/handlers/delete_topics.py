"""DeleteTopics, on the active controller's broker. Source: KafkaApis.handleDeleteTopicsRequest (3.9)."""

import uuid
from collections.abc import Callable, Collection
from functools import partial
from typing import Final, Protocol

from klamm.broker.dispatch import Offered, Request
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.topic_creation import zookeeper_error_code
from klamm.broker.topic_names import name_error
from klamm.model.errors import ErrorCode
from klamm.model.topic_ids import ZERO_ID
from klamm.wire.api import ApiKey
from klamm.wire.messages import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from klamm.zk.errors import ZkError
from klamm.zk.store import Store

DELETE_TOPICS: Final = Offered(ApiKey.DELETE_TOPICS, 0, 6)
_FIRST_WITH_IDS: Final = 6
_FIRST_WITH_DELETION_DISABLED: Final = 3


class ControllerTopicNames(Protocol):
    """What DeleteTopics needs to know of the controller."""

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller."""

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """The name of the topic with this id, or None."""


class DeleteTopics:
    """Serves DeleteTopics; a topic counts as deleted once it has left the metadata cache."""

    def __init__(
        self, cache: MetadataCache, store: Callable[[], Store], controller: ControllerTopicNames, is_enabled: bool
    ) -> None:
        self._cache = cache
        self._store = store
        self._controller = controller
        self._is_enabled = is_enabled

    async def handle(self, request: Request, message: DeleteTopicsRequest) -> DeleteTopicsResponse:
        """Answer DeleteTopics: delete each known topic, and wait up to the request's timeout until it is gone."""
        asked = _requested_topics(request, message)
        if (refusal := self._request_error(request, asked)) is not ErrorCode.NONE:
            return DeleteTopicsResponse(
                responses=[DeletableTopicResult(name=t.name, topic_id=t.topic_id, error_code=refusal) for t in asked]
            )
        results = [self._resolve(topic) for topic in asked]
        await self._delete([r for r in results if not r.error_code], message.timeout_ms)
        return DeleteTopicsResponse(responses=results)

    def _request_error(self, request: Request, asked: list[DeleteTopicState]) -> ErrorCode:
        """The error for the whole request; NONE where it is valid."""
        if not self._controller.is_active:
            return ErrorCode.NOT_CONTROLLER
        if not self._is_enabled:
            knows = request.version >= _FIRST_WITH_DELETION_DISABLED
            return ErrorCode.TOPIC_DELETION_DISABLED if knows else ErrorCode.INVALID_REQUEST
        names_both = any(t.name is not None and t.topic_id != ZERO_ID for t in asked)
        return ErrorCode.INVALID_REQUEST if names_both else ErrorCode.NONE

    def _resolve(self, topic: DeleteTopicState) -> DeletableTopicResult:
        """The result of one topic before deletion: its name and id, with an error where it is unknown."""
        if topic.topic_id == ZERO_ID:
            name, unknown = topic.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            name, unknown = self._controller.topic_name(topic.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
        if name is None:
            return DeletableTopicResult(name=None, topic_id=topic.topic_id, error_code=unknown)
        error = ErrorCode.NONE if name_error(name) is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DeletableTopicResult(name=name, topic_id=topic.topic_id, error_code=error)

    async def _delete(self, wanted: list[DeletableTopicResult], timeout_ms: int) -> None:
        """Request the deletions in ZooKeeper and wait for them; errors are set in the results."""
        names = list(dict.fromkeys(r.name for r in wanted if r.name is not None))
        if not names:
            return
        known = {name for name in names if self._cache.has_topic(name)}
        try:
            found = await self._store().topic_requests.request_deletions(names)
        except ZkError as error:
            for result in wanted:
                result.error_code = zookeeper_error_code(error)
                result.error_message = f"The deletion was not written to ZooKeeper: {error}. Try again."
            return
        for result in wanted:
            # the metadata cache lacks topics that never had a leader or are half deleted; ZooKeeper has them
            if result.name in found.missing or (result.name in found.marked_before and result.name not in known):
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await self._wait_for_deletion([r for r in wanted if not r.error_code], timeout_ms)

    async def _wait_for_deletion(self, wanted: list[DeletableTopicResult], timeout_ms: int) -> None:
        """Wait until the metadata cache has none of the topics; those that take longer get REQUEST_TIMED_OUT."""
        late: Collection[str | None] = {r.name for r in wanted}
        if timeout_ms > 0:
            gone = {r.name: partial(self._is_gone, r.name) for r in wanted if r.name is not None}
            late = set(await self._cache.wait_until(gone, timeout_ms / 1000))
        for result in wanted:
            if result.name in late:
                result.error_code = ErrorCode.REQUEST_TIMED_OUT

    def _is_gone(self, topic: str) -> bool:
        """Whether the topic has left the metadata cache."""
        return not self._cache.has_topic(topic)


def _requested_topics(request: Request, message: DeleteTopicsRequest) -> list[DeleteTopicState]:
    """The topics of the request, each once; versions before 6 have names only."""
    if request.version < _FIRST_WITH_IDS:
        return [DeleteTopicState(name, ZERO_ID) for name in dict.fromkeys(message.topic_names)]
    return list({(t.name, t.topic_id): t for t in message.topics}.values())
