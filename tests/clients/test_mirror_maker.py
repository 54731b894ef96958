"""MirrorMaker 3.9.1 copies topics, configs and group offsets between clusters, exactly once while nodes are killed."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ConfigResource
from tests.clients.test_connect import write_properties
from tests.clients.test_transactions import PARTITIONS, consumed, produce
from tests.support import apache_kafka
from tests.support.cluster import Cluster
from tests.support.foreign_clients import ClientProcess

from klamm.embedded.nodes import Command, klamm_node
from klamm.model.ids import TopicPartition

TOPIC, COPY, GROUP = "orders", "from.orders", "billing"
RECORDS = 3_000
LIMIT_S = 180
INTERNAL_TOPICS = ("checkpoints", "heartbeats", "offset-syncs", "offset.storage", "status.storage", "config.storage")
INTERVALS = (
    "refresh.topics", "refresh.groups", "sync.topic.configs", "sync.group.offsets", "emit.checkpoints",
    "emit.heartbeats",
)  # fmt: skip
RETENTION_MS = "86400000"
BROKERS: dict[str, Callable[[], Command]] = {"klamm": lambda: klamm_node, "apache-kafka": apache_kafka.broker}


def mirror_properties(source: Cluster, target: Cluster) -> dict[str, object]:
    """It copies all topics, with short intervals. ACLs are not copied: klamm has none."""
    return {
        "clusters": "from, to",
        "from.bootstrap.servers": source.bootstrap,
        "to.bootstrap.servers": target.bootstrap,
        "from->to.enabled": "true",
        "to->from.enabled": "false",
        "to.exactly.once.source.support": "enabled",
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": "http://127.0.0.1:0",
        "replication.factor": 3,
        "sync.topic.acls.enabled": "false",
        "sync.group.offsets.enabled": "true",
        "offset.lag.max": 0,
        **{f"{topic}.topic.replication.factor": 3 for topic in INTERNAL_TOPICS[:3]},
        **{f"{topic}.replication.factor": 3 for topic in INTERNAL_TOPICS[3:]},
        **{f"{interval}.interval.seconds": 1 for interval in INTERVALS},
    }


def produce_values(cluster: Cluster, numbers: Sequence[int]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0})
    produce(producer, TOPIC, *map(str, numbers))


def wait_until_copied(target: Cluster, mirror: ClientProcess, count: int) -> None:
    """Wait until the copy has these records, which MirrorMaker commits in transactions; each of them once."""

    def has_all() -> bool:
        assert mirror.exit_status is None, mirror.errors
        return COPY in target.describe([COPY]).topics and sum(end for _, end in target.offsets(COPY).values()) >= count

    try:
        target.wait_until(f"{count} records are copied", has_all, LIMIT_S)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{mirror.errors}") from None
    assert consumed(target, COPY, count, timeout_s=LIMIT_S) == sorted(map(str, range(count)))


def copied_offsets(target: Cluster) -> dict[TopicPartition, int]:
    """The group's offsets in the copy; MirrorMaker writes an earlier one where it does not know the exact one."""
    return {p: offset for p, offset in target.group(GROUP).offsets().items() if p.topic == COPY}


def has_config_of_source(target: Cluster) -> bool:
    resource, admin = ConfigResource(ConfigResource.Type.TOPIC, COPY), target.admin()
    configs = admin.describe_configs([resource])[resource].result()
    return bool(configs["retention.ms"].value == RETENTION_MS)


@pytest.mark.parametrize(
    ("of_source", "of_target"), [("klamm", "klamm"), ("klamm", "apache-kafka"), ("apache-kafka", "klamm")]
)
@pytest.mark.timeout(600)
def test_mirrormaker_copies_topics_configs_and_group_offsets_exactly_once_while_nodes_are_killed(
    of_source: str, of_target: str, tmp_path: Path, client_rounds: int
) -> None:
    if client_rounds == 1:
        pytest.skip("two clusters and MirrorMaker take a minute: `make prove` runs them")
    for jars in (apache_kafka.KAFKA, apache_kafka.MIRROR):
        if why := apache_kafka.why_missing(jars):
            pytest.skip(why)
    with (
        Cluster(tmp_path / "from", command=BROKERS[of_source]()) as source,
        Cluster(tmp_path / "to", command=BROKERS[of_target]()) as target,
    ):
        source.create_topic(TOPIC, PARTITIONS, 3, config={"retention.ms": RETENTION_MS})
        produce_values(source, range(RECORDS))
        properties = write_properties(tmp_path / "mirror.properties", mirror_properties(source, target))
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        words = apache_kafka.java(main, properties, classpath=[apache_kafka.MIRROR.directory])
        mirror = ClientProcess(tmp_path, "mirror", words)
        try:
            wait_until_copied(target, mirror, RECORDS)
            for number, cluster in enumerate((source, target), 1):
                produce_values(source, range(number * RECORDS, (number + 1) * RECORDS))
                cluster.node(number).kill()
                wait_until_copied(target, mirror, (number + 1) * RECORDS)
                cluster.wait_until_forgotten(number)  # before, Apache Kafka's brokers do not start again
                cluster.node(number).start()
            ends = {TopicPartition(TOPIC, p): end for p, (_, end) in source.offsets(TOPIC).items()}
            source.group(GROUP).commit(ends)
            target.wait_until("the config is copied", lambda: has_config_of_source(target), LIMIT_S)
            target.wait_until("the group's offsets are copied", lambda: len(copied_offsets(target)) == 3, LIMIT_S)
            ends_of_copy = target.offsets(COPY)  # markers of transactions have offsets, too
            assert all(0 < offset <= ends_of_copy[p.partition][1] for p, offset in copied_offsets(target).items())
        finally:
            mirror.kill()
