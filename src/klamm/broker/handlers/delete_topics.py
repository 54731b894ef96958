"""DeleteTopics, on the active controller's broker. Source: KafkaApis.handleDeleteTopicsRequest (3.9)."""

import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, Protocol

from klamm.broker.dispatch import Offered, Request
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.topic_creation import zookeeper_error_code
from klamm.broker.topic_names import name_error
from klamm.model.errors import ErrorCode
from klamm.model.topic_ids import ZERO_ID
from klamm.runtime.time_slices import Slices
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
        slices = request.slices
        requested = await _requested_topics(request, message)
        if (refusal := await self._request_error(request, requested)) is not ErrorCode.NONE:
            return DeleteTopicsResponse(
                responses=await slices.list_of(
                    DeletableTopicResult(name=t.name, topic_id=t.topic_id, error_code=refusal) for t in requested
                )
            )
        results = await slices.list_of(map(self._resolve, requested))
        await self._delete(results, message.timeout_ms, slices)
        return DeleteTopicsResponse(responses=results)

    async def _request_error(self, request: Request, requested: list[DeleteTopicState]) -> ErrorCode:
        """The error for the whole request; NONE where it is valid."""
        if not self._controller.is_active:
            return ErrorCode.NOT_CONTROLLER
        if not self._is_enabled:
            knows = request.version >= _FIRST_WITH_DELETION_DISABLED
            return ErrorCode.TOPIC_DELETION_DISABLED if knows else ErrorCode.INVALID_REQUEST
        names_both = await request.slices.list_of(t.name is not None and t.topic_id != ZERO_ID for t in requested)
        return ErrorCode.INVALID_REQUEST if any(names_both) else ErrorCode.NONE

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

    async def _delete(self, results: list[DeletableTopicResult], timeout_ms: int, slices: Slices) -> None:
        """Request the deletions in ZooKeeper and wait for them; errors are set in the results that have none."""
        wanted: dict[str, list[DeletableTopicResult]] = {}
        await slices.run(_add_by_name(results, wanted))
        if not wanted:
            return
        known = await slices.dict_of((name, self._cache.has_topic(name)) for name in wanted)
        try:
            found = await self._store().topic_requests.request_deletions(await slices.list_of(wanted))
        except ZkError as error:
            text = f"The deletion was not written to ZooKeeper: {error}. Try again."
            await slices.run(_refuse(wanted.values(), zookeeper_error_code(error), text))
            return
        # the metadata cache lacks topics that never had a leader or are half deleted; ZooKeeper has them
        unknown = [*found.missing, *(name for name in found.marked_before if not known[name])]
        await slices.run(_refuse((wanted.pop(name) for name in unknown), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        await self._wait_for_deletion(wanted, timeout_ms, slices)

    async def _wait_for_deletion(
        self, wanted: dict[str, list[DeletableTopicResult]], timeout_ms: int, slices: Slices
    ) -> None:
        """Wait until the metadata cache has none of the topics; those that take longer get REQUEST_TIMED_OUT."""
        late: Iterable[str] = wanted
        if timeout_ms > 0:
            gone = await slices.dict_of((name, partial(self._is_gone, name)) for name in wanted)
            late = await self._cache.wait_until(gone, timeout_ms / 1000)
        await slices.run(_refuse((wanted[name] for name in late), ErrorCode.REQUEST_TIMED_OUT))

    def _is_gone(self, topic: str) -> bool:
        """Whether the topic has left the metadata cache."""
        return not self._cache.has_topic(topic)


async def _requested_topics(request: Request, message: DeleteTopicsRequest) -> list[DeleteTopicState]:
    """The topics of the request, each once; versions before 6 have names only."""
    slices = request.slices
    if request.version < _FIRST_WITH_IDS:
        return await slices.list_of(DeleteTopicState(name, ZERO_ID) for name in dict.fromkeys(message.topic_names))
    return await slices.list_of((await slices.dict_of(((t.name, t.topic_id), t) for t in message.topics)).values())


def _add_by_name(
    results: Iterable[DeletableTopicResult], wanted: dict[str, list[DeletableTopicResult]]
) -> Iterator[None]:
    """Put the results without error into `wanted`, by name: a topic may be named by its id, too. Pauses after each."""
    for result in results:
        if not result.error_code and result.name is not None:
            wanted.setdefault(result.name, []).append(result)
        yield


def _refuse(
    refused: Iterable[Iterable[DeletableTopicResult]], error: ErrorCode, message: str | None = None
) -> Iterator[None]:
    """Set the error in all these results; pauses after each topic."""
    for results in refused:
        for result in results:
            result.error_code, result.error_message = error, message
        yield
