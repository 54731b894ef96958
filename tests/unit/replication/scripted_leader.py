"""One fetcher against a leader whose answers the test writes."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import pytest
from tests.support.memory_log import batch
from tests.support.replica_cluster import TOPIC_ID, ReplicaCluster, leader_and_isr
from tests.unit.replication.runs import Run

from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.replication.fetch_session_client import FetchSettings
from klamm.replication.fetcher import Fetcher
from klamm.replication.leader_end_point import LeaderEndPoint
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    FetchableTopicResponse,
    FetchResponse,
    FetchResponsePartitionData,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

P1 = TopicPartition("orders", 1)
BACKOFF_S = 1.0


def data(number: int = 0, error: ErrorCode = ErrorCode.NONE, **more: Any) -> FetchResponsePartitionData:
    """A partition's entry in a Fetch response."""
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
    """A Fetch response."""
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


def new_fetcher(cluster: ReplicaCluster, leader: Leader) -> Fetcher:
    """A fetcher of broker 1 that asks the scripted leader, broker 2; it does not run yet."""
    end_point = LeaderEndPoint(BrokerId(1), BrokerId(2), "broker-1-fetcher-0", cluster.metadata, leader.connect, 30)
    quota = cluster.brokers[1].quotas.follower
    return Fetcher(end_point, FetchSettings(BrokerId(1)), lambda: 100, BACKOFF_S, quota)


Scenario = Callable[[ReplicaCluster, Leader, Fetcher], Any]


class Follow(Protocol):
    def __call__(
        self, scenario: Scenario, *answers: Any, records: tuple[int, ...] = (0,), offsets: tuple[Any, ...] = ()
    ) -> None:
        """Run a scenario in which broker 1 follows 2."""


@pytest.fixture
def follow(run: Run, monkeypatch: pytest.MonkeyPatch) -> Follow:
    """`follow(scenario, *answers, records=..., offsets=...)`: broker 1 follows 2 with logs of so many records."""

    def play(scenario: Scenario, *answers: Any, records: tuple[int, ...] = (0,), offsets: tuple[Any, ...] = ()) -> None:
        async def main(cluster: ReplicaCluster) -> None:
            leader = Leader()
            leader.answers, leader.offsets = list(answers), list(offsets)
            fetcher = new_fetcher(cluster, leader)
            monkeypatch.setattr(cluster.brokers[1]._fetchers, "add", lambda following: None)
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
    """Let all ready tasks run."""
    await asyncio.sleep(0.01)
