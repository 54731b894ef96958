"""What holds for a topic or a broker, and where it comes from."""

from collections.abc import Mapping, Sequence

import pytest
from tests.unit.broker.cluster_state import cache, request
from tests.unit.coordinator.test_large_groups import ObservedSlices

from klamm.broker.handlers.describe_configs import DescribeConfigs
from klamm.config.dynamic_config import DynamicConfig
from klamm.config.node_config import NodeConfig, parse_node_config
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.telemetry.logs import LogLevels
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from klamm.zk.errors import ConnectionLoss

TOPIC, BROKER = 2, 4


def node_config(given: Mapping[str, str]) -> NodeConfig:
    return parse_node_config(b"zookeeper.connect=z:2181", "server.properties", given)


GIVEN = {"log.retention.hours": "2", "broker.id": "1", "sasl.jaas.config": "secret"}


async def describe(
    kind: int,
    name: str,
    keys: Sequence[str] | None = None,
    overrides: Mapping[str, str] | None = None,
    version: int = 4,
    cluster: Mapping[str, str] | None = None,
    broker: Mapping[str, str] | None = None,
) -> DescribeConfigsResult:
    async def read_topic_config(topic: str) -> Mapping[str, str]:
        if overrides is None:
            raise ConnectionLoss("/config/topics/orders")
        return overrides

    dynamic = DynamicConfig(node_config(GIVEN))
    dynamic.apply(cluster or {}, broker or {})
    handler = DescribeConfigs(BrokerId(1), dynamic, cache(), read_topic_config, LogLevels())
    message = DescribeConfigsRequest(
        [DescribeConfigsResource(kind, name, None if keys is None else tuple(keys))], True, True
    )
    response = await handler.handle(request(ApiKey.DESCRIBE_CONFIGS, version), message)
    response.encode(version)
    (result,) = response.results
    return result


def entry(result: DescribeConfigsResult, name: str) -> DescribeConfigsResourceResult:
    return next(c for c in result.configs if c.name == name)


async def test_describe_configs_returns_each_topic_config_with_value_source_and_synonyms() -> None:
    result = await describe(TOPIC, "orders", overrides={"min.insync.replicas": "2"})

    isr, retention, policy = (entry(result, n) for n in ("min.insync.replicas", "retention.ms", "cleanup.policy"))
    assert (isr.value, isr.config_source) == ("2", 1)
    assert [(s.name, s.value, s.source) for s in isr.synonyms] == [
        ("min.insync.replicas", "2", 1),
        ("min.insync.replicas", "1", 5),
    ]
    assert (retention.value, retention.config_source) == ("7200000", 4)
    assert (policy.value, policy.config_type, policy.config_source) == ("delete", 7, 5)
    assert policy.documentation


async def test_describe_configs_with_config_names_returns_only_those_that_exist() -> None:
    result = await describe(TOPIC, "orders", ["retention.ms", "no.such.key"], {})

    assert [c.name for c in result.configs] == ["retention.ms"]


@pytest.mark.parametrize("keys", [None, []])
async def test_describe_configs_without_config_names_returns_all_configs(keys: list[str] | None) -> None:
    assert len((await describe(TOPIC, "orders", keys, {})).configs) > 30


async def test_broker_configs_are_described_with_their_sources_and_without_password_values() -> None:
    result = await describe(BROKER, "1")

    number, secret = entry(result, "broker.id"), entry(result, "sasl.jaas.config")
    assert (number.value, number.config_source, number.read_only) == ("1", 4, True)
    assert (secret.value, secret.is_sensitive, secret.synonyms[0].value) == (None, True, None)
    assert entry(result, "num.partitions").config_source == 5


async def test_describe_configs_of_cluster_defaults_is_empty_where_no_dynamic_config_is_set() -> None:
    result = await describe(BROKER, "")

    assert (result.error_code, result.configs) == (ErrorCode.NONE, [])


