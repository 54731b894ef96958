"""CreateTopics: checks in Kafka's order, errors per topic, an answer once there are leaders."""

import uuid
from collections.abc import Mapping, Sequence

import pytest
from tests.unit.broker.cluster_state import broker, cache, partition, request, update

from klamm.broker.handlers.create_topics import CreateTopics
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.topic_creation import TopicCreation
from klamm.broker.topic_policy import CreateTopicPolicy, PolicyViolation, TopicAsked
from klamm.config.node_config import parse_node_config
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.topic_ids import ZERO_ID
from klamm.runtime.randomness import RealRandomness
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from klamm.zk.errors import ConnectionLoss, NoAuth
from klamm.zk.store import TopicExists
from klamm.zk.topic_creation import TopicToCreate


class ZooKeeperTopics:
    """What was written; a topic gets its leaders in the cache at once, as if the controller were quick."""

    def __init__(self, known: MetadataCache) -> None:
        self._known = known
        self.written: dict[str, Mapping[int, ReplicaAssignment]] = {}
        self.configs: dict[str, Mapping[str, str]] = {}
        self.ids: dict[str, uuid.UUID | None] = {}
        self.controller_acts = True
        self.fails: Exception | None = None
        self.writes = 0
        self.races: set[str] = set()

    async def check_new_topics(self, names: Sequence[str]) -> dict[str, str | None]:
        if self.fails is not None:
            raise self.fails
        return {name: f"topic {name} already exists" if name == "elsewhere" else None for name in names}

    async def list_topics(self) -> list[str]:
        return ["a.b"]

    async def create_topics(self, wanted: Sequence[TopicToCreate]) -> dict[str, KlammError]:
        self.writes += 1
        for topic, assignment, topic_id, config in wanted:
            if topic in self.races:
                continue
            self.written[topic], self.configs[topic], self.ids[topic] = assignment, config, topic_id
            if self.controller_acts:
                self._known.update(update({topic: [partition(n, a.replicas[0]) for n, a in assignment.items()]}))
        return {t.name: TopicExists(f"topic {t.name} already exists") for t in wanted if t.name in self.races}


class Cluster:
    def __init__(self, policy: CreateTopicPolicy | None = None, configs: bytes = b"") -> None:
        self.known = cache()
        self.store = ZooKeeperTopics(self.known)
        self.is_controller = True
        given = b"zookeeper.connect=z:1\nnum.partitions=4\ndefault.replication.factor=2\n" + configs
        config = parse_node_config(given, "x")
        self.creation = TopicCreation(config, self.known, lambda: self.store, RealRandomness(), policy)
        self._handler = CreateTopics(self.known, self.creation, config.given, lambda: self.is_controller)

    async def create(
        self, *topics: CreatableTopic, version: int = 7, timeout_ms: int = 1000, validate_only: bool = False
    ) -> list[CreatableTopicResult]:
        message = CreateTopicsRequest(list(topics), timeout_ms, validate_only)
        response = await self._handler.handle(request(ApiKey.CREATE_TOPICS, version), message)
        response.encode(version)
        return response.topics


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def topic(
    name: str,
    partitions: int = 3,
    factor: int = 2,
    placed: Mapping[int, tuple[int, ...]] | None = None,
    **configs: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name,
        partitions,
        factor,
        [CreatableReplicaAssignment(n, replicas) for n, replicas in (placed or {}).items()],
        [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()],
    )


async def test_create_topics_writes_the_assignment_and_describes_the_new_topic(cluster: Cluster) -> None:
    (result,) = await cluster.create(topic("new", retention_ms="1000"))

    assert (result.error_code, result.num_partitions, result.replication_factor) == (ErrorCode.NONE, 3, 2)
    assert result.topic_id == cluster.store.ids["new"]
    assert cluster.store.configs["new"] == {"retention.ms": "1000"}
    assert sorted(cluster.store.written["new"]) == [0, 1, 2]
    described = {c.name: (c.value, c.config_source) for c in result.configs or []}
    assert described["retention.ms"] == ("1000", 1)
    assert described["min.insync.replicas"] == ("1", 5)


async def test_old_inter_broker_protocol_versions_create_topics_without_a_topic_id() -> None:
    cluster = Cluster(configs=b"inter.broker.protocol.version=2.7")

    (result,) = await cluster.create(topic("new"))

    assert cluster.store.ids == {"new": None}
    assert result.topic_id == ZERO_ID


async def test_topics_of_a_create_request_are_written_together_and_a_conflict_fails_only_its_topic(
    cluster: Cluster,
) -> None:
    cluster.store.races = {"t3"}
    results = await cluster.create(*(topic(f"t{n}") for n in range(50)), topic("elsewhere"))

    assert cluster.store.writes == 1
    assert {r.name for r in results if r.error_code} == {"t3", "elsewhere"}
    assert {r.error_code for r in results if r.error_code} == {ErrorCode.TOPIC_ALREADY_EXISTS}
    assert len(cluster.store.written) == 49


