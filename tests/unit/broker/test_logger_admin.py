"""Log levels that change while a node runs."""

import pytest
from tests.unit.broker.cluster_state import cache, request

from klamm.broker.config_admin import Change, ConfigAdmin, Operation
from klamm.broker.handlers.alter_configs import AlterConfigs
from klamm.broker.handlers.describe_configs import DescribeConfigs
from klamm.broker.logger_admin import LoggerAdmin
from klamm.config.dynamic_config import DynamicConfig
from klamm.config.node_config import parse_node_config
from klamm.config.topic_config import ConfigSource
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.telemetry.logs import LogLevels
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)

SET, DELETE, APPEND = Operation.SET, Operation.DELETE, Operation.APPEND
LOGGER = 8


def dynamic() -> DynamicConfig:
    return DynamicConfig(parse_node_config(b"zookeeper.connect=z:1", "x", {"broker.id": "1"}))


async def read_topic_config(_topic: str) -> dict[str, str]:
    return {}


REFUSED = {
    "another broker": ("2", Change("net", "DEBUG"), ErrorCode.INVALID_REQUEST, "Unexpected node id"),
    "no broker": ("x", Change("net", "DEBUG"), ErrorCode.INVALID_REQUEST, "must be an integer"),
    "no such logger": ("1", Change("nothing", "DEBUG"), ErrorCode.INVALID_CONFIG, "nothing does not exist"),
    "no such level": ("1", Change("net", "LOUD"), ErrorCode.INVALID_CONFIG, "not a supported log level"),
    "lower case": ("1", Change("net", "debug"), ErrorCode.INVALID_CONFIG, "not a supported log level"),
    "delete the root level": (
        "1",
        Change("root", None, DELETE),
        ErrorCode.INVALID_REQUEST,
        "root logger is not allowed",
    ),
    "append to a log level": (
        "1",
        Change("net", "DEBUG", APPEND),
        ErrorCode.INVALID_REQUEST,
        "APPEND operation is not allowed",
    ),
}


@pytest.mark.parametrize(("name", "change", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_a_refused_alteration_of_broker_loggers_changes_no_log_level(
    name: str, change: Change, error: ErrorCode, words: str
) -> None:
    levels = LogLevels()

    outcome = LoggerAdmin(1, levels).increment(name, [Change("topics", "DEBUG"), change], validate_only=False)

    assert (outcome.error, words in (outcome.message or "")) == (error, True)
    assert set(levels.all().values()) == {"INFO"}


def test_a_broker_logger_without_its_own_level_is_described_with_the_root_level() -> None:
    levels = LogLevels()
    admin = LoggerAdmin(1, levels)

    admin.increment("1", [Change("net", "DEBUG"), Change("root", "WARN")], validate_only=False)
    assert (levels.is_enabled("net", "debug"), levels.is_enabled("topics", "info")) == (True, False)
    admin.increment("1", [Change("net", None, DELETE)], validate_only=True)
    assert levels.is_enabled("net", "debug")
    admin.increment("1", [Change("net", None, DELETE)], validate_only=False)

    assert not levels.is_enabled("net", "info")
    assert levels.is_enabled("net", "exception")


async def test_broker_log_levels_are_altered_and_described_with_kafkas_tools() -> None:
    levels = LogLevels()
    admin: ConfigAdmin = None  # type: ignore[assignment]  # nobody asks for other configs
    change = IncrementalAlterConfigsRequestAlterableConfig("net", SET, "ERROR")
    altering = IncrementalAlterConfigsRequest(
        [IncrementalAlterConfigsRequestAlterConfigsResource(LOGGER, "1", [change])]
    )
    handler = AlterConfigs(admin, LoggerAdmin(1, levels))
    [altered] = (await handler.increment(request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1), altering)).responses
    assert altered.error_code == 0

    describing = DescribeConfigs(BrokerId(1), dynamic(), cache(), read_topic_config, levels)
    asked = [DescribeConfigsResource(LOGGER, name) for name in ("1", "2", "")]
    answer = await describing.handle(request(ApiKey.DESCRIBE_CONFIGS, 4), DescribeConfigsRequest(asked))
    answer.encode(4)

    first, *others = answer.results
    told = {c.name: c.value for c in first.configs}
    assert (told["root"], told["net"], told["topics"]) == ("INFO", "ERROR", "INFO")
    assert {c.config_source for c in first.configs} == {ConfigSource.DYNAMIC_BROKER_LOGGER}
    assert [r.error_code for r in others] == [ErrorCode.INVALID_REQUEST] * 2
