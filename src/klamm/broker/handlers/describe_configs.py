"""DescribeConfigs: the values in use, and their sources. Source: ConfigHelper.scala (3.9)."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import dropwhile
from typing import Final

from klamm.broker.dispatch import Offered, Request
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.topic_names import name_error
from klamm.config.broker_keys import BROKER_KEYS
from klamm.config.config_types import ConfigType
from klamm.config.dynamic_config import DynamicConfig
from klamm.config.dynamic_keys import DYNAMIC_KEYS, dynamic_key, is_for_one_listener, synonyms
from klamm.config.topic_config import (
    TOPIC_KEYS,
    ConfigSource,
    Origin,
    effective_text,
    origins,
    source_of,
)
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId
from klamm.telemetry.logs import LogLevels
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
_BROKER_LOGGER: Final = 8
_UNKNOWN_TYPE: Final = 0

ReadTopicConfig = Callable[[str], Awaitable[Mapping[str, str]]]
"""The overrides of one topic; raises KlammError where they cannot be read."""


class DescribeConfigs:
    """Serves DescribeConfigs."""

    def __init__(
        self,
        broker_id: BrokerId,
        dynamic: DynamicConfig,
        cache: MetadataCache,
        read_topic_config: ReadTopicConfig,
        log_levels: LogLevels,
    ) -> None:
        self._broker_id = broker_id
        self._dynamic = dynamic
        self._cache = cache
        self._read_topic_config = read_topic_config
        self._log_levels = log_levels

    async def handle(self, request: Request, message: DescribeConfigsRequest) -> DescribeConfigsResponse:
        """Answer DescribeConfigs: the configs of each topic or broker, with their sources."""
        results: list[DescribeConfigsResult] = []
        for resource in message.resources:
            await request.slices.checkpoint()  # a broker has hundreds of configs
            result = await self._describe(message, resource)
            if request.version == 0:  # it only has whether the value is the default
                for config in result.configs:
                    config.is_default = config.config_source == ConfigSource.DEFAULT
            results.append(result)
        return DescribeConfigsResponse(results=results)

    async def _describe(
        self, message: DescribeConfigsRequest, requested: DescribeConfigsResource
    ) -> DescribeConfigsResult:
        """The configs of one resource, by its type."""
        match requested.resource_type:
            case t if t == _TOPIC:
                return await self._describe_topic(message, requested)
            case t if t == _BROKER:
                return self._describe_broker(message, requested)
            case t if t == _BROKER_LOGGER:
                return self._describe_loggers(requested)
        return _refusal(
            requested,
            ErrorCode.INVALID_REQUEST,
            f"Resource type {requested.resource_type} has no configs. Send 2 (topic), 4 (broker) or 8 (logger).",
        )

    async def _describe_topic(
        self, message: DescribeConfigsRequest, requested: DescribeConfigsResource
    ) -> DescribeConfigsResult:
        """The configs of a topic."""
        topic = requested.resource_name
        if reason := name_error(topic):
            return _refusal(requested, ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        if not self._cache.has_topic(topic):
            return _refusal(requested, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
        try:
            overrides = await self._read_topic_config(topic)
        except KlammError as error:
            return _refusal(requested, ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        given, layers = self._dynamic.current.given, self._dynamic.layers
        configs = [
            _config_result(
                message,
                name,
                effective_text(name, overrides, given, topic),
                TOPIC_KEYS[name].type,
                origins(name, overrides, layers, topic),
                TOPIC_KEYS[name].doc,
            )
            for name in _requested_keys(requested, TOPIC_KEYS)
        ]
        return _described(requested, configs)

    def _describe_broker(
        self, message: DescribeConfigsRequest, requested: DescribeConfigsResource
    ) -> DescribeConfigsResult:
        """The configs of this broker; without a broker id, the cluster's dynamic defaults."""
        if not requested.resource_name:
            cluster = self._dynamic.cluster
            defaults = [self._describe_cluster_default(message, name) for name in _requested_keys(requested, cluster)]
            return _described(requested, defaults)
        if requested.resource_name != str(self._broker_id):
            return _refusal(
                requested,
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {self._broker_id} or empty string, but received "
                f"{requested.resource_name}",
            )
        known = dict.fromkeys((*BROKER_KEYS, *self._dynamic.current.given))
        return _described(
            requested, [self._describe_broker_config(message, name) for name in _requested_keys(requested, known)]
        )

    def _describe_loggers(self, requested: DescribeConfigsResource) -> DescribeConfigsResult:
        """The log levels of this broker."""
        if not requested.resource_name:
            return _refusal(requested, ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        if requested.resource_name != str(self._broker_id):
            text = f"Unexpected broker id, expected {self._broker_id} but received {requested.resource_name}"
            return _refusal(requested, ErrorCode.INVALID_REQUEST, text)
        levels = self._log_levels.all()
        source = ConfigSource.DYNAMIC_BROKER_LOGGER
        return _described(
            requested,
            [
                DescribeConfigsResourceResult(name=name, value=levels[name], config_source=source)
                for name in _requested_keys(requested, levels)
            ],
        )

    def _describe_broker_config(self, message: DescribeConfigsRequest, name: str) -> DescribeConfigsResourceResult:
        """One config of this broker, with its sources."""
        found = self._broker_origins(name)
        value = next((o.value for o in found if o.name == name), None)
        return self._broker_config_result(message, name, value, found)

    def _describe_cluster_default(self, message: DescribeConfigsRequest, name: str) -> DescribeConfigsResourceResult:
        """One dynamic default of all brokers."""
        found = [o for o in self._broker_origins(name) if o.source is ConfigSource.DYNAMIC_DEFAULT]
        return self._broker_config_result(message, name, self._dynamic.cluster[name], found)

    def _broker_origins(self, name: str) -> list[Origin]:
        """Every source of a value for the key or a synonym, the one in use first."""
        names = synonyms(name)
        found = [Origin(n, given[n], source) for source, given in self._dynamic.layers for n in names if n in given]
        for n in names:
            key = BROKER_KEYS.get(n)  # quotas can only be set dynamically, and show no default
            if key is not None and key.default is not None and not is_for_one_listener(n):
                found.append(Origin(n, key.default, ConfigSource.DEFAULT))
        return list(dropwhile(lambda origin: origin.name != name, found))

    def _broker_config_result(
        self, message: DescribeConfigsRequest, name: str, value: str | None, found: Sequence[Origin]
    ) -> DescribeConfigsResourceResult:
        """The result for one broker config; values of passwords and of unknown keys are hidden."""
        key = dynamic_key(name)
        kind = None if key is None else ConfigType[key.type.upper()]
        return _config_result(message, name, value, kind, found, None, read_only=name not in DYNAMIC_KEYS)


def _config_result(
    message: DescribeConfigsRequest,
    name: str,
    value: str | None,
    kind: ConfigType | None,
    found: Sequence[Origin],
    doc: str | None,
    *,
    read_only: bool = False,
) -> DescribeConfigsResourceResult:
    """The response entry of one config; sensitive values are hidden."""
    is_sensitive = kind in (ConfigType.PASSWORD, None)
    return DescribeConfigsResourceResult(
        name=name,
        value=None if is_sensitive else value,
        read_only=read_only,
        config_source=source_of(found),
        is_sensitive=is_sensitive,
        synonyms=list(_synonyms(found, is_sensitive)) if message.include_synonyms else [],
        config_type=_UNKNOWN_TYPE if kind is None else kind,
        documentation=doc if message.include_documentation else None,
    )


def _synonyms(found: Iterable[Origin], is_sensitive: bool) -> Iterator[DescribeConfigsSynonym]:
    """The response entries of a config's synonyms."""
    for origin in found:
        yield DescribeConfigsSynonym(
            name=origin.name, value=None if is_sensitive else origin.value, source=origin.source
        )


def _requested_keys(requested: DescribeConfigsResource, known: Mapping[str, object]) -> list[str]:
    """The requested keys that exist; all keys where the request names none."""
    names = frozenset(requested.configuration_keys or ())
    return [name for name in known if not names or name in names]


def _described(
    requested: DescribeConfigsResource, configs: list[DescribeConfigsResourceResult]
) -> DescribeConfigsResult:
    """The response entry of a resource with these configs."""
    return DescribeConfigsResult(
        resource_type=requested.resource_type, resource_name=requested.resource_name, configs=configs
    )


def _refusal(requested: DescribeConfigsResource, error: ErrorCode, text: str | None) -> DescribeConfigsResult:
    """The response entry of a resource with an error."""
    return DescribeConfigsResult(
        error_code=error,
        error_message=text,
        resource_type=requested.resource_type,
        resource_name=requested.resource_name,
    )
