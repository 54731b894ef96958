"""One fetcher: offsets out of range, lost connections, and how partitions are spread over fetchers."""

import asyncio
import uuid
from typing import Any, cast

import pytest
from structlog.testing import capture_logs
from tests.support.failing import fail_once
from tests.support.memory_log import batch
from tests.support.replica_cluster import P0, TOPIC_ID, ReplicaCluster, leader_and_isr
from tests.unit.replication.runs import Run
from tests.unit.replication.scripted_leader import P1, Follow, Leader, answer, data, settle

from klamm.log.errors import StorageFailed
from klamm.log.log import Log
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.replication.fetch_session_client import FetchSettings
from klamm.replication.fetcher import Fetcher
from klamm.replication.fetcher_manager import FetcherManager, InitialFetchState, fetcher_id
from klamm.wire.messages import (
    FetchResponseEpochEndOffset,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from klamm.wire.records import CorruptRecords

# ---- out of range


OUT_OF_RANGE = {
    "the leader ends below us: unclean election": ((1,), 1, [1]),
    "the leader starts above us: we were away for long": ((9, 6), 6, []),
    "we lie inside the leader's log": ((9, 1), 3, []),
}


@pytest.mark.parametrize(("offsets", "end", "truncations"), OUT_OF_RANGE.values(), ids=OUT_OF_RANGE)
def test_a_followers_fetch_out_of_range_resets_its_log_to_the_leaders_offsets(
    follow: Follow, offsets: tuple[int, ...], end: int, truncations: list[int]
) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        log = cluster.log(1)
        assert (log.end_offset, log.truncations) == (end, truncations)
        assert leader.fetches()[-1][0][1] == end
        assert log.is_durable  # the removed records cannot come back
        asked = [p for m in leader.asked if not hasattr(m, "session_id") for t in m.topics for p in t.partitions]
        assert [(p.timestamp, p.current_leader_epoch) for p in asked] == [(-1, 3), (-2, 3)][: len(offsets)]

    follow(scenario, answer(data(0, ErrorCode.OFFSET_OUT_OF_RANGE)), records=(3,), offsets=offsets)


def test_a_repeated_offset_out_of_range_inside_the_leaders_log_is_retried_after_a_backoff(follow: Follow) -> None:
    refusals = [answer(data(0, ErrorCode.OFFSET_OUT_OF_RANGE)) for _ in range(100)]

    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await asyncio.sleep(1)
        assert 3 <= len(leader.fetches()) <= 12
        assert cluster.log(1).end_offset == 3

    follow(scenario, *refusals, records=(3,), offsets=(9, 1) * 100)


def test_a_follower_backs_off_from_a_leader_whose_log_contradicts_itself(follow: Follow) -> None:
    """A batch of the leader has a wrong base offset: its leader epochs say that it does not belong there."""
    copied = data(records=batch(base=16, epoch=2), high_watermark=2)
    diverged = data(diverging_epoch=FetchResponseEpochEndOffset(2, 2))

    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        with capture_logs() as lines:
            await asyncio.sleep(60)
        fetched = len(leader.fetches())
        assert 50 < fetched < 200
        assert P0 in fetcher
        [error] = [line for line in lines if line["log_level"] == "error"]
        assert error["event"].startswith("the leader's log contradicts itself")

    follow(scenario, *(answer(each) for _ in range(1_000) for each in (copied, diverged)))


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
def test_a_followers_offset_reset_stops_when_fenced_and_is_retried_after_other_errors(
    follow: Follow, offsets: tuple[Any, ...], fails: bool
) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        assert (P0 in fetcher.failed, P0 in fetcher) == (fails, not fails)
        assert cluster.log(1).end_offset == 3

    follow(scenario, answer(data(0, ErrorCode.OFFSET_OUT_OF_RANGE)), records=(3,), offsets=offsets)


@pytest.mark.parametrize("at", [0, 1])
def test_a_followers_offset_reset_of_a_removed_partition_changes_nothing(follow: Follow, at: int) -> None:
    scene: dict[str, Any] = {}

    def meanwhile() -> ListOffsetsResponse:
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


@pytest.mark.parametrize("before", [(), (9,)])
def test_a_refused_offset_reset_of_an_earlier_leader_epoch_does_not_stop_the_newer_one(
    follow: Follow, before: tuple[int, ...]
) -> None:
    scene: dict[str, Any] = {}

    def meanwhile() -> ErrorCode:
        cluster, fetcher = scene["cluster"], scene["fetcher"]
        fetcher.remove(P0)
        fetcher.add(P0, cluster.partition(1), 4)
        return ErrorCode.FENCED_LEADER_EPOCH

    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        scene.update(cluster=cluster, fetcher=fetcher)
        await settle()
        assert (P0 in fetcher, fetcher.failed) == (True, set())
        newest = leader.asked[-1].topics[0].partitions[0]
        assert (newest.current_leader_epoch, newest.fetch_offset) == (4, 3)

    follow(scenario, answer(data(0, ErrorCode.OFFSET_OUT_OF_RANGE)), records=(3,), offsets=(*before, meanwhile))


def test_a_storage_error_during_a_followers_offset_reset_stops_the_partition(follow: Follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        cluster.log(1).is_broken = True
        await settle()
        assert fetcher.failed == {P0}

    follow(scenario, answer(data(0, ErrorCode.OFFSET_OUT_OF_RANGE)), records=(3,), offsets=(1,))


DAMAGED = [StorageFailed("I/O error"), CorruptRecords("no batch")]


@pytest.mark.parametrize("error", DAMAGED, ids=["I/O error", "damaged segment"])
def test_a_log_that_cannot_be_truncated_in_an_offset_reset_stops_only_its_own_partition(
    follow: Follow, monkeypatch: pytest.MonkeyPatch, error: KlammError
) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        def refuse(offset: int) -> None:
            raise error

        monkeypatch.setattr(cluster.log(1), "truncate_to", refuse)
        await settle()
        assert fetcher.failed == {P0}
        assert leader.connections == 1
        assert cluster.log(1, P1).end_offset == 1

    more = answer(data(1, high_watermark=1, records=batch(base=0, epoch=2)))
    follow(scenario, answer(data(0, ErrorCode.OFFSET_OUT_OF_RANGE)), more, records=(3, 0), offsets=(1,))


# ---- the connection


@pytest.mark.parametrize(
    "trouble", [ConnectionResetError("gone"), KlammError("lost"), TimeoutError(), ZeroDivisionError()]
)
def test_a_fetcher_reconnects_after_a_lost_connection_and_replaces_the_fetch_session(
    follow: Follow, trouble: Exception
) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await asyncio.sleep(1)
        assert leader.connections == 2
        sessions = [(m.session_id, m.session_epoch) for m in leader.asked]
        assert sessions == [(0, 0), (9, 1), (9, 0)]
        assert leader.fetches() == [[(0, 0, -1)], [], [(0, 0, -1)]]

    follow(scenario, answer(data()), trouble)


@pytest.mark.parametrize("step", ["_resume_delayed", "_sync_before_next_fetch"])
def test_a_fetcher_goes_on_after_an_unexpected_error_between_two_fetches(
    follow: Follow, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        fail_once(monkeypatch, Fetcher, step)
        cluster.log(1).is_durable = False
        fetcher._unsynced[P0] = cast(Log, cluster.log(1))
        fetcher._partition_added.set()
        with capture_logs() as lines:
            await asyncio.sleep(3)
        assert [line["event"] for line in lines if line["log_level"] == "error"] == [
            "unexpected error in a fetcher: fetching again after the backoff"
        ]
        assert cluster.log(1).end_offset == 1

    follow(scenario, answer(data(high_watermark=1, records=batch(base=0, epoch=2))))


def test_an_unexpected_error_in_the_sync_of_a_log_stops_only_its_partition(
    follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next fetch tells the leader that the other logs are synced."""

    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        async def fail() -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(cluster.log(1), "wait_until_durable", fail)
        for tp in (P0, P1):
            cluster.log(1, tp).is_durable = False
            fetcher._unsynced[tp] = cast(Log, cluster.log(1, tp))
        await settle()
        assert fetcher.failed == {P0}
        assert cluster.log(1, P1).is_durable

    follow(scenario, records=(0, 0))


def test_a_fetch_session_error_makes_the_fetcher_send_a_full_fetch_at_once(follow: Follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        assert [(m.session_id, m.session_epoch) for m in leader.asked] == [(0, 0), (9, 1), (9, 0)]
        assert leader.connections == 1

    follow(scenario, answer(data()), answer(error=ErrorCode.INVALID_FETCH_SESSION_EPOCH))


def test_a_fetch_refused_with_an_error_that_is_no_session_error_is_retried_after_backoff(follow: Follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await asyncio.sleep(0.008)
        assert len(leader.asked) == 1
        await asyncio.sleep(0.01)
        assert len(leader.asked) == 2

    follow(scenario, answer(error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))


def test_a_fetcher_without_partitions_sends_nothing_until_a_partition_is_added(follow: Follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        fetcher.remove(P0)
        await asyncio.sleep(5)
        assert leader.asked == []
        fetcher.add(P0, cluster.partition(1), 3)
        await settle()
        assert leader.times == [5]

    follow(scenario)


def test_adding_a_partition_again_to_a_fetcher_in_the_same_leader_epoch_changes_nothing(follow: Follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        followed = fetcher._followed[P0]
        fetcher.add(P0, cluster.partition(1), 3)
        assert fetcher._followed[P0] is followed

    follow(scenario)


@pytest.mark.parametrize("error", DAMAGED, ids=["I/O error", "damaged segment"])
def test_a_partition_whose_truncation_fails_is_not_fetched(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: KlammError
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.brokers[1].become_leader_or_follower(leader_and_isr(2, (2,), (1, 2), 3, 1), 7)
        cluster.brokers[1].fetchers.remove([P0])
        log = cluster.log(1)
        log.append_as_follower(batch(base=0))
        log.on_failed = lambda: None

        def refuse(offset: int) -> None:
            raise error

        monkeypatch.setattr(log, "truncate_to", refuse)
        manager = cluster.brokers[1].fetchers
        manager.add({P0: InitialFetchState(cluster.partition(1), BrokerId(2), 3)})
        assert manager.failed == {P0}

    run(scenario)


# ---- many fetchers


def test_a_log_directory_that_fails_in_a_truncation_does_not_keep_other_partitions_from_being_fetched(
    run: Run,
) -> None:
    """The other partition of that directory loses its log while LeaderAndIsr is applied."""

    async def scenario(cluster: ReplicaCluster) -> None:
        request, others = leader_and_isr(1, (1, 2), (1, 2), 1, 1, P0), []
        for number in (1, 2):
            one = leader_and_isr(1, (1, 2), (1, 2), 1, 1, TopicPartition("orders", number))
            others.append(one.topic_states[0].partition_states[0])
        request.topic_states[0].partition_states.extend(others)
        names = [TopicPartition("orders", number) for number in range(3)]
        manager, logs = cluster.brokers[2], cluster.logs[2]
        await logs.get_or_create_many([(tp, TOPIC_ID, True) for tp in names])
        damaged = logs.logs[P0]
        damaged.append_as_follower(batch())
        damaged.is_broken = True
        logs.on_failed = lambda _: manager.set_offline(names[:2])

        await manager.become_leader_or_follower(request, 7)

        assert manager.offline_partitions == frozenset(names[:2])
        assert manager.fetchers.leader_of(names[2]) == 1

    run(scenario)


def test_partitions_are_distributed_over_fetchers_with_kafkas_hash() -> None:
    assert fetcher_id(TopicPartition("orders", 3), 1) == 0
    # 31 x hash("orders") + partition in 32 bits; "orders".hashCode() is -1008770331 in Java
    assert [fetcher_id(TopicPartition("orders", p), 4) for p in range(4)] == [
        abs(((31 * -1008770331 + p + 2**31) % 2**32) - 2**31) % 4 for p in range(4)
    ]


def test_a_broker_runs_one_fetcher_per_leader_and_fetcher_id(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        leaders: dict[int, Leader] = {}

        async def connect(host: str, port: int, client_id: str) -> Leader:
            return await leaders.setdefault(port, Leader()).connect(host, port, client_id)

        settings, quota = FetchSettings(BrokerId(1)), cluster.brokers[1].quotas.follower
        manager = FetcherManager(
            BrokerId(1), lambda: 100, cluster.metadata, connect, settings, quota, fetchers_per_leader=2
        )
        for number in range(8):
            tp = TopicPartition("orders", number)
            await cluster.brokers[1].become_leader_or_follower(leader_and_isr(2, (2,), (1, 2, 3), 0, 1, tp), 7)
            manager.add({tp: InitialFetchState(cluster.partition(1, tp), BrokerId(2 if number < 6 else 3), 0)})
        await settle()
        assert len(manager) == 4
        assert sorted(leaders) == [2, 3]
        manager.set_topic_id(P0, uuid.UUID(int=3))
        manager.remove(TopicPartition("orders", n) for n in range(6, 8))
        manager.stop_idle()
        assert len(manager) == 2
        await manager.close()
        assert len(manager) == 0
        manager.add({P0: InitialFetchState(cluster.partition(1), BrokerId(2), 0)})
        assert len(manager) == 0

    run(scenario)


def test_a_partition_that_is_added_to_a_fetcher_without_partitions_starts_no_second_one(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        leader = Leader()

        async def connect(host: str, port: int, client_id: str) -> Leader:
            return await leader.connect(host, port, client_id)

        settings, quota = FetchSettings(BrokerId(1)), cluster.brokers[1].quotas.follower
        manager = FetcherManager(BrokerId(1), lambda: 100, cluster.metadata, connect, settings, quota)
        await cluster.brokers[1].become_leader_or_follower(leader_and_isr(2, (2,), (1, 2, 3), 0, 1, P0), 7)
        before = asyncio.all_tasks()

        for _ in range(3):
            manager.add({P0: InitialFetchState(cluster.partition(1), BrokerId(2), 0)})
            manager.remove([P0])

        assert len(asyncio.all_tasks() - before) == 1
        await manager.close()

    run(scenario)
