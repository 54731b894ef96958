"""The journal as a topic: everything arrives, whatever the topic's leader answers first, and once over restarts."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.broker import journal_topic
from klamm.broker.journal_topic import JournalTopic
from klamm.client.errors import ConnectionLost
from klamm.client.versions import Request
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.runtime.disk import RealDisk
from klamm.telemetry.journal_files import JournalFiles
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    CreatableTopicResult,
    CreateTopicsResponse,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from klamm.wire.records import batches, records


class Cluster:
    """One leader that answers as told and then with success; keeps what it took. The topic appears when created."""

    def __init__(self, *answers: ErrorCode | Exception, exists: bool = True, most: int = 1 << 20) -> None:
        self.answers = list(answers)
        self.most = most
        self.taken: list[bytes] = []
        self.arrived = asyncio.Event()
        self.created: list[tuple[str, int]] = []
        self.brokers = {1: None, 2: None}
        self.exists = exists
        self.leader = Address("h", 9002)
        self.dropped: list[Address] = []

    def has_topic(self, topic: str) -> bool:
        return self.exists

    def state(self, topic_partition: TopicPartition) -> Any:
        return SimpleNamespace(leader=self.leader.port - 9000) if self.exists else None

    def endpoint(self, broker: int) -> tuple[str, int]:
        return "h", 9000 + broker

    def close(self) -> None:
        """Nothing is open."""

    def drop(self, address: Address) -> None:
        self.dropped.append(address)

    async def ask(self, address: Address, request: Request, timeout_s: float | None = None) -> ProduceResponse:
        assert address == self.leader
        message: Any = request.message
        answer = self.answers.pop(0) if self.answers else ErrorCode.NONE
        if isinstance(answer, Exception):
            raise answer
        content = message.topic_data[0].partition_data[0].records
        found = [bytes(r.value or b"") for b in batches(content) for r in records(content, b)]
        if sum(map(len, found)) > self.most:
            answer = ErrorCode.MESSAGE_TOO_LARGE
        if answer is ErrorCode.NONE:
            self.taken += found
            self.arrived.set()
        partition = PartitionProduceResponse(index=0, error_code=answer)
        return ProduceResponse(responses=[TopicProduceResponse("j", [partition])])

    async def ask_controller(self, api: ApiKey, newest: int, build: Any) -> CreateTopicsResponse:
        [topic] = build(newest).topics
        self.created.append((topic.name, topic.replication_factor))
        self.exists = True
        return CreateTopicsResponse(topics=[CreatableTopicResult(name=topic.name)])

    async def took(self, count: int) -> list[bytes]:
        """Wait until this many lines were produced; return them."""
        while len(self.taken) < count:
            self.arrived.clear()
            await asyncio.wait_for(self.arrived.wait(), 60)
        return self.taken


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the intervals of the publisher."""
    monkeypatch.setattr(journal_topic, "RETRY_BACKOFF_S", 0.001)
    monkeypatch.setattr(journal_topic, "POLL_INTERVAL_S", 0.001)


def publisher(directory: Path, cluster: Cluster) -> JournalTopic:
    world = SimpleNamespace(disk=RealDisk(), clock=SimpleNamespace(now_ms=lambda: 7))
    return JournalTopic(world, str(directory), BrokerId(1), "j", cluster, cluster, cluster.ask_controller)  # type: ignore[arg-type]


def write(directory: Path, *lines: bytes, **limits: Any) -> JournalFiles:
    sink = JournalFiles(RealDisk(), str(directory), 1, **limits)
    for line in lines:
        sink.write(line + b"\n")
    return sink


async def exists(path: Path) -> None:
    """Wait until the path exists."""
    while True:
        if RealDisk().exists(str(path)):
            return
        await asyncio.sleep(0.001)


async def test_a_missing_controller_journal_topic_is_created(tmp_path: Path) -> None:
    cluster = Cluster(exists=False)
    write(tmp_path, b'{"ts_ms":5}', b"two")
    topic = publisher(tmp_path, cluster)
    topic.start()

    assert await cluster.took(2) == [b'{"ts_ms":5}', b"two"]
    assert cluster.created == [("j", 2)]
    await topic.close()


async def test_journal_lines_wait_while_the_leader_of_the_journal_topic_is_unreachable_or_refuses_writes(
    tmp_path: Path,
) -> None:
    refused, unheard_of = ErrorCode.NOT_LEADER_OR_FOLLOWER, ValueError("9999 is not a valid ErrorCode")
    cluster = Cluster(refused, ConnectionLost("gone"), unheard_of, ErrorCode.NOT_ENOUGH_REPLICAS)
    write(tmp_path, b"one")
    topic = publisher(tmp_path, cluster)
    topic.start()

    assert await cluster.took(1) == [b"one"]
    await topic.close()


async def test_a_restarted_node_continues_publishing_to_the_journal_topic_at_its_saved_position(tmp_path: Path) -> None:
    cluster = Cluster()
    sink = write(tmp_path, b"one")
    first = publisher(tmp_path, cluster)
    first.start()
    await cluster.took(1)
    await exists(tmp_path / "klamm-journal-1.published")
    await first.close()
    sink.write(b"two\n")

    second = publisher(tmp_path, cluster)
    second.start()
    assert await cluster.took(2) == [b"one", b"two"]
    await second.close()


async def test_a_journal_topic_batch_over_the_size_limit_is_halved_and_an_oversized_line_skipped(
    tmp_path: Path,
) -> None:
    cluster = Cluster(most=8)
    write(tmp_path, b"aaa", b"x" * 20, b"bbb", b"ccc")
    topic = publisher(tmp_path, cluster)
    topic.start()

    assert await cluster.took(3) == [b"aaa", b"bbb", b"ccc"]
    await topic.close()


async def test_journal_lines_rotated_away_before_publication_are_counted_in_the_journal_topic(tmp_path: Path) -> None:
    (tmp_path / "klamm-journal-1.published").write_text("1 0\n")
    write(tmp_path, *(b"%d" % n for n in range(5)), max_file_bytes=2, max_files=2)
    cluster = Cluster()
    topic = publisher(tmp_path, cluster)
    topic.start()

    told, *rest = await cluster.took(3)
    assert b'"kind":"lost"' in told
    assert b'"files":3' in told
    assert rest == [b"3", b"4"]
    await topic.close()


async def test_a_metric_shows_the_journal_lines_waiting_for_publication(tmp_path: Path) -> None:
    cluster = Cluster(ErrorCode.NOT_ENOUGH_REPLICAS)
    write(tmp_path, b"one")
    topic = publisher(tmp_path, cluster)
    seen: list[bool] = []
    answer = cluster.ask

    async def ask(*asked: Any) -> ProduceResponse:
        seen.append(topic.is_waiting)
        return await answer(*asked)

    cluster.ask = ask  # type: ignore[method-assign,assignment]
    topic.start()
    await cluster.took(1)
    await exists(tmp_path / "klamm-journal-1.published")

    assert seen == [False, True]
    assert not topic.is_waiting
    await topic.close()


async def test_the_journal_publisher_closes_its_connection_to_a_replaced_leader(tmp_path: Path) -> None:
    cluster = Cluster()
    sink = write(tmp_path, b"one")
    topic = publisher(tmp_path, cluster)
    topic.start()
    await cluster.took(1)

    first, cluster.leader = cluster.leader, Address("h", 9001)
    sink.write(b"two\n")

    assert await cluster.took(2) == [b"one", b"two"]
    assert cluster.dropped == [first]
    await topic.close()
