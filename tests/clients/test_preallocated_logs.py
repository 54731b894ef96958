"""Preallocated segments after a kill: Apache Kafka's, recovered by klamm, and klamm's, recovered by Apache Kafka."""

import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support import apache_kafka
from tests.support.kazoo_clients import kazoo_client
from tests.support.managed_logs import crash
from tests.unit.log.support import NOW_MS, batch, values_of

from klamm.embedded.nodes import NodeProcess, make_nodes
from klamm.embedded.zookeeper import ZooKeeperServer
from klamm.log.manager import LogManager
from klamm.log.meta_properties import read_meta
from klamm.model.ids import TopicPartition as Partition
from klamm.runtime.disk import RealDisk
from klamm.runtime.ports import free_ports
from klamm.runtime.processes import ticks
from klamm.runtime.world import real_world

SEGMENT_BYTES = 20_000
TOPIC = {"segment.bytes": str(SEGMENT_BYTES), "preallocate": "true"}
ORDERS = Partition("orders", 0)


@pytest.fixture(autouse=True)
def _kafka() -> None:
    if why := apache_kafka.why_missing():
        pytest.skip(why)


def started(node: NodeProcess) -> str:
    """Start the broker; its address.

    librdkafka never asks for a controller again if the first metadata of a broker names no broker.
    """
    node.start()
    apache_kafka.wait_until_started(node)
    for _ in ticks(60):
        if AdminClient({"bootstrap.servers": node.address}).list_topics(timeout=10).brokers:
            return node.address
    raise AssertionError(f"the metadata of {node.name} name no broker after 60 s")


def wait_until_unregistered(zookeeper: str, broker_id: int) -> None:
    """Wait until the session of a killed broker has ended."""
    gone = threading.Event()
    with kazoo_client(zookeeper) as client:
        if client.exists(f"/brokers/ids/{broker_id}", watch=lambda event: gone.set()):
            assert gone.wait(60)


def produce(address: str, first: int, count: int) -> list[str]:
    """Produce so many records, each in a batch of its own; returns the values."""
    producer = Producer({"bootstrap.servers": address, "acks": "all", "batch.num.messages": 1})
    values = [f"value {first + number}".ljust(100, "x") for number in range(count)]
    for value in values:
        producer.produce("orders", value)
    assert producer.flush(60) == 0
    return values


def consume(address: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "none", "check.crcs": True})
    consumer.assign([TopicPartition("orders", 0, 0)])
    found: list[str] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), timeout=60)
        assert messages, f"{len(found)} of {count} records"
        assert not [message.error() for message in messages if message.error() is not None]
        found += [(message.value() or b"").decode() for message in messages]
    consumer.close()
    return found


def last_file(node: NodeProcess) -> Path:
    return max(Path(node.log_directory, str(ORDERS)).glob("*.log"))


async def test_preallocated_logs_of_killed_brokers_are_recovered_by_klamm_and_by_apache_kafka(
    tmp_path: Path, shared_zookeeper: ZooKeeperServer
) -> None:
    zookeeper, properties = f"{shared_zookeeper.connect_string}/preallocated", {"controlled.shutdown.enable": "false"}
    (node,) = make_nodes(str(tmp_path), free_ports(1), zookeeper, properties, apache_kafka.broker())
    address = started(node)
    admin = AdminClient({"bootstrap.servers": address})  # it must outlive the answer
    admin.create_topics([NewTopic("orders", 1, 1, config=TOPIC)])["orders"].result(60)
    values = produce(address, 0, 250)
    node.kill()
    assert last_file(node).stat().st_size == SEGMENT_BYTES
    assert last_file(node).read_bytes()[-1000:] == bytes(1000)

    meta = read_meta(RealDisk(), node.log_directory)
    assert meta is not None
    ours = LogManager(real_world(), [node.log_directory], meta.broker_id or 0, meta.cluster_id or "")
    await ours.load({"orders": TOPIC})
    log = ours.logs[ORDERS]
    assert (values_of(log), log.notes) == (values, [])
    assert last_file(node).stat().st_size == log.segments.active.size

    values += [f"ours {number}".ljust(100, "x") for number in range(250)]
    for value in values[250:]:
        log.append_as_leader(batch(value, timestamp=NOW_MS), log.epochs.latest_epoch or 0)
    assert log.segments.active.size < SEGMENT_BYTES == last_file(node).stat().st_size
    await crash(ours)

    wait_until_unregistered(zookeeper, node.broker_id)
    address = started(node)
    values += produce(address, 500, 10)
    found = consume(address, len(values))
    node.kill()
    assert found == values
