"""Replicas that brokers return: what is asked of them."""

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from klamm.audit.replicas.fetched import FetchedReplicaLog
from klamm.client.blocking import BlockingClient
from klamm.model.cluster import Address
from klamm.model.ids import BrokerId, TopicPartition
from klamm.wire.messages import FetchableTopicResponse, FetchResponse, FetchResponsePartitionData

AT = TopicPartition("t", 0)
TOPIC_ID = UUID(int=7)


def test_the_bounds_of_a_replica_are_asked_without_waiting_for_records() -> None:
    """A broker makes a fetch at the end of a log wait: half a second for each replica of each empty partition."""
    sent: list[Any] = []

    def ask(request: Any) -> FetchResponse:
        sent.append(request.body(13))
        return answer

    data = FetchResponsePartitionData(partition_index=0, high_watermark=5, last_stable_offset=5, log_start_offset=5)
    answer = FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=[data])])
    connection = SimpleNamespace(ask=ask)
    client = SimpleNamespace(
        cluster=None,
        world=SimpleNamespace(now_s=lambda: 0.0),
        run=lambda _steps: {AT: 5},
        at=lambda _address: connection,
    )
    log = FetchedReplicaLog(
        cast(BlockingClient, client), (BrokerId(1), Address("b1", 9092)), AT, TOPIC_ID, 30.0, is_compacted=False
    )

    assert log.bounds() == (5, 5, 5, 5)
    assert [fetch.max_wait_ms for fetch in sent] == [0]
