"""CreateTopics, on the active controller's broker. Source: KafkaApis.handleCreateTopicsRequest, ZkAdminManager."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from klamm.broker.dispatch import Offered, Request
from klamm.broker.error_responses import NOT_CONTROLLER_TEXT
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.topic_creation import Created, NewTopic, TopicCreation
from klamm.config.topic_config import TOPIC_KEYS, ConfigSource, effective_text, has_own_defaults, origins, source_of
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

CREATE_TOPICS: Final = Offered(ApiKey.CREATE_TOPICS, 0, 7)


Described = dict[tuple[str, tuple[tuple[str, str], ...]], list[CreatableTopicConfigs]]
"""By overrides: the topics of one request often share them."""


class CreateTopics:
    """Serves CreateTopics."""

    def __init__(
        self,
        cache: MetadataCache,
        creation: TopicCreation,
        broker_defaults: Mapping[str, str],
        is_controller: Callable[[], bool],
    ) -> None:
        self._cache = cache
        self._creation = creation
        self._broker_defaults = broker_defaults
        self._is_controller = is_controller

    async def handle(self, request: Request, message: CreateTopicsRequest) -> CreateTopicsResponse:
        """Answer CreateTopics: create each valid topic, and wait up to the request's timeout for its leaders.

        With `validate_only` nothing is created.
        """
        slices = request.slices
        counts: Counter[str] = Counter()
        requested: dict[str, CreatableTopic] = {}
        async for piece in slices.over(message.topics):
            counts.update(t.name for t in piece)
            requested.update({t.name: t for t in piece})
        made: dict[str, Created] = {}
        wanted: list[NewTopic] = []
        await slices.run(self._sort_out(requested, counts, made, wanted))
        created = await self._creation.create_all(wanted, slices, validate_only=message.validate_only)
        made |= await slices.dict_of((c.name, c) for c in created)
        if not message.validate_only:
            await self._wait_for_leaders(created, message.timeout_ms)
        described: Described = {}
        return CreateTopicsResponse(topics=await slices.list_of(self._result(made[n], described) for n in requested))

    def _sort_out(
        self,
        requested: Mapping[str, CreatableTopic],
        counts: Mapping[str, int],
        refused: dict[str, Created],
        wanted: list[NewTopic],
    ) -> Iterator[None]:
        """Put the topics that may be created into `wanted`, the errors of others into `refused`; pauses after each."""
        for name, topic in requested.items():
            if (refusal := self._refusal(name, counts[name])) is not None:
                refused[name] = refusal
            else:
                wanted.append(_new_topic(topic))
            yield

    def _refusal(self, name: str, times: int) -> Created | None:
        """The error for a topic that must not be created (not controller, repeated name); None if it may be."""
        if not self._is_controller():
            return Created(name, ErrorCode.NOT_CONTROLLER, NOT_CONTROLLER_TEXT)
        if times > 1:
            return Created(
                name, ErrorCode.INVALID_REQUEST, f"The request has topic {name} {times} times. Send it once."
            )
        return None

    async def _wait_for_leaders(self, created: list[Created], timeout_ms: int) -> None:
        """Wait until all partitions have leaders in the metadata cache; late topics get a timeout error."""
        made = {c.name: c for c in created if not c.error}
        leading = {name: partial(self._cache.has_leaders, name, len(c.placement)) for name, c in made.items()}
        late = await self._cache.wait_until(leading, timeout_ms / 1000) if timeout_ms > 0 else made
        for name in late:
            made[name].error = ErrorCode.REQUEST_TIMED_OUT

    def _result(self, created: Created, described: Described) -> CreatableTopicResult:
        """The response entry of one topic."""
        if created.error:
            return CreatableTopicResult(name=created.name, error_code=created.error, error_message=created.message)
        return CreatableTopicResult(
            name=created.name,
            topic_id=created.topic_id,
            num_partitions=len(created.placement),
            replication_factor=len(created.placement[0]),
            configs=self._described_configs(created.name, created.configs, described),
        )

    def _described_configs(
        self, topic: str, overrides: Mapping[str, str], described: Described
    ) -> list[CreatableTopicConfigs]:
        """All configs of a created topic; `described` keeps them for topics with the same overrides and defaults."""
        key = (topic if has_own_defaults(topic) else "", tuple(sorted(overrides.items())))
        if key not in described:
            described[key] = [self._described_config(name, topic, overrides) for name in TOPIC_KEYS]
        return described[key]

    def _described_config(self, name: str, topic: str, overrides: Mapping[str, str]) -> CreatableTopicConfigs:
        """The response entry of one config of a created topic."""
        broker = self._broker_defaults
        return CreatableTopicConfigs(
            name=name,
            value=effective_text(name, overrides, broker, topic),
            config_source=source_of(origins(name, overrides, [(ConfigSource.BROKER, broker)], topic)),
        )


def _new_topic(topic: CreatableTopic) -> NewTopic:
    """The request entry as a topic to create."""
    placement = {a.partition_index: tuple(map(BrokerId, a.broker_ids)) for a in topic.assignments}
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        placement or None,
        [(c.name, c.value) for c in topic.configs],
    )
