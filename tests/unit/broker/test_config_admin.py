"""Altering configs: Kafka's answers, and what ends up in ZooKeeper."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.unit.broker.cluster_state import cache, request

from klamm.broker.config_admin import Change, ConfigAdmin, Operation
from klamm.broker.config_policy import AlterationAsked, load_alter_policy
from klamm.broker.handlers.alter_configs import AlterConfigs
from klamm.broker.lifecycle import CannotStart
from klamm.broker.logger_admin import LoggerAdmin
from klamm.broker.topic_policy import PolicyViolation
from klamm.config.dynamic_config import DynamicConfig
from klamm.config.node_config import parse_node_config
from klamm.model.errors import ErrorCode
from klamm.telemetry.logs import LogLevels
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    AlterConfigsRequest,
    AlterConfigsRequestAlterableConfig,
    AlterConfigsRequestAlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from klamm.zk.configs import ABSENT, ConfigChanged, ConfigStore, NoZooKeeperController, StoredConfig
from klamm.zk.errors import ConnectionLoss

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = Operation
NODE = parse_node_config(b"zookeeper.connect=z:2181", "x", {"broker.id": "1"})


class Entities(ConfigStore):
    """Configs in memory, with versions; `interrupt` happens before the next write."""

    def __init__(self, held: Mapping[str, dict[str, str]] | None = None) -> None:
        self.held = {entity: StoredConfig(config, 0) for entity, config in (held or {}).items()}
        self.written: list[str] = []
        self.interruptions: list[Exception | dict[str, str]] = []

    async def read(self, entity_type: str, entity: str) -> StoredConfig:
        return self.held.get(f"{entity_type}/{entity}", StoredConfig({}, ABSENT))

    async def write(self, entity_type: str, entity: str, config: Mapping[str, str], version: int) -> None:
        path = f"{entity_type}/{entity}"
        if self.interruptions:
            interruption = self.interruptions.pop(0)
            if isinstance(interruption, Exception):
                raise interruption
            self.held[path] = StoredConfig(interruption, version + 1)
        now = self.held.get(path, StoredConfig({}, ABSENT))
        if now.version != version:
            raise ConfigChanged(path)
        self.held[path] = StoredConfig(dict(config), version + 1)
        self.written.append(path)


def admin(entities: Entities) -> ConfigAdmin:
    return ConfigAdmin(1, DynamicConfig(NODE), cache(), lambda: entities)


async def increment(
    entities: Entities, kind: int, name: str, *changes: Change, validate_only: bool = False
) -> tuple[ErrorCode, str | None]:
    return await admin(entities).increment(kind, name, changes, validate_only=validate_only)


async def test_incremental_alter_configs_keeps_configs_that_the_request_does_not_name() -> None:
    entities = Entities({"topics/orders": {"retention.ms": "5", "cleanup.policy": "delete", "segment.ms": "9"}})

    outcome = await increment(
        entities,
        TOPIC,
        "orders",
        Change("min.insync.replicas", "2"),
        Change("segment.ms", None, DELETE),
        Change("cleanup.policy", "compact,delete", APPEND),
    )

    assert outcome == (ErrorCode.NONE, None)
    assert entities.held["topics/orders"].config == {
        "retention.ms": "5",
        "cleanup.policy": "delete,compact",
        "min.insync.replicas": "2",
    }
    assert entities.written == ["topics/orders"]


async def test_subtracting_from_an_unset_list_config_starts_from_its_default() -> None:
    entities = Entities()

    await increment(entities, TOPIC, "orders", Change("cleanup.policy", "compact", APPEND))
    assert entities.held["topics/orders"].config == {"cleanup.policy": "delete,compact"}

    await increment(entities, TOPIC, "orders", Change("cleanup.policy", "delete", SUBTRACT))
    assert entities.held["topics/orders"].config == {"cleanup.policy": "compact"}


async def test_alter_configs_removes_configs_that_the_request_does_not_name() -> None:
    entities = Entities({"topics/orders": {"retention.ms": "5"}})

    await admin(entities).replace(TOPIC, "orders", [Change("segment.ms", "9")], validate_only=False)

    assert entities.held["topics/orders"].config == {"segment.ms": "9"}


async def test_altering_configs_with_validate_only_writes_no_config_znode() -> None:
    entities = Entities()

    assert await increment(entities, TOPIC, "orders", Change("retention.ms", "1"), validate_only=True) == (0, None)
    assert entities.written == []


async def test_configs_of_a_broker_and_cluster_defaults_are_written_to_separate_znodes() -> None:
    entities = Entities({"brokers/<default>": {"broker.id": "7", "message.max.bytes": "5"}})

    assert await increment(entities, BROKER, "", Change("num.io.threads", "9")) == (0, None)
    assert await increment(entities, BROKER, "1", Change("num.io.threads", "9")) == (0, None)

    assert entities.held["brokers/<default>"].config == {"message.max.bytes": "5", "num.io.threads": "9"}
    assert entities.held["brokers/1"].config == {"num.io.threads": "9"}


async def test_altering_configs_does_not_overwrite_a_concurrent_config_change() -> None:
    entities = Entities({"topics/orders": {}})
    entities.interruptions = [{"retention.ms": "5"}]

    assert await increment(entities, TOPIC, "orders", Change("segment.ms", "9")) == (0, None)
    assert entities.held["topics/orders"].config == {"retention.ms": "5", "segment.ms": "9"}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NoZooKeeperController("none"), ErrorCode.STALE_CONTROLLER_EPOCH),
        (ConnectionLoss("/config"), ErrorCode.REQUEST_TIMED_OUT),
    ],
)
async def test_zookeeper_errors_while_altering_configs_become_kafka_error_codes(
    error: Exception, code: ErrorCode
) -> None:
    entities = Entities()
    entities.interruptions = [error]

    assert (await increment(entities, TOPIC, "orders", Change("segment.ms", "9")))[0] is code


REFUSALS = {
    "no such topic": (TOPIC, "gone", Change("segment.ms", "9"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "'gone'"),
    "no topic at all": (TOPIC, "", Change("segment.ms", "9"), ErrorCode.INVALID_REQUEST, "Default topic"),
    "no such topic config": (TOPIC, "orders", Change("no.such", "9"), ErrorCode.INVALID_CONFIG, "no.such"),
    "invalid value": (TOPIC, "orders", Change("segment.ms", "0"), ErrorCode.INVALID_CONFIG, "name='orders'"),
    "append to a config that is not a list": (
        TOPIC, "orders", Change("segment.ms", "1", APPEND), ErrorCode.INVALID_CONFIG, "append is not allowed"),
    "null value": (TOPIC, "orders", Change("segment.ms", None), ErrorCode.INVALID_REQUEST, "Null value"),
    "unknown operation": (TOPIC, "orders", Change("segment.ms", "1", 9), ErrorCode.INVALID_REQUEST, "type 9"),
    "another broker": (BROKER, "2", Change("num.io.threads", "9"), ErrorCode.INVALID_REQUEST, "expected 1"),
    "no broker id": (BROKER, "one", Change("num.io.threads", "9"), ErrorCode.INVALID_REQUEST, "must be an integer"),
    "a static config": (BROKER, "1", Change("broker.rack", "r"), ErrorCode.INVALID_REQUEST, "dynamically: broker.rack"),
    "unknown resource type": (32, "x", Change("a", "b"), ErrorCode.INVALID_REQUEST, "Unknown resource type 32"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "name", "change", "code", "words"), REFUSALS.values(), ids=REFUSALS)
async def test_an_invalid_config_alteration_is_refused_and_writes_nothing(
    kind: int, name: str, change: Change, code: ErrorCode, words: str
) -> None:
    entities = Entities()

    error, message = await increment(entities, kind, name, change)

    assert error is code
    assert message is not None
    assert words in message
    assert entities.written == []


async def test_altering_configs_of_an_invalid_resource_does_not_stop_other_resources_of_the_request() -> None:
    entities = Entities()
    resources = [
        IncrementalAlterConfigsRequestAlterConfigsResource(
            TOPIC, name, [IncrementalAlterConfigsRequestAlterableConfig("segment.ms", SET, "9")]
        )
        for name in ("gone", "orders")
    ]
    message = IncrementalAlterConfigsRequest(resources, False)

    response = await AlterConfigs(admin(entities), LoggerAdmin(1, LogLevels())).increment(
        request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1), message
    )

    response.encode(1)
    assert [(r.resource_name, r.error_code) for r in response.responses] == [("gone", 3), ("orders", 0)]


async def test_a_config_resource_named_twice_in_a_request_is_refused_both_times() -> None:
    resources = [
        AlterConfigsRequestAlterConfigsResource(TOPIC, "orders", [AlterConfigsRequestAlterableConfig("segment.ms", v)])
        for v in "12"
    ]

    response = await AlterConfigs(admin(Entities()), LoggerAdmin(1, LogLevels())).replace(
        request(ApiKey.ALTER_CONFIGS, 2), AlterConfigsRequest(resources, False)
    )

    response.encode(2)
    assert [r.error_code for r in response.responses] == [ErrorCode.INVALID_REQUEST] * 2


class NoInfiniteRetention:
    def validate(self, asked: AlterationAsked) -> None:
        if asked.configs.get("retention.ms") == "-1":
            raise PolicyViolation(f"{asked.resource_name} must forget")


async def test_a_config_alteration_rejected_by_the_alter_config_policy_gets_policy_violation() -> None:
    entities = Entities()
    strict = ConfigAdmin(1, DynamicConfig(NODE), cache(), lambda: entities, NoInfiniteRetention())

    kept = await strict.increment(TOPIC, "orders", [Change("retention.ms", "-1")], validate_only=True)
    fine = await strict.increment(TOPIC, "orders", [Change("retention.ms", "5")], validate_only=False)

    assert kept == (ErrorCode.POLICY_VIOLATION, "orders must forget")
    assert fine == (ErrorCode.NONE, None)


async def test_an_alter_config_policy_that_raises_an_exception_fails_only_that_resource() -> None:
    class Mistaken:
        def validate(self, asked: AlterationAsked) -> None:
            raise ZeroDivisionError

    admin = ConfigAdmin(1, DynamicConfig(NODE), cache(), lambda: Entities(), Mistaken())

    error, said = await admin.increment(TOPIC, "orders", [Change("retention.ms", "5")], validate_only=False)

    assert error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "alter.config.policy.class.name failed on orders" in (said or "")


def test_the_alter_config_policy_is_loaded_by_its_module_and_class_name() -> None:
    assert load_alter_policy(NODE) is None
    named = replace(NODE, alter_config_policy_class_name=f"{__name__}:NoInfiniteRetention")
    assert load_alter_policy(named) is not None
    with pytest.raises(CannotStart, match="is not module:Class"):
        load_alter_policy(replace(NODE, alter_config_policy_class_name="org.example.Policy"))
