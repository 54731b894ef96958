"""One fetcher: what becomes of the partitions with each answer of the leader."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.support.memory_log import batch
from tests.support.replica_cluster import P0, TOPIC_ID, ReplicaCluster, leader_and_isr
from tests.unit.replication.runs import Run
from tests.unit.replication.scripted_leader import P1, Follow, Leader, answer, data, new_fetcher, settle

from klamm.log.epochs import EpochEnd
from klamm.model.errors import ErrorCode
from klamm.replication.fetcher import Fetcher
from klamm.wire.messages import (
    FetchResponse,
    FetchResponseEpochEndOffset,
)
from klamm.wire.records import CorruptRecords


def remove_during_the_flush_of_another(
    monkeypatch: pytest.MonkeyPatch, cluster: ReplicaCluster, fetcher: Fetcher
) -> None:
    """Stop following P0 while the records of P1 in the same response are flushed."""

    async def remove() -> None:
        fetcher.remove(P0)

    monkeypatch.setattr(cluster.log(1, P1), "needs_flush_before_ack", True)
    monkeypatch.setattr(cluster.log(1, P1), "flush_before_ack", remove, raising=False)


def refuse_as_corrupt(records: bytes) -> None:
    raise CorruptRecords("CRC does not match")


def test_a_follower_appends_fetched_records_and_next_fetches_from_its_log_end(follow: Follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        log = cluster.log(1)
        assert (log.end_offset, log.high_watermark) == (4, 3)
        assert leader.fetches() == [[(0, 2, 2)], [(0, 4, 3)]]
        assert (leader.asked[0].session_epoch, leader.asked[1].session_epoch) == (0, 1)
        assert leader.times[1] == 0

    records = batch(2, base=2, epoch=3)
    follow(scenario, answer(data(records=records, high_watermark=3)), records=(2,))


def test_a_followers_high_watermark_is_bounded_by_its_log_end(follow: Follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        assert cluster.log(1).high_watermark == 2

    follow(scenario, answer(data(high_watermark=99)), records=(2,))


def test_a_follower_accepts_a_lower_high_watermark_from_its_leader(follow: Follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        assert cluster.log(1).high_watermark == 1

    follow(scenario, answer(data(high_watermark=2)), answer(data(high_watermark=1)), records=(2,))


def test_an_empty_fetch_response_keeps_the_followers_last_fetched_epoch(follow: Follow) -> None:
    """KAFKA-15510"""

    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        assert leader.fetches() == [[(0, 2, 2)], []]
        assert fetcher._followed[P0].last_fetched_epoch == 2

    follow(scenario, answer(data(high_watermark=1)), records=(2,))


def test_a_follower_accepts_the_leaders_log_start_offset_and_reports_its_own(follow: Follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        starts = [[p.log_start_offset for t in m.topics for p in t.partitions] for m in leader.asked]
        assert starts == [[0], [1], []]
        assert cluster.log(1).start_offset == 1

    beyond = answer(data(high_watermark=1, log_start_offset=2))  # not above the high watermark
    follow(scenario, answer(data(high_watermark=2, log_start_offset=1)), beyond, records=(2,))


@pytest.mark.parametrize(("high_watermark", "end"), [(2, 2), (3, 2)], ids=["between batches", "in a batch"])
def test_a_follower_truncates_a_log_without_leader_epochs_to_its_high_watermark(
    run: Run, high_watermark: int, end: int
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.brokers[1].become_leader_or_follower(leader_and_isr(2, (2,), (1, 2), 3, 1), 7)
        cluster.brokers[1].fetchers.remove([P0])
        log = cluster.log(1)
        for offset in range(0, 6, 2):
            log.append_as_follower(batch(2, base=offset))
        log.update_high_watermark(high_watermark)
        fetcher = new_fetcher(cluster, Leader())
        fetcher.add(P0, cluster.partition(1), 3)
        assert (log.end_offset, log.truncations) == (end, [high_watermark])
        assert fetcher._followed[P0].position()[1:4] == (end, 3, -1)

    run(scenario)


def test_a_diverging_epoch_makes_the_follower_truncate_its_log_and_continue_fetching(follow: Follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        assert cluster.log(1).truncations == [1]
        assert cluster.log(1).high_watermark == 0  # not the one of this answer
        assert leader.fetches() == [[(0, 3, 2)], [(0, 1, 2)]]

    diverging = data(
        diverging_epoch=FetchResponseEpochEndOffset(2, 1), high_watermark=9, records=batch(base=3, epoch=3)
    )
    follow(scenario, answer(diverging), records=(3,))


def test_a_follower_whose_log_diverged_inside_a_batch_fetches_that_batch_again(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.brokers[1].become_leader_or_follower(leader_and_isr(2, (2,), (1, 2), 3, 1), 7)
        cluster.brokers[1].fetchers.remove([P0])
        cluster.log(1).append_as_follower(batch(3, epoch=2))
        fetcher = new_fetcher(cluster, Leader())
        fetcher.add(P0, cluster.partition(1), 3)
        await fetcher._truncate_diverged(P0, fetcher._followed[P0], EpochEnd(2, 1))
        assert cluster.log(1).end_offset == 0, "the batch goes as a whole"
        assert fetcher._followed[P0].position().fetch_offset == 0
        assert not fetcher.failed

    run(scenario)


def test_a_truncation_is_synced_before_the_follower_fetches_again(follow: Follow) -> None:
    """Else a power loss may leave removed records before those that were fetched after them."""
    scene: dict[str, ReplicaCluster] = {}

    def fetched() -> FetchResponse:
        assert scene["cluster"].log(1).is_durable
        return answer(data(0, high_watermark=1))

    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        scene["cluster"] = cluster
        await settle()
        assert cluster.log(1).truncations == [1]
        assert len(leader.fetches()) == 3

    follow(scenario, answer(data(diverging_epoch=FetchResponseEpochEndOffset(2, 1))), fetched, records=(3,))


def test_a_diverging_epoch_of_a_partition_does_not_stop_appends_to_other_partitions(follow: Follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        assert cluster.log(1).end_offset == 1
        assert cluster.log(1, P1).end_offset == 1

    diverging = data(0, diverging_epoch=FetchResponseEpochEndOffset(2, 1))
    follow(scenario, answer(diverging, data(1, records=batch(base=0, epoch=3))), records=(3, 0))


def test_a_diverging_epoch_response_for_an_earlier_leader_epoch_truncates_nothing(
    follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KAFKA-7786: while another partition of the response is flushed, this broker stops following the leader."""

    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        remove_during_the_flush_of_another(monkeypatch, cluster, fetcher)
        await settle()
        assert cluster.log(1).truncations == []
        assert [number for number, _, _ in leader.fetches()[1]] == [1]

    diverging = data(0, diverging_epoch=FetchResponseEpochEndOffset(2, 1))
    follow(scenario, answer(diverging, data(1, records=batch(base=0, epoch=3))), records=(3, 0))


