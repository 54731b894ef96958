"""One fetcher against a leader whose answers the test writes: each answer, and what becomes of the partition."""

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.memory_log import batch
from tests.support.replica_cluster import P0, TOPIC_ID, ReplicaCluster, leader_and_isr

from klamm.log.errors import StorageFailed
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.replication.fetch_session_client import FetchSettings
from klamm.replication.fetcher import Fetcher
from klamm.replication.fetcher_manager import FetcherManager, InitialFetchState, fetcher_id
from klamm.replication.leader_end_point import LeaderEndPoint
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    FetchableTopicResponse,
    FetchResponse,
    FetchResponseEpochEndOffset,
    FetchResponsePartitionData,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from klamm.wire.records import CorruptRecords

P1 = TopicPartition("orders", 1)
BACKOFF_S = 1.0


def data(number: int = 0, error: ErrorCode = ErrorCode.NONE, **more: Any) -> FetchResponsePartitionData:
    return FetchResponsePartitionData(
        partition_index=number,
        error_code=error,
        high_watermark=more.pop("high_watermark", 0),
        log_start_offset=more.pop("log_start_offset", 0),
        **more,
    )


def answer(
    *partitions: FetchResponsePartitionData, session: int = 9, error: ErrorCode = ErrorCode.NONE
) -> FetchResponse:
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(partitions))
    return FetchResponse(error_code=error, session_id=session, responses=[topic] if partitions else [])