async def test_two_topics_with_colliding_metric_names_in_a_create_request_are_both_created(cluster: Cluster) -> None:
    first, second = await cluster.create(topic("new.topic"), topic("new_topic"))

    assert (first.error_code, second.error_code) == (ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION)


async def test_create_topics_with_minus_1_partitions_or_replicas_uses_the_brokers_defaults(cluster: Cluster) -> None:
    await cluster.create(topic("new", -1, -1))

    assert [len(a.replicas) for a in cluster.store.written["new"].values()] == [2, 2, 2, 2]


async def test_create_topics_uses_the_given_replica_assignment(cluster: Cluster) -> None:
    # unknown brokers are not refused: Kafka does not look either
    await cluster.create(topic("new", -1, -1, {0: (3, 1), 1: (9, 2)}))

    assert [a.replicas for a in cluster.store.written["new"].values()] == [(3, 1), (9, 2)]


REFUSED = {
    "exists": (topic("orders"), ErrorCode.TOPIC_ALREADY_EXISTS),
    "exists in ZooKeeper only": (topic("elsewhere"), ErrorCode.TOPIC_ALREADY_EXISTS),
    "illegal name": (topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "KRaft's metadata topic": (topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
    "no partitions": (topic("new", 0), ErrorCode.INVALID_PARTITIONS),
    "no replicas": (topic("new", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
    "more replicas than brokers": (topic("new", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
    "partition count together with an assignment": (topic("new", 1, -1, {0: (1,)}), ErrorCode.INVALID_REQUEST),
    "a broker twice": (topic("new", -1, -1, {0: (1, 1)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "negative broker id": (topic("new", -1, -1, {0: (-1,)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "uneven replicas": (topic("new", -1, -1, {0: (1,), 1: (1, 2)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "gap in the partition numbers": (topic("new", -1, -1, {0: (1,), 2: (2,)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "null config value": (topic("new", retention_ms=None), ErrorCode.INVALID_CONFIG),
    "invalid config value": (topic("new", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
    "an unknown config": (topic("new", retention_msec="1"), ErrorCode.INVALID_CONFIG),
}


@pytest.mark.parametrize(("asked", "expected"), REFUSED.values(), ids=REFUSED)
async def test_create_topics_refuses_an_invalid_topic_with_a_reason_and_creates_the_others(
    cluster: Cluster, asked: CreatableTopic, expected: ErrorCode
) -> None:
    refused, made = await cluster.create(asked, topic("fine"))

    assert (refused.error_code, made.error_code) == (expected, ErrorCode.NONE)
    assert refused.error_message
    assert list(cluster.store.written) == ["fine"]


FIRST_OF_TWO = {
    "request shape before the assignment": (topic("new", 0, -1, {0: (1, 1)}), ErrorCode.INVALID_REQUEST),
    "counts before the name": (topic("a b", 0), ErrorCode.INVALID_PARTITIONS),
    "name before the assignment": (topic("a b", -1, -1, {0: (1, 1)}), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "existing topic before the assignment": (topic("elsewhere", -1, -1, {1: (1,)}), ErrorCode.TOPIC_ALREADY_EXISTS),
    "assignment before the configs": (
        topic("new", -1, -1, {1: (1,)}, retention_ms="soon"),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ),
    "too many partitions": (topic("new", 2**31 - 1), ErrorCode.INVALID_PARTITIONS),
}


@pytest.mark.parametrize(("asked", "expected"), FIRST_OF_TWO.values(), ids=FIRST_OF_TWO)
async def test_create_topics_validates_a_request_in_the_same_order_as_kafka(
    cluster: Cluster, asked: CreatableTopic, expected: ErrorCode
) -> None:
    (result,) = await cluster.create(asked)

    assert result.error_code == expected


async def test_the_create_topic_policy_runs_after_all_other_checks_even_with_validate_only() -> None:
    seen: list[TopicAsked] = []

    class NoSingles:
        def validate(self, asked: TopicAsked) -> None:
            seen.append(asked)
            if asked.replication_factor == 1:
                raise PolicyViolation("one replica is none")

    cluster = Cluster(NoSingles())

    single, placed = await cluster.create(topic("a", 1, 1), topic("b", -1, -1, {0: (1,)}), validate_only=True)

    assert (single.error_code, single.error_message) == (ErrorCode.POLICY_VIOLATION, "one replica is none")
    assert placed.error_code == ErrorCode.NONE
    assert (seen[0].partitions, seen[0].replicas) == (1, None)
    assert (seen[1].partitions, seen[1].replicas) == (None, {0: (1,)})


async def test_a_create_topic_policy_that_raises_an_exception_fails_only_that_topic() -> None:
    class Mistaken:
        def validate(self, asked: TopicAsked) -> None:
            if asked.topic == "a":
                raise ZeroDivisionError

    failed, fine = await Cluster(Mistaken()).create(topic("a", 1, 1), topic("b", 1, 1))

    assert failed.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "create.topic.policy.class.name failed on a" in (failed.error_message or "")
    assert fine.error_code == ErrorCode.NONE


async def test_create_topics_refuses_a_topic_name_that_collides_with_an_existing_topic_name(cluster: Cluster) -> None:
    (result,) = await cluster.create(topic("a_b"))

    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_create_topics_on_a_broker_that_is_not_controller_gets_not_controller(cluster: Cluster) -> None:
    cluster.is_controller = False

    results = await cluster.create(topic("a"), topic("b"))

    assert [r.error_code for r in results] == [ErrorCode.NOT_CONTROLLER] * 2


async def test_a_topic_named_twice_in_create_topics_gets_invalid_request(cluster: Cluster) -> None:
    (result,) = await cluster.create(topic("a"), topic("a"))

    assert result.error_code == ErrorCode.INVALID_REQUEST


async def test_create_topics_with_validate_only_writes_nothing(cluster: Cluster) -> None:
    (result,) = await cluster.create(topic("new"), validate_only=True)

    assert result.error_code == ErrorCode.NONE
    assert cluster.store.written == {}


@pytest.mark.parametrize("timeout_ms", [0, 1])
async def test_create_topics_keeps_a_topic_without_leaders_in_time_and_answers_request_timed_out(
    cluster: Cluster, timeout_ms: int
) -> None:
    cluster.store.controller_acts = False

    (result,) = await cluster.create(topic("new"), timeout_ms=timeout_ms)

    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "new" in cluster.store.written


async def test_create_topics_answers_request_timed_out_if_the_zookeeper_connection_is_lost(cluster: Cluster) -> None:
    cluster.store.fails = ConnectionLoss("/brokers/topics/new")

    (result,) = await cluster.create(topic("new"))

    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "ZooKeeper" in (result.error_message or "")


async def test_a_zookeeper_error_during_create_topics_is_not_answered_with_a_timeout(cluster: Cluster) -> None:
    cluster.store.fails = NoAuth("/brokers/topics/new")

    (result,) = await cluster.create(topic("new"))

    assert result.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


class TestOnFirstUse:
    async def test_an_auto_created_topic_takes_the_brokers_defaults(self, cluster: Cluster) -> None:
        assert await cluster.creation.create_on_first_use("new") is ErrorCode.LEADER_NOT_AVAILABLE
        assert len(cluster.store.written["new"]) == 4

    async def test_the_auto_created_consumer_offsets_topic_is_compacted_and_has_its_own_partition_count(
        self, cluster: Cluster
    ) -> None:
        await cluster.creation.create_on_first_use("__consumer_offsets")

        assert len(cluster.store.written["__consumer_offsets"]) == 50
        assert cluster.store.configs["__consumer_offsets"]["cleanup.policy"] == "compact"

    async def test_topic_auto_creation_with_too_few_brokers_gets_invalid_replication_factor(
        self, cluster: Cluster
    ) -> None:
        cluster.known.update(update(brokers=[broker(1)]))

        assert await cluster.creation.create_on_first_use("new") is ErrorCode.INVALID_REPLICATION_FACTOR

    async def test_auto_creation_of_a_topic_just_created_by_another_broker_gets_leader_not_available(
        self, cluster: Cluster
    ) -> None:
        assert await cluster.creation.create_on_first_use("elsewhere") is ErrorCode.LEADER_NOT_AVAILABLE

    async def test_auto_creation_of_a_topic_with_an_illegal_name_is_refused(self, cluster: Cluster) -> None:
        assert await cluster.creation.create_on_first_use("a b") is ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_create_topics_places_replicas_on_controller_only_brokers_only_by_explicit_assignment() -> None:
    cluster = Cluster(configs=b"klamm.controller.only.brokers=3")
    cluster.known.update(update(brokers=[broker(1), broker(2), broker(3)]))

    results = await cluster.create(
        topic("new", partitions=20), topic("wide", factor=3), topic("placed", -1, -1, placed={0: (3, 1)})
    )

    assert [r.error_code for r in results] == [0, ErrorCode.INVALID_REPLICATION_FACTOR, 0]
    assert {b for a in cluster.store.written["new"].values() for b in a.replicas} == {1, 2}
    assert cluster.store.written["placed"][0].replicas == (3, 1)
