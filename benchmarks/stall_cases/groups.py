"""A case with a large group: its members join, and the leader gets the list of all."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TypeVar

from tests.support.replica_cluster import ReplicaCluster
from tests.unit.coordinator.groups_room import MemoryOffsetsLog, join_request

from klamm.coordinator.coordinator import GroupCoordinator
from klamm.coordinator.requests import SyncRequest
from klamm.coordinator.settings import GroupSettings
from klamm.model.errors import ErrorCode

MEMBERS = 10_000
AT_ONCE = 20
T = TypeVar("T")


async def join_large_group(cluster: ReplicaCluster) -> str:
    """All members join; the leader sends an assignment for each, for which the others wait already."""
    coordinator = GroupCoordinator(cluster.world, GroupSettings(), MemoryOffsetsLog(), cluster.world.make_slices())
    coordinator.start(1)
    coordinator._ownership.elected(0, 0)
    while coordinator.availability("g"):  # noqa: ASYNC110 - the coordinator tells nobody
        await asyncio.sleep(0.01)
    request = join_request(session_timeout_ms=60_000)
    results = await _all([coordinator.join_group(request) for _ in range(MEMBERS)])
    await asyncio.sleep(0)
    first = results[0]
    parts = {result.member_id: bytes(100) for result in results}
    syncs = [
        SyncRequest(request.group_id, r.generation, r.member_id, None, None, None, parts if r.members else {})
        for r in sorted(results, key=lambda result: len(result.members))
    ]
    await asyncio.sleep(0)  # another callback: the list of requests is the benchmark's own work
    answers = await _all([coordinator.sync_group(sync) for sync in syncs])
    await asyncio.sleep(0)
    assert {answer.error for answer in answers} == {ErrorCode.NONE}
    await asyncio.sleep(0)
    await coordinator.close()
    return f"{len(answers):,} members in generation {first.generation}"


async def _all(requests: Sequence[Coroutine[None, None, T]]) -> list[T]:
    """Send the requests a few at a time, as connections do, and wait for all answers."""
    tasks: list[asyncio.Task[T]] = []
    for request in requests:
        tasks.append(asyncio.ensure_future(request))
        if len(tasks) % AT_ONCE == 0:
            await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    return [await task for task in tasks]