class Leader:
    """Answers as told; without anything left to say it stays silent."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.offsets: list[Any] = []
        self.asked: list[Any] = []
        self.times: list[float] = []
        self.connections = 0
        self.closed = True
        self.broken = asyncio.Event()

    async def connect(self, host: str, port: int, client_id: str) -> "Leader":
        self.connections += 1
        self.closed = False
        self.broken.clear()
        return self

    def close(self) -> None:
        self.closed = True
        self.broken.set()

    async def request(self, api_key: ApiKey, version: int, message: Any, timeout_s: float) -> Any:
        self.asked.append(message)
        self.times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0)
        left = self.answers if api_key is ApiKey.FETCH else self.offsets
        if not left:
            await self.broken.wait()
            raise ConnectionResetError("closed by us")
        said = left.pop(0)
        if callable(said):
            said = said()
        if isinstance(said, Exception):
            raise said
        if api_key is ApiKey.LIST_OFFSETS and not isinstance(said, ListOffsetsResponse):
            error, offset = (said, -1) if isinstance(said, ErrorCode) else (ErrorCode.NONE, said)
            found = ListOffsetsPartitionResponse(partition_index=0, error_code=error, offset=offset)
            said = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="orders", partitions=[found])])
        return said

    def fetches(self) -> list[list[tuple[int, int, int]]]:
        """(partition, offset, last fetched epoch) of each Fetch."""
        return [
            [(p.partition, p.fetch_offset, p.last_fetched_epoch) for t in m.topics for p in t.partitions]
            for m in self.asked
            if hasattr(m, "session_id")
        ]


Scenario = Callable[[ReplicaCluster, Leader, Fetcher], Any]


@pytest.fixture
def follow(run: Callable[..., None]) -> Callable[..., None]:
    """`follow(scenario, *answers, records=..., offsets=...)`: broker 1 follows 2 with logs of so many records."""

    def play(scenario: Scenario, *answers: Any, records: tuple[int, ...] = (0,), offsets: tuple[Any, ...] = ()) -> None:
        async def main(cluster: ReplicaCluster) -> None:
            leader = Leader()
            leader.answers, leader.offsets = list(answers), list(offsets)
            end_point = LeaderEndPoint(1, 2, "broker-1-fetcher-0", cluster.metadata, leader.connect, 30)
            quota = cluster.brokers[1].quotas.follower
            fetcher = Fetcher(end_point, FetchSettings(1), lambda: 100, BACKOFF_S, quota)
            cluster.brokers[1]._fetchers.add = lambda following: None
            for number, count in enumerate(records):
                tp = TopicPartition("orders", number)
                request = leader_and_isr(2, (1, 2), (1, 2), 3, 1, tp)
                await cluster.brokers[1].become_leader_or_follower(request, 7)
                for _ in range(count):
                    cluster.log(1, tp).append_as_follower(
                        batch(base=cluster.log(1, tp).end_offset, epoch=2, filler=b"old")
                    )
                fetcher.add(tp, cluster.partition(1, tp), 3)
            task = asyncio.create_task(fetcher.run())
            try:
                await scenario(cluster, leader, fetcher)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                assert leader.closed

        run(main)

    return play


async def settle() -> None:
    await asyncio.sleep(0.01)


def test_an_answer_is_appended_and_the_next_fetch_goes_on_from_there(follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        log = cluster.log(1)
        assert (log.end_offset, log.high_watermark) == (4, 3)
        assert leader.fetches() == [[(0, 2, 2)], [(0, 4, 3)]]
        assert (leader.asked[0].session_epoch, leader.asked[1].session_epoch) == (0, 1)
        assert leader.times[1] == 0

    records = batch(2, base=2, epoch=3)
    follow(scenario, answer(data(records=records, high_watermark=3)), records=(2,))


def test_a_leader_with_a_high_watermark_beyond_our_log(follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        assert cluster.log(1).high_watermark == 2

    follow(scenario, answer(data(high_watermark=99)), records=(2,))


def test_a_high_watermark_may_go_down(follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        assert cluster.log(1).high_watermark == 1

    follow(scenario, answer(data(high_watermark=2)), answer(data(high_watermark=1)), records=(2,))


def test_an_empty_answer_keeps_the_last_fetched_epoch(follow) -> None:
    """KAFKA-15510"""

    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        assert leader.fetches() == [[(0, 2, 2)], []]
        assert fetcher._followed[P0].last_fetched_epoch == 2

    follow(scenario, answer(data(high_watermark=1)), records=(2,))


def test_a_new_log_start_is_taken_over_and_told_back(follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        starts = [[p.log_start_offset for t in m.topics for p in t.partitions] for m in leader.asked]
        assert starts == [[0], [1], []]
        assert cluster.log(1).start_offset == 1

    beyond = answer(data(high_watermark=1, log_start_offset=2))  # not above the high watermark
    follow(scenario, answer(data(high_watermark=2, log_start_offset=1)), beyond, records=(2,))


def test_a_log_without_epochs_is_cut_to_its_high_watermark(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.brokers[1].become_leader_or_follower(leader_and_isr(2, (2,), (1, 2), 3, 1), 7)
        cluster.brokers[1].fetchers.remove([P0])
        log = cluster.log(1)
        for offset in range(3):
            log.append_as_follower(batch(base=offset))
        log.update_high_watermark(1)
        leader = Leader()
        end_point = LeaderEndPoint(1, 2, "c", cluster.metadata, leader.connect, 30)
        quota = cluster.brokers[1].quotas.follower
        fetcher = Fetcher(end_point, FetchSettings(1), lambda: 100, BACKOFF_S, quota)
        fetcher.add(P0, cluster.partition(1), 3)
        assert (log.end_offset, log.truncations) == (1, [1])
        assert fetcher._followed[P0].wanted()[1:4] == (1, 3, -1)

    run(scenario)


def test_diverging_cuts_and_fetches_on(follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        assert cluster.log(1).truncations == [1]
        assert cluster.log(1).high_watermark == 0  # not the one of this answer
        assert leader.fetches() == [[(0, 3, 2)], [(0, 1, 2)]]

    diverging = data(
        diverging_epoch=FetchResponseEpochEndOffset(2, 1), high_watermark=9, records=batch(base=3, epoch=3)
    )
    follow(scenario, answer(diverging), records=(3,))


def test_diverging_of_one_comes_after_the_others_were_appended(follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        assert cluster.log(1).end_offset == 1
        assert cluster.log(1, P1).end_offset == 1

    diverging = data(0, diverging_epoch=FetchResponseEpochEndOffset(2, 1))
    follow(scenario, answer(diverging, data(1, records=batch(base=0, epoch=3))), records=(3, 0))


RETRIED = [
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
]


@pytest.mark.parametrize("error", RETRIED)
def test_an_error_rests_the_partition_and_not_the_others(follow, error: ErrorCode) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        assert leader.fetches() == [[(0, 0, -1), (1, 0, -1)], [(1, 1, 3)]]
        forgotten = leader.asked[1].forgotten_topics_data
        assert [(t.topic_id, tuple(t.partitions)) for t in forgotten] == [(TOPIC_ID, (0,))]
        assert P0 in fetcher
        assert fetcher.failed == set()

    follow(scenario, answer(data(0, error), data(1, records=batch(base=0, epoch=3))), records=(0, 0))


def test_rests_grow_to_the_back_off_and_end_with_success(follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await asyncio.sleep(20)
        pauses = [round(b - a, 3) for a, b in zip(leader.times, leader.times[1:], strict=False)]
        assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 0.0, 0.05]

    refused = answer(data(0, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    good = answer(data(0, high_watermark=0))
    follow(scenario, *[refused] * 7, good, refused)


def test_a_fenced_epoch_fails_the_partition_until_the_next_order(follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await asyncio.sleep(50)
        assert fetcher.failed == {P0}
        assert P0 not in fetcher
        assert leader.fetches() == [[(0, 0, -1)]]
        fetcher.add(P0, cluster.partition(1), 4)
        assert fetcher.failed == set()
        await asyncio.sleep(2)
        assert len(leader.fetches()) == 2

    follow(scenario, answer(data(0, ErrorCode.FENCED_LEADER_EPOCH)))


def test_an_answer_to_an_older_epoch_is_left_alone(follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        assert cluster.log(1).end_offset == 0
        assert fetcher.failed == set()
        assert [p.current_leader_epoch for t in leader.asked[1].topics for p in t.partitions] == [4]

    def meanwhile():
        scene["fetcher"].add(P0, scene["partition"], 4)
        return answer(data(records=batch(base=0, epoch=3)))

    scene: dict[str, Any] = {}

    async def cached(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        scene.update(fetcher=fetcher, partition=cluster.partition(1))
        await scenario(cluster, leader, fetcher)

    follow(cached, meanwhile)


def test_an_answer_for_a_removed_partition_is_left_alone(follow) -> None:
    scene: dict[str, Any] = {}

    def meanwhile():
        scene["fetcher"].remove(P0)
        return answer(data(records=batch(base=0, epoch=3)))

    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        scene["fetcher"] = fetcher
        await settle()
        assert cluster.log(1).end_offset == 0
        assert len(fetcher) == 0

    follow(scenario, meanwhile)


def test_records_that_do_not_fit_fail_the_partition_and_not_the_others(follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        assert fetcher.failed == {P0}
        assert cluster.log(1, P1).end_offset == 1

    bad, good = data(0, records=batch(base=1, epoch=3)), data(1, records=batch(base=0, epoch=3))
    follow(scenario, answer(bad, good), records=(2, 0))


def test_a_log_that_moved_under_the_fetch_fails_the_partition(follow) -> None:
    scene: dict[str, Any] = {}

    def meanwhile():
        scene["log"].append_as_follower(batch(base=0, epoch=3))
        return answer(data(high_watermark=1))

    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        scene["log"] = cluster.log(1)
        await settle()
        assert fetcher.failed == {P0}

    follow(scenario, meanwhile)


def test_a_broken_disk_fails_the_partition(follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        cluster.log(1).is_broken = True
        await settle()
        assert fetcher.failed == {P0}
        assert cluster.brokers[1].offline_partitions == {P0}

    follow(scenario, answer(data(records=batch(base=0, epoch=3))))


def test_corrupt_records_are_fetched_again(run_corrupt, follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        log = cluster.log(1)
        append, log.append_as_follower = log.append_as_follower, run_corrupt
        await settle()
        assert P0 in fetcher
        log.append_as_follower = append
        await asyncio.sleep(1)
        assert log.end_offset == 1

    good = answer(data(records=batch(base=0, epoch=3)))
    follow(scenario, good, good)


def test_what_was_good_before_corrupt_records_is_kept_and_the_rest_fetched_again(follow) -> None:
    """The log writes what lies before the bad batch: the next fetch must go on behind it."""

    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        log = cluster.log(1)
        append = log.append_as_follower

        def write_the_first(records: bytes) -> None:
            append(batch(base=0, epoch=3))
            raise CorruptRecords("CRC does not match")

        log.append_as_follower = write_the_first
        await settle()
        log.append_as_follower = append
        await asyncio.sleep(1)
        assert fetcher.failed == set()
        assert log.end_offset == 2
        assert leader.fetches()[1] == [(0, 1, 3)]

    both = answer(data(records=batch(base=0, epoch=3) + batch(base=1, epoch=3)))
    follow(scenario, both, answer(data(records=batch(base=1, epoch=3))))


@pytest.fixture
def run_corrupt():
    def refuse(records: bytes) -> None:
        raise CorruptRecords("CRC does not match")

    return refuse


def test_an_empty_log_told_to_start_inside_a_batch_starts_with_the_batch(follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        log = cluster.log(1)
        assert (log.start_offset, log.end_offset) == (5, 8)

    out_of_range = answer(data(0, ErrorCode.OFFSET_OUT_OF_RANGE))
    follow(scenario, out_of_range, answer(data(records=batch(3, base=5, epoch=3), log_start_offset=6)), offsets=(20, 6))


# ---- out of range


OUT_OF_RANGE = {
    "the leader ends below us: unclean election": ((1,), 1, [1]),
    "the leader starts above us: we were away for long": ((9, 6), 6, []),
    "we lie inside the leader's log": ((9, 1), 3, []),
}


@pytest.mark.parametrize(("offsets", "end", "truncations"), OUT_OF_RANGE.values(), ids=OUT_OF_RANGE)
def test_out_of_range(follow, offsets: tuple[int, ...], end: int, truncations: list[int]) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        log = cluster.log(1)
        assert (log.end_offset, log.truncations) == (end, truncations)
        assert leader.fetches()[-1][0][1] == end
        asked = [p for m in leader.asked if not hasattr(m, "session_id") for t in m.topics for p in t.partitions]
        assert [(p.timestamp, p.current_leader_epoch) for p in asked] == [(-1, 3), (-2, 3)][: len(offsets)]

    follow(scenario, answer(data(0, ErrorCode.OFFSET_OUT_OF_RANGE)), records=(3,), offsets=offsets)


@pytest.mark.parametrize(
    ("offsets", "fails"),
    [
        ((ErrorCode.FENCED_LEADER_EPOCH,), True),
        ((9, ErrorCode.FENCED_LEADER_EPOCH), True),
        ((ErrorCode.UNKNOWN_LEADER_EPOCH,), False),
        ((ErrorCode.NOT_LEADER_OR_FOLLOWER,), False),
        ((ListOffsetsResponse(),), False),
    ],
)
def test_out_of_range_and_the_leader_refuses_to_say_more(follow, offsets: tuple[Any, ...], fails: bool) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        assert (P0 in fetcher.failed, P0 in fetcher) == (fails, not fails)
        assert cluster.log(1).end_offset == 3

    follow(scenario, answer(data(0, ErrorCode.OFFSET_OUT_OF_RANGE)), records=(3,), offsets=offsets)


@pytest.mark.parametrize("at", [0, 1])
def test_out_of_range_and_removed_while_asking(follow, at: int) -> None:
    scene: dict[str, Any] = {}

    def meanwhile():
        scene["fetcher"].remove(P0)
        found = ListOffsetsPartitionResponse(partition_index=0, offset=1 if at == 0 else 8)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="orders", partitions=[found])])

    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        scene["fetcher"] = fetcher
        await settle()
        assert cluster.log(1).end_offset == 3
        assert len(fetcher) == 0

    offsets = (meanwhile,) if at == 0 else (9, meanwhile)
    follow(scenario, answer(data(0, ErrorCode.OFFSET_OUT_OF_RANGE)), records=(3,), offsets=offsets)


def test_out_of_range_and_the_disk_breaks(follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        cluster.log(1).is_broken = True
        await settle()
        assert fetcher.failed == {P0}

    follow(scenario, answer(data(0, ErrorCode.OFFSET_OUT_OF_RANGE)), records=(3,), offsets=(1,))


# ---- the connection


@pytest.mark.parametrize(
    "trouble", [ConnectionResetError("gone"), KlammError("lost"), TimeoutError(), ZeroDivisionError()]
)
def test_a_lost_connection_is_made_again_and_starts_a_new_session(follow, trouble: Exception) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await asyncio.sleep(1)
        assert leader.connections == 2
        sessions = [(m.session_id, m.session_epoch) for m in leader.asked]
        assert sessions == [(0, 0), (9, 1), (9, 0)]
        assert leader.fetches() == [[(0, 0, -1)], [], [(0, 0, -1)]]

    follow(scenario, answer(data()), trouble)


def test_a_session_error_starts_over_at_once(follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        assert [(m.session_id, m.session_epoch) for m in leader.asked] == [(0, 0), (9, 1), (9, 0)]
        assert leader.connections == 1

    follow(scenario, answer(data()), answer(error=ErrorCode.INVALID_FETCH_SESSION_EPOCH))


def test_any_other_refusal_of_a_whole_fetch_waits(follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await asyncio.sleep(0.04)
        assert len(leader.asked) == 1
        await asyncio.sleep(0.05)
        assert len(leader.asked) == 2

    follow(scenario, answer(error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))


def test_a_fetcher_without_partitions_asks_nothing_and_begins_as_soon_as_it_has_one(follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        fetcher.remove(P0)
        await asyncio.sleep(5)
        assert leader.asked == []
        fetcher.add(P0, cluster.partition(1), 3)
        await settle()
        assert leader.times == [5]

    follow(scenario)


def test_adding_what_is_fetched_in_that_epoch_already_changes_nothing(follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        followed = fetcher._followed[P0]
        fetcher.add(P0, cluster.partition(1), 3)
        assert fetcher._followed[P0] is followed

    follow(scenario)


def test_a_partition_whose_log_cannot_be_cut_fails(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.brokers[1].become_leader_or_follower(leader_and_isr(2, (2,), (1, 2), 3, 1), 7)
        cluster.brokers[1].fetchers.remove([P0])
        log = cluster.log(1)
        log.append_as_follower(batch(base=0))
        log.on_failed = lambda: None

        def refuse(offset: int) -> None:
            raise StorageFailed("I/O error")

        log.truncate_to = refuse
        manager = cluster.brokers[1].fetchers
        manager.add({P0: InitialFetchState(cluster.partition(1), 2, 3)})
        assert manager.failed == {P0}

    run(scenario)


# ---- many fetchers


def test_partitions_are_spread_as_kafka_does() -> None:
    assert fetcher_id(TopicPartition("orders", 3), 1) == 0
    # 31 x hash("orders") + partition in 32 bits; "orders".hashCode() is -1008770331 in Java
    assert [fetcher_id(TopicPartition("orders", p), 4) for p in range(4)] == [
        abs(((31 * -1008770331 + p + 2**31) % 2**32) - 2**31) % 4 for p in range(4)
    ]


def test_a_fetcher_per_leader_and_id(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        leaders: dict[int, Leader] = {}

        async def connect(host: str, port: int, client_id: str) -> Leader:
            return await leaders.setdefault(port, Leader()).connect(host, port, client_id)

        settings, quota = FetchSettings(1), cluster.brokers[1].quotas.follower
        manager = FetcherManager(1, lambda: 100, cluster.metadata, connect, settings, quota, fetchers_per_leader=2)
        for number in range(8):
            tp = TopicPartition("orders", number)
            await cluster.brokers[1].become_leader_or_follower(leader_and_isr(2, (2,), (1, 2, 3), 0, 1, tp), 7)
            manager.add({tp: InitialFetchState(cluster.partition(1, tp), 2 if number < 6 else 3, 0)})
        await settle()
        assert len(manager) == 4
        assert sorted(leaders) == [2, 3]
        manager.set_topic_id(P0, uuid.UUID(int=3))
        manager.remove(TopicPartition("orders", n) for n in range(6, 8))
        manager.stop_idle()
        assert len(manager) == 2
        await manager.close()
        assert len(manager) == 0
        manager.add({P0: InitialFetchState(cluster.partition(1), 2, 0)})
        assert len(manager) == 0

    run(scenario)