REFUSED: dict[str, tuple[int, str, dict[str, str] | None, ErrorCode]] = {
    "unknown topic": (TOPIC, "nowhere", {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "illegal topic": (TOPIC, "a b", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "another broker": (BROKER, "2", {}, ErrorCode.INVALID_REQUEST),
    "unsupported resource type": (16, "1", {}, ErrorCode.INVALID_REQUEST),
    "ZooKeeper unavailable": (TOPIC, "orders", None, ErrorCode.UNKNOWN_SERVER_ERROR),
}


@pytest.mark.parametrize(("kind", "name", "overrides", "expected"), REFUSED.values(), ids=REFUSED)
async def test_describe_configs_of_an_invalid_resource_is_refused(
    kind: int, name: str, overrides: Mapping[str, str] | None, expected: ErrorCode
) -> None:
    result = await describe(kind, name, overrides=overrides)

    assert (result.error_code, result.resource_name, result.configs) == (expected, name, [])


async def test_describe_configs_version_0_returns_the_flag_is_default_instead_of_a_source() -> None:
    result = await describe(TOPIC, "orders", ["retention.ms", "segment.ms"], {}, version=0)

    assert {c.name: c.is_default for c in result.configs} == {"retention.ms": False, "segment.ms": True}


async def test_a_dynamic_config_is_described_with_precedence_over_the_value_in_the_file() -> None:
    result = await describe(
        BROKER,
        "1",
        cluster={"log.retention.ms": "7", "message.max.bytes": "2000"},
        broker={"message.max.bytes": "3000"},
    )

    size, retention = entry(result, "message.max.bytes"), entry(result, "log.retention.ms")
    assert (size.value, size.config_source, size.read_only) == ("3000", 2, False)
    assert [(s.value, s.source) for s in size.synonyms] == [("3000", 2), ("2000", 3), ("1048588", 5)]
    assert (retention.value, retention.config_source) == ("7", 3)
    assert [(s.name, s.source) for s in retention.synonyms] == [
        ("log.retention.ms", 3),
        ("log.retention.hours", 4),
        ("log.retention.hours", 5),
    ]


async def test_topic_configs_are_described_with_inherited_dynamic_broker_defaults() -> None:
    result = await describe(TOPIC, "orders", overrides={}, cluster={"log.retention.ms": "7"})

    retention = entry(result, "retention.ms")
    assert (retention.value, retention.config_source) == ("7", 3)


async def test_describe_configs_of_cluster_defaults_lists_only_dynamic_configs() -> None:
    assert (await describe(BROKER, "")).configs == []

    (size,) = (await describe(BROKER, "", cluster={"message.max.bytes": "9"}, broker={"num.io.threads": "9"})).configs

    assert (size.name, size.value, size.config_source) == ("message.max.bytes", "9", 3)
    assert [s.source for s in size.synonyms] == [3]


async def test_a_quota_config_that_is_only_dynamic_is_described_without_a_default() -> None:
    name = "leader.replication.throttled.rate"
    rate = entry(await describe(BROKER, "1", broker={name: "10"}), name)

    assert (rate.value, rate.config_source) == ("10", 2)
    assert [(s.value, s.source) for s in rate.synonyms] == [("10", 2)]


async def test_an_unknown_config_key_is_described_without_its_value() -> None:
    plugin = entry(await describe(BROKER, "1", broker={"my.plugin": "secret"}), "my.plugin")

    assert (plugin.value, plugin.is_sensitive, plugin.config_type, plugin.config_source) == (None, True, 0, 2)


async def test_another_request_may_be_served_before_each_resource_of_describe_configs() -> None:
    """A broker has hundreds of configs, and a small request may name it a thousand times."""

    async def read_topic_config(topic: str) -> Mapping[str, str]:
        return {}

    checkpoints: list[None] = []
    slices = ObservedSlices(lambda: checkpoints.append(None))
    handler = DescribeConfigs(BrokerId(1), DynamicConfig(node_config(GIVEN)), cache(), read_topic_config, LogLevels())
    message = DescribeConfigsRequest([DescribeConfigsResource(BROKER, "1", ("log.dirs",))] * 300)

    response = await handler.handle(request(ApiKey.DESCRIBE_CONFIGS, 4)._replace(slices=slices), message)

    assert (len(response.results), len(checkpoints)) == (300, 300)
