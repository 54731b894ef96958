"""Logs get the configs of their topics, also those that change while they are made."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from structlog.testing import capture_logs
from tests.support.model_zookeeper import ModelZooKeeper

from klamm.broker.replica_logs import ReplicaLogs
from klamm.broker.replication_throttles import ReplicationThrottles
from klamm.config.topic_config import TopicConfig
from klamm.log.manager import LogRequest
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.replication.quota import ReplicationQuotas
from klamm.zk.store import Store


class FakeLogs:
    """Each log is the config it was made with; `meanwhile` happens while they are made."""

    def __init__(self, *open_logs: str) -> None:
        self.made: dict[str, int] = {}
        self.meanwhile: Any = lambda: None
        self._open = open_logs

    def get(self, partition: TopicPartition) -> Any:
        is_open = partition.topic in self._open
        return SimpleNamespace(config=TopicConfig.parse({"retention.ms": "5"})) if is_open else None

    def topic_config(self, topic: str, overrides: Mapping[str, str] | None = None) -> TopicConfig:
        return TopicConfig.parse_stored(overrides or {})

    async def get_or_create_many(self, wanted: Sequence[LogRequest]) -> list[Any]:
        self.meanwhile()
        for asked in wanted:
            self.made[asked.partition.topic] = asked.config.retention_ms
        return [object() for _ in wanted]

    def update_topic_configs(self, configs: Mapping[str, TopicConfig]) -> None:
        self.made.update({topic: config.retention_ms for topic, config in configs.items()})


async def test_a_topic_config_changed_during_the_creation_of_a_log_is_applied_to_that_log() -> None:
    logs: Any = FakeLogs()
    stored = {"orders": {"retention.ms": "1"}, "clicks": {"retention.ms": "2"}}
    readings: list[list[str]] = []

    async def read(topics: Sequence[str]) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
        readings.append(list(topics))
        return {t: dict(stored[t]) for t in topics}, {}

    store: Any = SimpleNamespace(read_committed_topic_configs=read)
    replica_logs = ReplicaLogs(logs, lambda: store)

    def change() -> None:
        stored["orders"]["retention.ms"] = "9"
        replica_logs.topics_changed(["orders", "others"])

    logs.meanwhile = change
    wanted = [(TopicPartition(topic, 0), ZERO_ID, True) for topic in stored]

    found = await replica_logs.get_or_create_many(wanted)

    assert len(found) == 2
    assert logs.made == {"orders": 9, "clicks": 2}
    assert readings == [["orders", "clicks"], ["orders"]]
    replica_logs.topics_changed(["orders"])  # nobody is making it now


def test_a_new_log_gets_its_topics_config_also_where_the_zookeeper_server_lags() -> None:
    async def story(model: ModelZooKeeper) -> None:
        writer, reader = await model.client("writer", "zk-1:2181"), await model.client("reader", "zk-2:2181")
        await Store(writer).create_top_level_paths()
        model.servers[1].lag_s = lambda: 2.0
        replicas = {0: ReplicaAssignment((BrokerId(1),))}
        await Store(writer).create_topic("orders", replicas, ZERO_ID, {"retention.ms": "7"})
        logs: Any = FakeLogs()

        await ReplicaLogs(logs, lambda: Store(reader)).get_or_create_many(
            [(TopicPartition("orders", 0), ZERO_ID, True)]
        )

        assert logs.made == {"orders": 7}

    ModelZooKeeper(servers=2).run(story)


async def test_a_new_log_gets_the_configs_that_can_be_used_beside_unusable_ones() -> None:
    logs: Any = FakeLogs()
    stored = {"orders": {"retention.ms": "7", "segment.bytes": "few"}, "clicks": {"retention.ms": "forever"}}

    async def read(topics: Sequence[str]) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
        return {t: dict(stored[t]) for t in topics}, {}

    store: Any = SimpleNamespace(read_committed_topic_configs=read)

    with capture_logs() as lines:
        await ReplicaLogs(logs, lambda: store).get_or_create_many(
            [(TopicPartition(topic, 0), ZERO_ID, True) for topic in stored]
        )

    assert logs.made == {"orders": 7, "clicks": -1}
    assert [line["topic"] for line in lines] == ["orders", "clicks"]


async def test_a_topic_config_that_cannot_be_read_keeps_no_log_from_being_made() -> None:
    """An open log keeps its config; a new one keeps all records until the config is changed."""
    logs: Any = FakeLogs("orders")

    async def read(topics: Sequence[str]) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
        return {}, dict.fromkeys(topics, "malformed")

    store: Any = SimpleNamespace(read_committed_topic_configs=read)

    wanted = [
        (TopicPartition("orders", 0), ZERO_ID, False),
        (TopicPartition("clicks", 0), ZERO_ID, False),
        (TopicPartition("clicks", 1), ZERO_ID, False),
    ]
    with capture_logs() as lines:
        made = await ReplicaLogs(logs, lambda: store).get_or_create_many(wanted)

    assert not any(isinstance(log, Exception) for log in made)
    assert logs.made == {"orders": 5, "clicks": -1}
    assert [(line["topic"], line["reason"]) for line in lines] == [("clicks", "malformed")]


async def test_deleting_a_replica_deletes_its_log() -> None:
    deleted: list[TopicPartition] = []
    logs: Any = SimpleNamespace(delete=deleted.append)
    replica_logs = ReplicaLogs(logs, lambda: SimpleNamespace())  # type: ignore[arg-type,return-value]

    await replica_logs.delete(TopicPartition("orders", 1))

    assert deleted == [TopicPartition("orders", 1)]


async def test_a_topics_replication_throttle_is_read_when_its_first_log_is_created() -> None:
    logs: Any = FakeLogs()
    stored = {"orders": {"follower.replication.throttled.replicas": "*"}}

    async def read(topics: Sequence[str]) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
        return {t: dict(stored.get(t, {})) for t in topics}, {}

    store: Any = SimpleNamespace(read_committed_topic_configs=read)
    quotas = ReplicationQuotas.new(lambda: 0.0)
    throttles = ReplicationThrottles(quotas, BrokerId(1))
    replica_logs = ReplicaLogs(logs, lambda: store, throttles.topic_changed)
    orders = TopicPartition("orders", 0)

    await replica_logs.get_or_create_many([(orders, ZERO_ID, True)])
    assert quotas.follower.covers(orders)
    stored.clear()  # deleted, and made anew without
    await replica_logs.get_or_create_many([(orders, ZERO_ID, True)])

    assert not quotas.follower.is_on
