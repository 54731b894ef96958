"""Followers that remove many segments at once."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from tests.support.real_logs import real_batch
from tests.support.replica_cluster import P0, ReplicaCluster, leader_and_isr
from tests.unit.replication.runs import Run
from tests.unit.replication.scripted_leader import Leader, new_fetcher

from klamm.log.epochs import EpochEnd
from klamm.log.log import Log
from klamm.model.ids import BrokerId
from klamm.replication.fetcher import Fetcher

SEGMENTS = 250


async def following(cluster: ReplicaCluster, leader: Leader) -> tuple[Fetcher, Log]:
    """A fetcher of broker 1, whose log has a segment for each of its records."""
    cluster.metadata.alive.add(BrokerId(2))
    await cluster.brokers[1].become_leader_or_follower(leader_and_isr(2, (2,), (1, 2), 3, 1), 7)
    cluster.brokers[1].fetchers.remove([P0])
    log = cast(Log, cluster.log(1))
    log.update_config(log.config.parse({"segment.bytes": str(len(real_batch())), "file.delete.delay.ms": "0"}))
    for _ in range(SEGMENTS):
        log.append_as_leader(real_batch(), 2)
    fetcher = new_fetcher(cluster, leader)
    fetcher.add(P0, cluster.partition(1), 3)
    return fetcher, log


async def truncate_to_5(fetcher: Fetcher) -> None:
    await fetcher._truncate_diverged(P0, fetcher._followed[P0], EpochEnd(2, 5))


async def reset(fetcher: Fetcher) -> None:
    await fetcher._reset_offset(P0, fetcher._followed[P0])


CASES = {
    "diverged": (truncate_to_5, [], 5),
    "the leader's log ends at 5": (reset, [5], 5),
    "the leader's log starts at 900": (reset, [1_000, 900], 900),
}


async def ends_while(log: Log, work: Any, on_end: Callable[[int], None] = lambda end: None) -> list[int]:
    """The log ends that others see while this is under way."""
    ends, working = [], asyncio.ensure_future(work)
    while not working.done():
        ends.append(log.end_offset)
        on_end(log.end_offset)
        await asyncio.sleep(0)
    await working
    return list(dict.fromkeys([*ends, log.end_offset]))


@pytest.mark.parametrize(("truncate", "offsets", "end"), CASES.values(), ids=CASES)
def test_a_truncation_of_many_segments_lets_others_run_between_its_steps(
    run_on_disk: Run, truncate: Any, offsets: list[int], end: int
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        leader = Leader()
        leader.offsets = list(offsets)
        fetcher, log = await following(cluster, leader)
        assert await ends_while(log, truncate(fetcher)) == [250, 150, 50, end]
        assert (len(log.segments), log.start_offset) == ((6, 0) if end == 5 else (1, 900))
        assert fetcher._followed[P0].position().fetch_offset == end
        assert log.has_unsynced_truncation
        assert not fetcher.failed

    run_on_disk(scenario, brokers=(1,))


@pytest.mark.parametrize(("truncate", "offsets", "end"), CASES.values(), ids=CASES)
def test_a_truncation_ends_where_the_partition_is_no_longer_fetched(
    run_on_disk: Run, truncate: Any, offsets: list[int], end: int
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        leader = Leader()
        leader.offsets = list(offsets)
        fetcher, log = await following(cluster, leader)

        def remove(end: int) -> None:
            if end == 150:
                fetcher.remove(P0)

        assert (await ends_while(log, truncate(fetcher), remove))[-1] == 150
        assert P0 not in fetcher

    run_on_disk(scenario, brokers=(1,))