def test_an_offset_out_of_range_response_for_an_earlier_leader_epoch_is_ignored(
    follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        remove_during_the_flush_of_another(monkeypatch, cluster, fetcher)
        await settle()
        assert cluster.log(1).end_offset == 3
        assert len(leader.fetches()) == len(leader.asked) == 2

    out_of_range = data(0, ErrorCode.OFFSET_OUT_OF_RANGE)
    appended = data(1, records=batch(base=0, epoch=3))
    follow(scenario, answer(out_of_range, appended), records=(3, 0), offsets=(1,))


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
def test_a_retriable_fetch_error_delays_only_its_own_partition(follow: Follow, error: ErrorCode) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        assert leader.fetches() == [[(0, 0, -1), (1, 0, -1)], [(1, 1, 3)]]
        forgotten = leader.asked[1].forgotten_topics_data
        assert [(t.topic_id, tuple(t.partitions)) for t in forgotten] == [(TOPIC_ID, (0,))]
        assert P0 in fetcher
        assert fetcher.failed == set()

    follow(scenario, answer(data(0, error), data(1, records=batch(base=0, epoch=3))), records=(0, 0))


def test_the_fetch_retry_delay_doubles_up_to_the_backoff_and_resets_on_success(follow: Follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await asyncio.sleep(20)
        pauses = [round(b - a, 3) for a, b in zip(leader.times, leader.times[1:], strict=False)]
        assert pauses == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 0.0, 0.01]

    refused = answer(data(0, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    good = answer(data(0, high_watermark=0))
    follow(scenario, *[refused] * 9, good, refused)


def test_fenced_leader_epoch_stops_fetching_a_partition_until_the_next_leader_and_isr(follow: Follow) -> None:
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


def test_many_partitions_that_the_leader_fenced_are_logged_in_one_line(follow: Follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        with capture_logs() as lines:
            await settle()
        assert fetcher.failed == {P0, P1}
        assert [line["FENCED_LEADER_EPOCH"] for line in lines if line["log_level"] == "info"] == [2]

    fenced = [data(number, ErrorCode.FENCED_LEADER_EPOCH) for number in (0, 1)]
    follow(scenario, answer(*fenced), records=(0, 0))


def test_the_response_to_a_fetch_of_an_older_leader_epoch_is_ignored(follow: Follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        assert cluster.log(1).end_offset == 0
        assert fetcher.failed == set()
        assert [p.current_leader_epoch for t in leader.asked[1].topics for p in t.partitions] == [4]

    def meanwhile() -> FetchResponse:
        scene["fetcher"].add(P0, scene["partition"], 4)
        return answer(data(records=batch(base=0, epoch=3)))

    scene: dict[str, Any] = {}

    async def cached(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        scene.update(fetcher=fetcher, partition=cluster.partition(1))
        await scenario(cluster, leader, fetcher)

    follow(cached, meanwhile)


def test_a_fetch_response_for_a_removed_partition_is_ignored(follow: Follow) -> None:
    scene: dict[str, Any] = {}

    def meanwhile() -> FetchResponse:
        scene["fetcher"].remove(P0)
        return answer(data(records=batch(base=0, epoch=3)))

    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        scene["fetcher"] = fetcher
        await settle()
        assert cluster.log(1).end_offset == 0
        assert len(fetcher) == 0

    follow(scenario, meanwhile)


def test_fetched_records_with_an_offset_gap_stop_only_their_own_partition(follow: Follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        assert fetcher.failed == {P0}
        assert cluster.log(1, P1).end_offset == 1

    bad, good = data(0, records=batch(base=1, epoch=3)), data(1, records=batch(base=0, epoch=3))
    follow(scenario, answer(bad, good), records=(2, 0))


def test_a_log_end_changed_during_a_fetch_stops_fetching_that_partition(follow: Follow) -> None:
    scene: dict[str, Any] = {}

    def meanwhile() -> FetchResponse:
        scene["log"].append_as_follower(batch(base=0, epoch=3))
        return answer(data(high_watermark=1))

    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        scene["log"] = cluster.log(1)
        await settle()
        assert fetcher.failed == {P0}

    follow(scenario, meanwhile)


def test_a_storage_error_on_a_followers_append_takes_the_partition_offline(follow: Follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        cluster.log(1).is_broken = True
        await settle()
        assert fetcher.failed == {P0}
        assert cluster.brokers[1].offline_partitions == {P0}

    follow(scenario, answer(data(records=batch(base=0, epoch=3))))


def test_a_follower_fetches_corrupt_records_again(follow: Follow, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        log = cluster.log(1)
        with monkeypatch.context() as patch:
            patch.setattr(log, "append_as_follower", refuse_as_corrupt)
            await settle()
        assert P0 in fetcher
        await asyncio.sleep(1)
        assert log.end_offset == 1

    good = answer(data(records=batch(base=0, epoch=3)))
    follow(scenario, good, good)


def test_a_follower_fetches_corrupt_records_again_after_growing_delays(
    follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flipped bit on the leader's disk stays: the log of the follower must not fill with one error."""

    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        monkeypatch.setattr(cluster.log(1), "append_as_follower", refuse_as_corrupt)
        await asyncio.sleep(0.1)
        assert len(leader.fetches()) == 4  # after 10, 20 and 40 ms

    follow(scenario, *[answer(data(records=batch(base=0, epoch=3)))] * 10)


def test_a_follower_keeps_fetched_batches_before_a_corrupt_batch(
    follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log writes what lies before the bad batch: the next fetch must go on behind it."""

    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        log = cluster.log(1)
        append = log.append_as_follower

        def write_the_first(records: bytes) -> None:
            append(batch(base=0, epoch=3))
            raise CorruptRecords("CRC does not match")

        with monkeypatch.context() as patch:
            patch.setattr(log, "append_as_follower", write_the_first)
            await settle()
        await asyncio.sleep(1)
        assert fetcher.failed == set()
        assert log.end_offset == 2
        assert leader.fetches()[1] == [(0, 1, 3)]

    both = answer(data(records=batch(base=0, epoch=3) + batch(base=1, epoch=3)))
    follow(scenario, both, answer(data(records=batch(base=1, epoch=3))))


def test_a_followers_empty_log_reset_inside_a_batch_starts_at_the_batchs_base_offset(follow: Follow) -> None:
    async def scenario(cluster: ReplicaCluster, leader: Leader, fetcher: Fetcher) -> None:
        await settle()
        log = cluster.log(1)
        assert (log.start_offset, log.end_offset) == (5, 8)

    out_of_range = answer(data(0, ErrorCode.OFFSET_OUT_OF_RANGE))
    follow(scenario, out_of_range, answer(data(records=batch(3, base=5, epoch=3), log_start_offset=6)), offsets=(20, 6))
