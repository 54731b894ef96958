"""A reassignment is slowed down, hurried up and finished with Kafka's own tool; producers notice nothing."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType
from tests.clients.test_reassignment_under_load import TOOL, plan_file, run
from tests.support import apache_kafka
from tests.support.cluster import Cluster

from klamm.runtime.processes import ticks

TOPIC = "throttled"
MB = 1_000_000
FILLED = 16 * MB
RATE = MB
FASTER = 100 * MB
AT_ONCE = 2 * (1 << 20)
"""What may be under way whatever the rate is: an answer that the quota let go, and the next."""


@pytest.fixture(autouse=True)
def _kafka() -> None:
    if why := apache_kafka.why_missing():
        pytest.skip(why)


@pytest.fixture
def producer(cluster: Cluster) -> Iterator[Producer]:
    cluster.create_topic(TOPIC, 1, 2)
    yield Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 5, "log_level": 0})
    admin = cluster.admin()  # it must outlive the answer
    admin.delete_topics([TOPIC])[TOPIC].result()


def held(cluster: Cluster, broker_id: int) -> int:
    """Bytes of records that a node holds of the partition."""
    folder = Path(cluster.node(broker_id).log_directory, f"{TOPIC}-0")
    return sum(file.stat().st_size for file in folder.glob("*.log"))


def throttles(cluster: Cluster, kind: ResourceType, name: str) -> dict[str, str]:
    resource = ConfigResource(kind, name)
    admin = cluster.admin()
    found = admin.describe_configs([resource])[resource].result()
    return {n: e.value for n, e in found.items() if "replication.throttled" in n and e.value and not e.is_default}


def test_a_throttled_reassignment_respects_its_rate_and_completes_after_the_throttle_is_raised(
    cluster: Cluster, producer: Producer, tmp_path: Path
) -> None:
    before = cluster.metadata().topics[TOPIC].partitions[0]
    [new] = {1, 2, 3} - set(before.replicas)
    stays = before.leader
    records = FILLED // 10_000
    for _ in range(records):
        producer.produce(TOPIC, b"x" * 10_000)
    assert producer.flush(60) == 0
    plan = plan_file(tmp_path / "plan.json", TOPIC, {0: (stays, new)})

    said = run(cluster, TOOL, "--reassignment-json-file", plan, "--execute", "--throttle", str(RATE))
    assert f"throttle limit was set to {RATE} B/s" in said
    started, first = time.monotonic(), held(cluster, new)  # some is copied before the brokers know of the throttle
    for _ in ticks(60, 0.2):
        copied = held(cluster, new)
        assert copied - first <= RATE * (time.monotonic() - started) + AT_ONCE
        producer.produce(TOPIC, b"meanwhile")
        records += 1
        assert producer.flush(20) == 0
        if copied > FILLED / 4:
            break
    assert FILLED / 4 < copied < FILLED
    assert new not in cluster.metadata().topics[TOPIC].partitions[0].isrs

    said = run(cluster, TOOL, "--reassignment-json-file", plan, "--execute", "--additional", "--throttle", str(FASTER))
    assert f"throttle limit was set to {FASTER} B/s" in said
    cluster.wait_until("the new replica is in sync", lambda: new in cluster.metadata().topics[TOPIC].partitions[0].isrs)
    for _ in ticks(60, 1):
        said = run(cluster, TOOL, "--reassignment-json-file", plan, "--verify")
        if "is completed" in said:
            break
    assert "Clearing broker-level throttles" in said
    assert "Clearing topic-level throttles" in said

    places = [(ResourceType.TOPIC, TOPIC), *((ResourceType.BROKER, str(b)) for b in (1, 2, 3))]
    assert {name: throttles(cluster, kind, name) for kind, name in places} == {name: {} for _, name in places}
    assert held(cluster, new) == held(cluster, stays) > FILLED
    reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none", "log_level": 0})
    assert reader.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=20) == (0, records)
    reader.close()
