"""DeleteRecords: which partitions reach their replicas, and the response in every version."""

from collections.abc import Mapping

import pytest
from tests.unit.broker.cluster_state import cache, partition, request, update

from klamm.broker.handlers.delete_records import DELETE_RECORDS, DeleteRecords
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.replication.record_deletion import DeletionResult
from klamm.wire.api import ApiKey
from klamm.wire.messages import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Replicas:
    """Deletes up to offset 9, and refuses everything beyond."""

    def __init__(self) -> None:
        self.requested: Mapping[TopicPartition, int] = {}
        self.timeout_ms = 0

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], timeout_ms: int
    ) -> dict[TopicPartition, DeletionResult]:
        self.requested, self.timeout_ms = offsets, timeout_ms
        refused = DeletionResult(ErrorCode.OFFSET_OUT_OF_RANGE)
        return {tp: DeletionResult(low_watermark=o) if o <= 9 else refused for tp, o in offsets.items()}


def deletion(*partitions: tuple[str, int, int]) -> DeleteRecordsRequest:
    topics = [DeleteRecordsTopic(topic, [DeleteRecordsPartition(p, offset)]) for topic, p, offset in partitions]
    return DeleteRecordsRequest(topics, 700)


@pytest.mark.parametrize("version", range(DELETE_RECORDS.max_version + 1))
async def test_every_delete_records_version_answers_each_partition_with_low_watermark_or_error(version: int) -> None:
    replicas = Replicas()
    state = cache(update({"orders": [partition(0, 1), partition(1, 2)], "__consumer_offsets": [partition(0, 1)]}))

    response = await DeleteRecords(state, replicas).handle(  # type: ignore[arg-type]
        request(ApiKey.DELETE_RECORDS, version),
        deletion(("orders", 0, 4), ("orders", 1, 40), ("orders", 9, 1), ("gone", 0, 1), ("__consumer_offsets", 0, 1)),
    )

    decoded = response.decode(response.encode(version), version)
    answered = {(t.name, p.partition_index): (p.low_watermark, p.error_code) for t in decoded.topics
                for p in t.partitions}  # fmt: skip
    assert answered == {
        ("orders", 0): (4, ErrorCode.NONE),
        ("orders", 1): (-1, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("orders", 9): (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("gone", 0): (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("__consumer_offsets", 0): (-1, ErrorCode.INVALID_TOPIC_EXCEPTION),
    }
    assert [t.name for t in decoded.topics] == ["orders", "gone", "__consumer_offsets"]
    assert (replicas.requested, replicas.timeout_ms) == ({ORDERS_0: 4, ORDERS_1: 40}, 700)
