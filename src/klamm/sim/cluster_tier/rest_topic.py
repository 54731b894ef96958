"""A topic in a cluster at rest, to which requests are sent one after the other, and what each was answered."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from klamm.client.asynchronous import AsyncClient
from klamm.client.versions import Request
from klamm.log.names import DirectoryKind
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.cluster_tier.clients.locator import open_client
from klamm.sim.cluster_tier.clients.metrics_page import read_metrics
from klamm.sim.cluster_tier.clients.plain_requests import Fetched, produce_batch
from klamm.sim.cluster_tier.invariants.requests import RestAnswer
from klamm.sim.cluster_tier.node import PORT, SimulatedNode, log_directories
from klamm.sim.cluster_tier.operations import OperatedCluster, ask_controller
from klamm.sim.cluster_tier.options import Options
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    ElectLeadersRequest,
    ElectLeadersRequestTopicPartitions,
    ReassignablePartition,
    ReassignableTopic,
)
from klamm.wire.records.build import build_batch
from klamm.wire.records.record import NewRecord

TOPIC: Final = "rest"
PROMPT_S: Final = 0.15
"""Several round trips between machines, and what is synced on each; less than any wait of a fetch."""
MOVE_S: Final = 2.0
LONG_MS: Final = 3_000
UNTIL_IT_WAITS_S: Final = 0.05
STEP_S: Final = 0.02
TIMEOUT_S: Final = 30.0
ASK_MS: Final = 5_000
MANY_BYTES: Final = 1 << 20
_NOT_THERE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REPLICA_NOT_AVAILABLE)


class RestingRun(OperatedCluster, Protocol):
    """A run of a schedule whose cluster is at rest."""

    options: Options

    @property
    def nodes(self) -> Mapping[int, SimulatedNode]:
        """All nodes by broker id."""
        ...


class RestTopic:
    """The topic, what was written to it, and `answers`: what was asked, and how long each answer took."""

    def __init__(self, run: RestingRun) -> None:
        self.cluster = run
        self.directories = log_directories(run.options.directories)
        self.sent: dict[TopicPartition, list[bytes]] = {}
        """What was acknowledged and not deleted, by partition."""
        self.ends: dict[TopicPartition, int] = {}
        """The offset after that."""
        self.newest_ms = 0
        self.answers: list[RestAnswer] = []
        controller = next((n for n, node in run.nodes.items() if node.is_controller), 1)
        first, second = [n for n in run.nodes if n != controller][:2]
        self.replicas = [controller, first, second] if run.options.seed % 2 else [first, controller, second]
        """The leader of partitions 0 and 2, that of partition 1, and one that is no controller."""

    def note(self, what: str, took_s: float, most_s: float = PROMPT_S, wrong: str = "") -> None:
        """Record an answer."""
        self.answers.append(RestAnswer(what, took_s, most_s, wrong))

    def expect(self, what: str, found: object, expected: object) -> None:
        """Record whether an answer is as expected."""
        self.note(what, 0.0, wrong="" if found == expected else f"{found!r} instead of {expected!r}")

    async def create_topic(self) -> None:
        """Choose a log directory for each replica, then create the topic: its replicas have to be there."""
        leader, other, third = self.replicas
        chosen = self.directories[-1]
        for node in self.replicas:
            await self.move(node, (0, 1, 2), chosen, _NOT_THERE)
        assignments = [
            CreatableReplicaAssignment(0, (leader, other, third)),
            CreatableReplicaAssignment(1, (other, leader, third)),
            CreatableReplicaAssignment(2, (leader, other, third)),
        ]
        is_synced = str(self.cluster.options.seed % 3 == 0).lower()
        configs = {"min.insync.replicas": "2", "segment.bytes": "1000", "klamm.sync.before.ack": is_synced}
        topic = CreatableTopic(TOPIC, -1, -1, assignments, [CreatableTopicConfig(k, v) for k, v in configs.items()])
        answer = await ask_controller(self.cluster, ApiKey.CREATE_TOPICS, CreateTopicsRequest([topic], ASK_MS))
        self.expect("creation of a topic", answer.topics[0].error_code, 0)
        for p in map(partition, (0, 1, 2)):
            await self.until(partial(self.is_complete, p), f"{p} has its replicas", MOVE_S)
            for node in self.replicas:
                log = self.cluster.tier.disks[node].of(p)
                directory = log.directory.rpartition("/")[0] if log is not None else None
                self.expect(f"the log directory of {p} on node {node}", directory, chosen)

    def is_complete(self, p: TopicPartition) -> bool:
        """Whether the partition has a leader, all replicas in sync, and a log on each."""
        logs = [self.cluster.tier.disks[node].of(p) for node in self.replicas]
        return sorted(self.cluster.tier.isr(p)) == sorted(self.replicas) and None not in logs

    def is_in(self, node: int, p: TopicPartition, directory: str) -> bool:
        """Whether the replica's log is in this directory, and no copy is left."""
        disk = self.cluster.tier.disks[node]
        log = disk.of(p)
        is_copied = any(found.partition == p for _, found in disk.directories(DirectoryKind.FUTURE))
        return log is not None and log.directory.startswith(f"{directory}/") and not is_copied

    def leads(self, node: int, p: TopicPartition) -> bool:
        """Whether this node leads the partition."""
        return self.state(p).leader == node

    async def reassign(self, p: TopicPartition, replicas: Sequence[int]) -> None:
        """Begin to move a partition to these brokers."""
        topic = ReassignableTopic(TOPIC, [ReassignablePartition(p.partition, tuple(replicas))])
        request = AlterPartitionReassignmentsRequest(ASK_MS, [topic])
        answer = await ask_controller(self.cluster, ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)
        self.expect(f"a reassignment of {p}", answer.responses[0].partitions[0].error_code, 0)

    async def elect(self, number: int) -> None:
        """Elect the preferred replica of a partition."""
        partition = ElectLeadersRequestTopicPartitions(TOPIC, (number,))
        await ask_controller(self.cluster, ApiKey.ELECT_LEADERS, ElectLeadersRequest(0, [partition], ASK_MS))

    def client(self, name: str) -> AsyncClient:
        """A client of its own: a broker answers the requests of a connection one after the other."""
        return open_client(self.cluster.admin, name, self.cluster.options.nodes, PORT)

    def end(self, p: TopicPartition) -> int:
        """The offset after what was sent."""
        return self.ends.get(p, 0)

    def state(self, p: TopicPartition) -> LeaderAndIsr:
        """The state of a partition that is there."""
        state = self.cluster.tier.state(p)
        assert state is not None
        return state

    async def send(self, p: TopicPartition, size: int = 200, records: int = 1, most_s: float = PROMPT_S) -> int:
        """Write a batch with acks=all, after a while in which others begin to wait; return its size in bytes."""
        await asyncio.sleep(UNTIL_IT_WAITS_S)
        values = [b"%d/%d" % (p.partition, self.end(p) + n) + b"." * size for n in range(records)]
        batch = build_batch([self.record(value) for value in values])
        async with self.client("sends") as client:
            began_s = self.cluster.loop.now
            error = await produce_batch(client, address(self.state(p).leader), p, batch, LONG_MS)
        self.note(f"acks=all to {p}", self.cluster.loop.now - began_s, most_s)
        self.expect(f"acks=all to {p}", error, ErrorCode.NONE)
        for value in values:
            self.add(p, value)
        return len(batch)

    def record(self, value: bytes) -> NewRecord:
        """A record of now, or just after the last one: retention must not remove it."""
        self.newest_ms = max(self.cluster.admin.clock.now_ms(), self.newest_ms + 1)
        return NewRecord(value, None, self.newest_ms)

    def add(self, p: TopicPartition, value: bytes) -> None:
        """Remember an acknowledged record."""
        self.sent.setdefault(p, []).append(value)
        self.ends[p] = self.end(p) + 1

    async def timed(self, what: str, waiting: "asyncio.Future[Any]", p: TopicPartition) -> int:
        """Wait for the answer to a fetch; return how many records of the partition it has."""
        began_s = self.cluster.loop.now
        found = await waiting
        self.note(what, self.cluster.loop.now - began_s)
        return len(found.values) if isinstance(found, Fetched) else count(found, p)

    async def move(self, node: int, partitions: Sequence[int], target: str, expected: Sequence[ErrorCode]) -> None:
        """Move replicas of a node to a log directory, with one of these answers for each."""
        topics = [AlterReplicaLogDirTopic(TOPIC, tuple(partitions))]
        request = AlterReplicaLogDirsRequest([AlterReplicaLogDir(target, topics)])
        async with self.client("moves") as client:
            answer = await client.ask(address(node), Request(ApiKey.ALTER_REPLICA_LOG_DIRS, request))
        for found in answer.results[0].partitions:
            error = ErrorCode(found.error_code)
            self.expect(
                f"AlterReplicaLogDirs of partition {found.partition_index}: {error.name}", error in expected, True
            )

    async def metrics(self, node: int) -> dict[str, float]:
        """The samples on the page of metrics of a node; none where nodes have no such page."""
        return await read_metrics(self.cluster.admin, f"node-{node}") if self.cluster.options.has_metrics else {}

    async def expect_growth(self, node: int, before: Mapping[str, float], growth: Mapping[str, float]) -> None:
        """Record whether metrics of a node have grown by so much since."""
        if before:
            now = await self.metrics(node)
            found = {name: now.get(name, 0.0) - before.get(name, 0.0) for name in growth}
            self.expect(f"the growth of metrics of node {node}", found, dict(growth))

    async def until(self, is_done: Callable[[], bool], what: str, most_s: float) -> None:
        """Wait until this is true. Raises TimeoutError."""
        began_s = self.cluster.loop.now
        while not is_done():
            if self.cluster.loop.now > began_s + most_s:
                raise TimeoutError(f"{what}: not after {most_s} s")
            await asyncio.sleep(STEP_S)


def partition(number: int) -> TopicPartition:
    """A partition of the topic."""
    return TopicPartition(TOPIC, number)


def address(node: int) -> Address:
    """Where a node listens."""
    return Address(f"node-{node}", PORT)


def count(found: Mapping[TopicPartition, Fetched], p: TopicPartition) -> int:
    """How many records of the partition were fetched."""
    return len(found[p].values) if p in found else 0


def error_of(answer: Any, p: TopicPartition) -> ErrorCode:
    """The error of a partition in the answer to any of the requests that wait."""
    if isinstance(answer, dict):
        return answer[p].error if p in answer else ErrorCode.NONE
    if isinstance(answer, Fetched):
        return answer.error
    error: ErrorCode = answer[0] if isinstance(answer, tuple) else answer
    return error
