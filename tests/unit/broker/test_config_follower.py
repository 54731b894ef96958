"""What a changed config means for a running node."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.broker.config_follower import ConfigFollower
from klamm.broker.replication_throttles import ReplicationThrottles
from klamm.config.dynamic_config import DynamicConfig
from klamm.config.node_config import NodeConfig, parse_node_config
from klamm.config.topic_config import TopicConfig
from klamm.log.settings import CleanerSettings, LogManagerSettings, ScrubberSettings
from klamm.model.ids import BrokerId, TopicPartition
from klamm.net.connection_table import ConnectionLimits
from klamm.replication.quota import UNLIMITED, ReplicationQuotas
from klamm.zk.errors import ConnectionLoss


class FakeLogs:
    def __init__(self, *topics: str) -> None:
        self.topics = set(topics)
        self.settings = LogManagerSettings()
        self.configs: dict[str, TopicConfig] = {}
        self._defaults: Mapping[str, str] = {}

    def topic_config(self, topic: str, overrides: Mapping[str, str] | None = None) -> TopicConfig:
        return TopicConfig.parse_stored(overrides or {}, self._defaults)

    def update_topic_configs(self, configs: Mapping[str, TopicConfig]) -> None:
        self.configs.update(configs)

    def update_default_configs(self, defaults: Mapping[str, str]) -> bool:
        before, self._defaults = self.topic_config("any"), dict(defaults)
        return before != self.topic_config("any")


class Node:
    """A follower amid everything it may touch."""

    def __init__(self) -> None:
        config = parse_node_config(b"zookeeper.connect=z:2181", "x", {"listeners": "PLAINTEXT://h:1"})
        self.dynamic = DynamicConfig(config)
        self.logs = FakeLogs("orders", "clicks")
        self.limits: list[ConnectionLimits] = []
        self.unclean: list[object] = []
        self.advertised: list[str] = []
        self.overrides: dict[str, dict[str, str]] = {"clicks": {"max.message.bytes": "7"}}
        self.is_lost = False
        self.told: list[str] = []
        server: Any = SimpleNamespace(limit_connections=self.limits.append)
        controller: Any = SimpleNamespace(
            unclean_election_enabled=self.unclean.append, allow_unclean_election=self.unclean.append
        )
        store: Any = SimpleNamespace(read_topic_configs=self._read)
        logs: Any = self.logs
        self.quotas = ReplicationQuotas.new(lambda: 0.0)
        throttles = ReplicationThrottles(self.quotas, BrokerId(1))
        self.cleaner_settings: list[CleanerSettings] = []
        cleaner: Any = SimpleNamespace(update_settings=self._update_cleaner)
        self.scrubber_settings: list[ScrubberSettings] = []
        scrubber: Any = SimpleNamespace(update_settings=self._update_scrubber)
        self.crc_checks: list[bool] = []
        replicas: Any = SimpleNamespace(check_crcs=lambda is_on: self.crc_checks.append(is_on))
        self.follower = ConfigFollower(
            self.dynamic,
            logs,
            server,
            controller,
            lambda: store,
            self._advertise,
            throttles,
            cleaner,
            scrubber,
            replicas,
            self.told.extend,
        )

    async def _read(self, topics: Sequence[str]) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
        if self.is_lost:
            raise ConnectionLoss("/config/topics")
        return {t: self.overrides.get(t, {}) for t in topics}, {}

    async def _update_cleaner(self, settings: CleanerSettings) -> None:
        self.cleaner_settings.append(settings)

    async def _update_scrubber(self, settings: ScrubberSettings) -> None:
        self.scrubber_settings.append(settings)

    def _advertise(self, config: NodeConfig) -> None:
        self.advertised += [str(e) for e in config.advertised_endpoints]


async def test_changed_topic_configs_are_applied_to_the_topics_logs() -> None:
    node = Node()
    await node.follower.topics_changed({"orders": {"retention.ms": "5"}, "elsewhere": {"retention.ms": "6"}})

    assert {t: c.retention_ms for t, c in node.logs.configs.items()} == {"orders": 5}
    assert node.told == ["orders", "elsewhere"]


async def test_a_changed_log_cleaner_config_is_passed_to_the_log_cleaner() -> None:
    node = Node()
    await node.follower.brokers_changed({"log.cleaner.backoff.ms": "50", "log.cleaner.threads": "2"}, {})

    assert [(settings.backoff_ms, settings.threads) for settings in node.cleaner_settings] == [(50, 2)]


async def test_changed_scrub_and_crc_check_configs_are_passed_to_log_scrubber_and_fetch() -> None:
    node = Node()
    configs = {
        "klamm.log.scrub.bytes.per.second": "5",
        "klamm.log.scrub.interval.ms": "6000",
        "klamm.fetch.check.crcs": "false",
    }
    await node.follower.brokers_changed(configs, {})

    assert node.scrubber_settings == [ScrubberSettings(5, 6_000)]
    assert node.crc_checks == [False]


async def test_an_invalid_topic_config_in_zookeeper_leaves_the_logs_unchanged() -> None:
    node = Node()
    await node.follower.topics_changed({"orders": {"retention.ms": "soon"}, "clicks": {"retention.ms": "6"}})

    assert list(node.logs.configs) == ["clicks"]


async def test_a_changed_topic_config_with_a_key_that_klamm_does_not_have_is_applied() -> None:
    node = Node()
    await node.follower.topics_changed({"orders": {"retention.ms": "5", "confluent.x": "1"}})

    assert {t: c.retention_ms for t, c in node.logs.configs.items()} == {"orders": 5}


@pytest.mark.parametrize(("value", "told"), [("true", ["away"]), (" TRUE ", ["away"]), ("false", []), ("yes", [])])
async def test_enabling_unclean_elections_in_a_topic_config_notifies_the_controller(
    value: str, told: list[str]
) -> None:
    node = Node()
    await node.follower.topics_changed({"away": {"unclean.leader.election.enable": value}})

    assert node.unclean == told


async def test_a_changed_unclean_election_default_is_passed_to_the_controller_once() -> None:
    node = Node()
    await node.follower.brokers_changed({"unclean.leader.election.enable": "true"}, {})
    await node.follower.brokers_changed({"unclean.leader.election.enable": "true"}, {})
    await node.follower.brokers_changed({}, {})

    assert node.unclean == [True, False]


async def test_new_broker_defaults_apply_to_topics_except_where_topic_configs_override_them() -> None:
    node = Node()
    await node.follower.brokers_changed({"message.max.bytes": "9"}, {})

    assert {t: c.max_message_bytes for t, c in node.logs.configs.items()} == {"orders": 9, "clicks": 7}


async def test_changing_broker_configs_unrelated_to_topics_changes_no_log() -> None:
    node = Node()
    await node.follower.brokers_changed({}, {"num.io.threads": "9"})

    assert node.logs.configs == {}


async def test_new_broker_defaults_are_applied_by_a_retry_after_topic_configs_could_not_be_read() -> None:
    node = Node()
    node.is_lost = True
    with pytest.raises(ConnectionLoss):
        await node.follower.brokers_changed({"message.max.bytes": "9"}, {})
    node.is_lost = False

    await node.follower.brokers_changed({"message.max.bytes": "9"}, {})

    assert node.logs.configs["orders"].max_message_bytes == 9


async def test_changed_dynamic_broker_configs_apply_without_a_restart() -> None:
    node = Node()
    await node.follower.brokers_changed(
        {"max.connections.per.ip": "3", "producer.id.expiration.ms": "77"},
        {"advertised.listeners": "PLAINTEXT://elsewhere:2"},
    )

    assert [limits.max_per_address for limits in node.limits] == [3]
    assert node.logs.settings.producer_expiration_ms == 77
    assert node.advertised == ["PLAINTEXT://elsewhere:2"]


def throttled(node: Node, topic: str) -> tuple[list[int], list[int]]:
    """Which of the first three partitions are throttled, as leader and as follower."""
    leader, follower = ([p for p in range(3) if q.covers(TopicPartition(topic, p))] for q in node.quotas[:2])
    return leader, follower


LISTS = {
    "replicas on this broker": ("0:1,1:2,2:1", "1:1", ([0, 2], [1])),
    "all replicas": ("*", "0:1", ([0, 1, 2], [0])),
    "only replicas on other brokers": ("0:2", "0:12", ([], [])),
    "empty list": ("", "", ([], [])),
    "appended to an empty list": (",0:1", "*,", ([0], [0, 1, 2])),
}


@pytest.mark.parametrize(("leader", "follower", "expected"), LISTS.values(), ids=LISTS)
async def test_throttled_replicas_are_set_and_cleared_for_a_topic_without_a_local_replica(
    leader: str, follower: str, expected: object
) -> None:
    node = Node()
    lists = {"leader.replication.throttled.replicas": leader, "follower.replication.throttled.replicas": follower}
    await node.follower.topics_changed({"elsewhere": lists})

    assert throttled(node, "elsewhere") == expected
    assert throttled(node, "orders") == ([], [])

    await node.follower.topics_changed({"elsewhere": {"retention.ms": "7"}})

    assert throttled(node, "elsewhere") == ([], [])
    assert not node.quotas.leader.is_on
    assert not node.quotas.follower.is_on


async def test_an_invalid_throttled_replicas_list_keeps_the_previous_throttle() -> None:
    node = Node()
    await node.follower.topics_changed({"orders": {"leader.replication.throttled.replicas": "0:1"}})
    await node.follower.topics_changed({"orders": {"leader.replication.throttled.replicas": "0:1,all"}})

    assert throttled(node, "orders") == ([0], [])


async def test_a_brokers_throttled_replication_rate_overrides_the_cluster_default() -> None:
    node = Node()
    told = []
    for cluster, own in (({"leader": 5, "follower": 6}, {"follower": 0}), ({"leader": 5}, {"leader": 7}), ({}, {})):
        await node.follower.brokers_changed(
            *({f"{side}.replication.throttled.rate": str(r) for side, r in rates.items()} for rates in (cluster, own))
        )
        told.append((node.quotas.leader.limit, node.quotas.follower.limit))

    assert told == [(5, 0), (7, UNLIMITED), (UNLIMITED, UNLIMITED)]
