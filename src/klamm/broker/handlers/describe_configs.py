"""DescribeConfigs: what holds, and why. Source: ConfigHelper.scala (3.9)."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from klamm.broker.dispatch import Offered, Request
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.topic_names import name_error
from klamm.config.broker_keys import BROKER_KEYS, BrokerKey
from klamm.config.config_types import ConfigType
from klamm.config.topic_config import (
    TOPIC_KEYS,
    ConfigSource,
    Origin,
    effective_text,
    origins,
)
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

DESCRIBE_CONFIGS: Final = Offered(ApiKey.DESCRIBE_CONFIGS, 0, 4)
_TOPIC: Final = 2
_BROKER: Final = 4

ReadTopicConfig = Callable[[str], Awaitable[Mapping[str, str]]]
"""The overrides of one topic; raises KlammError where ZooKeeper cannot say."""


class DescribeConfigs:
    def __init__(
        self, broker_id: BrokerId, given: Mapping[str, str], cache: MetadataCache, read_topic_config: ReadTopicConfig
    ) -> None:
        self._broker_id = broker_id
        self._given = given
        self._cache = cache
        self._read_topic_config = read_topic_config

    async def handle(self, request: Request, message: DescribeConfigsRequest) -> DescribeConfigsResponse:
        results = [await self._describe(message, r) for r in message.resources]
        if request.version == 0:  # which says no more of a source than whether it is the default
            for config in (c for result in results for c in result.configs):
                config.is_default = config.config_source == ConfigSource.DEFAULT
        return DescribeConfigsResponse(results=results)

    async def _describe(self, message: DescribeConfigsRequest, asked: DescribeConfigsResource) -> DescribeConfigsResult:
        match asked.resource_type:
            case t if t == _TOPIC:
                return await self._topic(message, asked)
            case t if t == _BROKER:
                return self._broker(message, asked)
        return _refusal(asked, ErrorCode.INVALID_REQUEST, f"resources of type {asked.resource_type} have no configs")

    async def _topic(self, message: DescribeConfigsRequest, asked: DescribeConfigsResource) -> DescribeConfigsResult:
        topic = asked.resource_name
        if reason := name_error(topic):
            return _refusal(asked, ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        if not self._cache.has_topic(topic):
            return _refusal(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
        try:
            overrides = await self._read_topic_config(topic)
        except KlammError as error:
            return _refusal(asked, ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        configs = [
            _entry(
                message,
                name,
                effective_text(name, overrides, self._given),
                TOPIC_KEYS[name].type,
                origins(name, overrides, self._given),
                TOPIC_KEYS[name].doc,
            )
            for name in _wanted(asked, TOPIC_KEYS)
        ]
        return _answer(asked, configs)

    def _broker(self, message: DescribeConfigsRequest, asked: DescribeConfigsResource) -> DescribeConfigsResult:
        """With no name: the cluster's dynamic defaults, of which there are none."""
        if not asked.resource_name:
            return _answer(asked, [])
        if asked.resource_name != str(self._broker_id):
            return _refusal(
                asked,
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {self._broker_id} or empty string, but received {asked.resource_name}",
            )
        configs = [self._broker_entry(message, BROKER_KEYS[name]) for name in _wanted(asked, BROKER_KEYS)]
        return _answer(asked, configs)

    def _broker_entry(self, message: DescribeConfigsRequest, key: BrokerKey) -> DescribeConfigsResourceResult:
        found: list[Origin] = []
        if key.name in self._given:
            found.append(Origin(key.name, self._given[key.name], ConfigSource.BROKER))
        if key.default is not None:
            found.append(Origin(key.name, key.default, ConfigSource.DEFAULT))
        kind = ConfigType[key.type.upper()]
        value = None if not found or kind is ConfigType.PASSWORD else found[0].value
        return _entry(message, key.name, value, kind, found, None, read_only=True)


def _entry(
    message: DescribeConfigsRequest,
    name: str,
    value: str | None,
    kind: ConfigType,
    found: Sequence[Origin],
    doc: str | None,
    *,
    read_only: bool = False,
) -> DescribeConfigsResourceResult:
    is_sensitive = kind is ConfigType.PASSWORD
    source = found[0].source if found else ConfigSource.DEFAULT
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=read_only,
        config_source=source,
        is_sensitive=is_sensitive,
        synonyms=list(_synonyms(found, is_sensitive)) if message.include_synonyms else [],
        config_type=kind,
        documentation=doc if message.include_documentation else None,
    )


def _synonyms(found: Iterable[Origin], is_sensitive: bool) -> Iterator[DescribeConfigsSynonym]:
    for origin in found:
        yield DescribeConfigsSynonym(
            name=origin.name, value=None if is_sensitive else origin.value, source=origin.source
        )


def _wanted(asked: DescribeConfigsResource, known: Mapping[str, object]) -> list[str]:
    """All keys where none is named; keys that do not exist are left out."""
    names = asked.configuration_keys
    return [name for name in known if not names or name in names]


def _answer(asked: DescribeConfigsResource, configs: list[DescribeConfigsResourceResult]) -> DescribeConfigsResult:
    return DescribeConfigsResult(resource_type=asked.resource_type, resource_name=asked.resource_name, configs=configs)


def _refusal(asked: DescribeConfigsResource, error: ErrorCode, text: str | None) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error, error_message=text, resource_type=asked.resource_type, resource_name=asked.resource_name
    )
