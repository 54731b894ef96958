"""A leader that was replaced without knowing it sends no consumer back to the log start (OFFSET_OUT_OF_RANGE)."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from tests.support.cluster import Cluster

from klamm.client.connection import Connection
from klamm.embedded.nodes import NodeProcess
from klamm.model.cluster import parse_addresses
from klamm.model.errors import ErrorCode
from klamm.runtime.world import real_world
from klamm.wire.api import ApiKey
from klamm.wire.messages import FetchPartition, FetchRequest, FetchResponse, FetchTopic

WITHOUT_TOPIC_IDS = 12
TIMEOUT_S = 60
BEFORE, AFTER = 5, 7


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes of klamm with short sessions."""
    overrides = {"zookeeper.session.timeout.ms": "2000", "replica.lag.time.max.ms": "2000"}
    with Cluster(tmp_path_factory.mktemp("replaced"), 2, overrides=overrides, network_faults=True) as running:
        yield running


def produce(node: NodeProcess, topic: str, count: int) -> None:
    """Send records to the partition that this node leads."""
    producer = Producer({"bootstrap.servers": node.address, "acks": "all", "linger.ms": 0, "log_level": 0})
    for _ in range(count):
        producer.produce(topic, b"x", partition=0)
    assert producer.flush(60) == 0


def do_nothing() -> None:
    pass


def fetch(node: NodeProcess, topic: str, offset: int, once_sent: Callable[[], None] = do_nothing) -> int:
    """The error for a consumer whose metadata names this node as the leader."""
    partition = FetchPartition(0, current_leader_epoch=-1, fetch_offset=offset, partition_max_bytes=1_000)
    message = FetchRequest(max_wait_ms=0, max_bytes=1_000, topics=[FetchTopic(topic, partitions=[partition])])
    [(host, port)] = parse_addresses(node.address)

    async def ask() -> int:
        connection = await Connection.open(real_world(), host, port, "test", TIMEOUT_S)
        try:
            answer = asyncio.ensure_future(connection.request(ApiKey.FETCH, WITHOUT_TOPIC_IDS, message, TIMEOUT_S))
            await asyncio.sleep(0)  # the request is in the socket
            once_sent()
            response: FetchResponse = await answer
            return response.responses[0].partitions[0].error_code
        finally:
            connection.close()

    return asyncio.run(ask())


def cut_off(cluster: Cluster, node: NodeProcess) -> None:
    cluster.partition(node.broker_id)


def pause(cluster: Cluster, node: NodeProcess) -> None:
    node.pause()


@pytest.fixture
def topic(cluster: Cluster, own_name: str) -> Iterator[str]:
    """A topic with one partition on both nodes; afterwards the cluster is repaired."""
    cluster.create_topic(own_name, 1, 2)
    cluster.wait_until_in_sync(own_name, 1, 2)
    yield own_name
    cluster.repair()


Replace = Callable[[Cluster, NodeProcess], None]


@pytest.mark.parametrize("replace", [cut_off, pause], ids=["cut off", "paused"])
def test_a_replaced_leader_does_not_tell_a_consumer_that_its_offset_is_out_of_range(
    cluster: Cluster, topic: str, replace: Replace
) -> None:
    old = cluster.node(cluster.partition_state(topic).leader)
    [new] = [node for node in cluster.nodes if node is not old]
    produce(old, topic, BEFORE)
    assert fetch(old, topic, BEFORE + 1) == ErrorCode.OFFSET_OUT_OF_RANGE  # its follower confirms it

    replace(cluster, old)
    cluster.wait_until(
        "the other node leads",
        lambda: cluster.describe([topic], new).topics[topic].partitions[0].leader == new.broker_id,
    )
    produce(new, topic, AFTER)
    assert fetch(old, topic, BEFORE + 1, once_sent=old.resume) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetch(new, topic, BEFORE + 1) == ErrorCode.NONE
    assert fetch(new, topic, BEFORE + AFTER + 1) == ErrorCode.OFFSET_OUT_OF_RANGE
