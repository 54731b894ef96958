"""ListOffsets version 0: the offsets where segments begin. Facts: LogOffsetTest, UnifiedLogTest (3.9)."""

import pytest
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.unit.replication.runs import Run

from klamm.log.lookup import offset_count_before
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.replication.fetch_data import CONSUMER
from klamm.replication.offset_lookup import DEBUGGING_CONSUMER

FOLLOWER = BrokerId(2)
CASES = {
    "latest": (-1, 1, CONSUMER, [3]),
    "all, bounded by the high watermark": (-1, 10, CONSUMER, [3, 2, 0]),
    "a follower sees the log end": (-1, 10, FOLLOWER, [4, 2, 0]),
    "earliest": (-2, 10, CONSUMER, [0]),
    "before the first segment was written": (5, 10, CONSUMER, []),
    "no offsets wanted": (-1, 0, CONSUMER, []),
}


@pytest.mark.parametrize(("timestamp", "most", "replica_id", "expected"), CASES.values(), ids=CASES)
def test_list_offsets_version_0_returns_segments_written_before_the_timestamp(
    run_on_disk: Run, timestamp: int, most: int, replica_id: BrokerId, expected: list[int]
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1,), (1,), tell=[1])
        for _ in range(3):
            await cluster.produce(1, acks=1)
            if cluster.log(1).end_offset == 2:
                cluster.logs[1].get(P0).roll()
        await cluster.elect(1, (1, 2), tell=[1])
        await cluster.produce(1, acks=1)
        found = cluster.brokers[1].segment_offsets_before(P0, timestamp, most, replica_id)
        assert found == (ErrorCode.NONE, expected)

    run_on_disk(scenario)


def test_list_offsets_version_0_is_refused_at_a_follower_except_for_debugging_consumers(run_on_disk: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        follower = cluster.brokers[2]
        assert follower.segment_offsets_before(P0, -1, 1, CONSUMER) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
        assert follower.segment_offsets_before(P0, -1, 1, DEBUGGING_CONSUMER) == (ErrorCode.NONE, [0])

    run_on_disk(scenario)


@pytest.mark.parametrize(("timestamp", "expected"), [(9, 0), (10, 1), (25, 2), (99, 3)])
def test_list_offsets_version_0_returns_offsets_of_segments_written_up_to_the_timestamp(
    timestamp: int, expected: int
) -> None:
    assert offset_count_before([10, 20, 30], timestamp) == expected
