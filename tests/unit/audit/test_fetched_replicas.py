"""Replicas that brokers return: what is asked of them."""

from typing import Any

from tests.unit.spark.scripts import log, scripted

from klamm.audit.replicas.brokers import ReplicaBrokers
from klamm.audit.replicas.fetched import FetchedReplicaLog
from klamm.client.blocking import BlockingClient, BlockingSettings
from klamm.model.cluster import Address
from klamm.model.ids import BrokerId, TopicPartition
from klamm.wire.messages import FetchRequest

AT = TopicPartition("orders", 0)


def test_the_bounds_of_a_replica_are_asked_without_waiting_for_records() -> None:
    """A broker makes a fetch at the end of a log wait: half a second for each replica of each empty partition."""
    sent: list[Any] = []
    world = scripted(orders_0=log(5, 10))
    world.cluster.on_request = lambda _broker, request: sent.append(request)
    with BlockingClient(world, [Address("one", 9092)], BlockingSettings("test", 1.0, 1.0)) as client:
        client.run(client.cluster.refresh(()))
        replica = FetchedReplicaLog(ReplicaBrokers(client, 1.0), BrokerId(1), AT, None, is_compacted=False)

        assert replica.bounds()[:2] == (5, 10)
    assert [request.max_wait_ms for request in sent if isinstance(request, FetchRequest)] == [0]
