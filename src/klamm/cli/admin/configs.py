"""Read and change the configs of topics, of brokers, and of all brokers."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from klamm.cli.admin.client import Admin, CannotAsk, NoAnswer
from klamm.cli.admin.refusals import Refusal
from klamm.config.entities import BROKER, Config, Configs, Entity, Synonym
from klamm.config.topic_config import ConfigSource
from klamm.model.ids import BrokerId
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)

_CHUNK: Final = 500
_SET, _DELETE = 0, 1


_CONTROLLER_ONLY: Final = "klamm.controller.only.brokers"


async def read_configs(
    admin: Admin, entities: Iterable[Entity], keys: Sequence[str] | None = None, *, documented: bool = False
) -> tuple[dict[Entity, Configs], list[Refusal]]:
    """Read the configs of each entity; those of a broker are asked from that broker.

    With `documented`, the configs have their documentation. Also returns the refusals.
    """
    found: dict[Entity, Configs] = {}
    refused: list[Refusal] = []
    for answer in await asyncio.gather(
        *(_send_describe_configs(admin, p, keys, documented) for p in _group_by_request(entities))
    ):
        for result in answer.results:
            entity = Entity(result.resource_type, result.resource_name)
            if result.error_code:
                refused.append(Refusal(str(entity), result.error_code, result.error_message))
            else:
                found[entity] = {c.name: _config_from_response(c) for c in result.configs}
    return found, refused


def _group_by_request(entities: Iterable[Entity]) -> list[list[Entity]]:
    """Group entities that one request may contain: a broker's configs can only be asked from that broker."""
    anywhere, portions = list[Entity](), list[list[Entity]]()
    for entity in entities:
        if entity.type == BROKER and entity.name:
            portions.append([entity])
        else:
            anywhere.append(entity)
    return portions + [anywhere[i : i + _CHUNK] for i in range(0, len(anywhere), _CHUNK)]


async def _send_describe_configs(
    admin: Admin, entities: list[Entity], keys: Sequence[str] | None, documented: bool
) -> Any:
    """Send DescribeConfigs to a broker that can answer for these entities, and return the response."""
    wanted = None if keys is None else tuple(keys)

    def request(version: int) -> DescribeConfigsRequest:
        """Build the DescribeConfigs request for this version of the protocol."""
        return DescribeConfigsRequest(
            resources=[DescribeConfigsResource(e.type, e.name, wanted) for e in entities],
            include_synonyms=version >= 1,
            include_documentation=documented and version >= 3,
        )

    return await _ask_broker_of(admin, entities[0], ApiKey.DESCRIBE_CONFIGS, request)


async def _ask_broker_of(admin: Admin, entity: Entity, key: ApiKey, request: Any) -> Any:
    """Send the request to the broker that `entity` is, or to any broker for other entities."""
    if entity.type == BROKER and entity.name:
        return await admin.ask_broker(BrokerId(int(entity.name)), key, request)
    return await admin.ask(key, request)


def _config_from_response(found: Any) -> Config:
    """Return the config of a DescribeConfigs response, with its synonyms."""
    return Config(
        found.name,
        found.value,
        ConfigSource(found.config_source),
        found.read_only,
        found.is_sensitive,
        tuple(Synonym(s.name, s.value, ConfigSource(s.source)) for s in found.synonyms),
        found.documentation,
    )


async def change_configs(admin: Admin, changes: Mapping[Entity, Mapping[str, str | None]]) -> list[Refusal]:
    """Set these configs, unset those that are None. Each entity changes completely or not at all."""
    answers = await asyncio.gather(
        *(_send_alter_configs(admin, portion, changes) for portion in _group_by_request(changes))
    )
    return [
        Refusal(str(Entity(r.resource_type, r.resource_name)), r.error_code, r.error_message)
        for answer in answers
        for r in answer.responses
        if r.error_code
    ]


async def _send_alter_configs(
    admin: Admin, entities: list[Entity], changes: Mapping[Entity, Mapping[str, str | None]]
) -> Any:
    """Send IncrementalAlterConfigs to a broker that can answer for these entities, and return the response."""
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequestAlterConfigsResource(
                e.type,
                e.name,
                [
                    IncrementalAlterConfigsRequestAlterableConfig(name, _DELETE if value is None else _SET, value)
                    for name, value in changes[e].items()
                ],
            )
            for e in entities
        ]
    )
    try:
        return await _ask_broker_of(admin, entities[0], ApiKey.INCREMENTAL_ALTER_CONFIGS, request)
    except NoAnswer as error:
        raise NoAnswer(f"{error}. The change may still happen: check before you repeat it.") from None


async def read_controller_only(admin: Admin, brokers: Iterable[BrokerId]) -> frozenset[BrokerId]:
    """The brokers listed in `klamm.controller.only.brokers`; Apache Kafka's brokers do not have that config."""
    entities = [Entity(BROKER, str(b)) for b in brokers]
    lists = await asyncio.gather(*(_read_controller_only_config(admin, entity) for entity in entities))
    return frozenset(BrokerId(int(name)) for text in lists for name in text.split(",") if name.strip().isdigit())


async def _read_controller_only_config(admin: Admin, entity: Entity) -> str:
    """The config's value on this broker; empty if the broker does not answer or lacks the key."""
    try:
        found, _ = await read_configs(admin, [entity], [_CONTROLLER_ONLY])
    except CannotAsk:
        return ""
    config = found.get(entity, {}).get(_CONTROLLER_ONLY)
    return (config.value or "") if config is not None else ""
