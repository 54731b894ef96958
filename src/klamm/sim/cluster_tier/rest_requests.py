"""Requests to a sound cluster, and how long each answer takes: to a topic of their own, after the checks at rest.

Amid faults most answers are late for a reason. Here nothing delays them: one that comes with a timer was forgotten.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from klamm.client.asynchronous import AsyncClient
from klamm.client.versions import Request
from klamm.log.names import DirectoryKind
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.cluster_tier.clients.locator import open_client
from klamm.sim.cluster_tier.clients.offset_requests import (
    CONSUMER,
    DEBUGGER,
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    DescribedLog,
    EpochEnd,
    described_logs,
    epoch_end,
    list_offset,
)
from klamm.sim.cluster_tier.clients.plain_requests import (
    Fetched,
    FetchSession,
    delete_before,
    fetch_once,
    old_style_offsets,
    produce,
    produce_message,
    read_values,
)
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
from klamm.wire.records.record import NewRecord

TOPIC: Final = "rest"
_PROMPT_S: Final = 0.15
"""Several round trips between machines, and what is synced on each; less than any wait of a fetch."""
_MOVE_S: Final = 2.0
_LONG_MS: Final = 3_000
_UNTIL_IT_WAITS_S: Final = 0.05
_STEP_S: Final = 0.02
_TIMEOUT_S: Final = 30.0
_ASK_MS: Final = 5_000
_ENOUGH_BATCHES: Final = 8
_MANY_BYTES: Final = 1 << 20
_MAX_SESSIONS: Final = 12
_FORMER_LEADER: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_NOWHERE: Final = (ErrorCode.NONE, -1)
_NOT_THERE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REPLICA_NOT_AVAILABLE)


class RestingRun(OperatedCluster, Protocol):
    """A run of a schedule whose cluster is at rest."""

    options: Options

    @property
    def nodes(self) -> Mapping[int, SimulatedNode]:
        """All nodes by broker id."""
        ...


class RestRequests:
    """`await run()` once; `answers` then has what was asked, and how long each answer took."""

    def __init__(self, run: RestingRun) -> None:
        self._run = run
        self._directories = log_directories(run.options.directories)
        self._sent: dict[TopicPartition, list[bytes]] = {}
        """What was acknowledged and not deleted, by partition."""
        self._ends: dict[TopicPartition, int] = {}
        """The offset after that."""
        self._newest_ms = 0
        self.answers: list[RestAnswer] = []
        controller = next((n for n, node in run.nodes.items() if node.is_controller), 1)
        first, second = [n for n in run.nodes if n != controller][:2]
        self._replicas = [controller, first, second] if run.options.seed % 2 else [first, controller, second]
        """The leader of partitions 0 and 2, that of partition 1, and one that is no controller."""

    async def run(self) -> None:
        """Send all requests, one after the other."""
        steps: list[Callable[[], Awaitable[None]]] = [
            self._create_topic,
            self._read_in_a_session,
            self._delete_records,
            self._move_log,
            self._open_sessions,
            self._speak_old_versions,
            self._read_all,
            self._ask_about_offsets,
            self._describe_logs,
            self._change_leader,
            self._read_all,
        ]
        for step in steps:
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    await step()
            except (KlammError, TimeoutError, OSError) as error:
                self._note(f"{step.__name__.strip('_')}", 0.0, wrong=repr(error))
                return

    def _note(self, what: str, took_s: float, most_s: float = _PROMPT_S, wrong: str = "") -> None:
        """Record an answer."""
        self.answers.append(RestAnswer(what, took_s, most_s, wrong))

    def _expect(self, what: str, found: object, expected: object) -> None:
        """Record whether an answer is as expected."""
        self._note(what, 0.0, wrong="" if found == expected else f"{found!r} instead of {expected!r}")

    # ---- the topic

    async def _create_topic(self) -> None:
        """Choose a log directory for each replica, then create the topic: its replicas have to be there."""
        leader, other, third = self._replicas
        chosen = self._directories[-1]
        for node in self._replicas:
            await self._move(node, (0, 1, 2), chosen, _NOT_THERE)
        assignments = [
            CreatableReplicaAssignment(0, (leader, other, third)),
            CreatableReplicaAssignment(1, (other, leader, third)),
            CreatableReplicaAssignment(2, (leader, other, third)),
        ]
        is_synced = str(self._run.options.seed % 3 == 0).lower()
        configs = {"min.insync.replicas": "2", "segment.bytes": "1000", "klamm.sync.before.ack": is_synced}
        topic = CreatableTopic(TOPIC, -1, -1, assignments, [CreatableTopicConfig(k, v) for k, v in configs.items()])
        answer = await ask_controller(self._run, ApiKey.CREATE_TOPICS, CreateTopicsRequest([topic], _ASK_MS))
        self._expect("creation of a topic", answer.topics[0].error_code, 0)
        for p in map(_partition, (0, 1, 2)):
            await self._until(partial(self._is_complete, p), f"{p} has its replicas", _MOVE_S)
            for node in self._replicas:
                log = self._run.tier.disks[node].of(p)
                directory = log.directory.rpartition("/")[0] if log is not None else None
                self._expect(f"the log directory of {p} on node {node}", directory, chosen)

    def _is_complete(self, p: TopicPartition) -> bool:
        """Whether the partition has a leader, all replicas in sync, and a log on each."""
        logs = [self._run.tier.disks[node].of(p) for node in self._replicas]
        return sorted(self._run.tier.isr(p)) == sorted(self._replicas) and None not in logs

    # ---- reads

    async def _read_in_a_session(self) -> None:
        """A waiting fetch is answered as soon as a partition of its session changes, and loses nothing."""
        leader, p, other = self._replicas[0], _partition(0), _partition(2)
        async with self._client("session") as client:
            session = FetchSession(client, _address(leader))
            await session.fetch({p: 0, other: 0})
            if not session.id:
                return
            waiting = asyncio.ensure_future(session.fetch({}, _LONG_MS))
            await self._send(other)
            self._expect("records of the changed partition", await self._timed("a waiting fetch", waiting, other), 1)
            abandoned = asyncio.ensure_future(session.fetch({other: 1}, _LONG_MS, _MANY_BYTES))
            await self._send(p)
            client.drop(_address(leader))
            await asyncio.gather(abandoned, return_exceptions=True)
            await asyncio.sleep(_UNTIL_IT_WAITS_S)
            repeated = await session.fetch({})
            self._expect("records that were read for a lost connection", _count(repeated, p), 1)
            await session.fetch({p: 1}, forgotten=[other])
            await self._send(other)
            self._expect("a forgotten partition", other in await session.fetch({}, 1), False)

    async def _delete_records(self) -> None:
        """DeleteRecords is answered when the followers have deleted, too; all learn of the new log start."""
        leader, p = self._replicas[0], _partition(0)
        await self._send(p)
        async with self._client("deleting") as client, self._client("reader") as reader:
            session = FetchSession(reader, _address(leader))
            await session.fetch({p: self._end(p)})
            self._run.tier.deleted_before[p] = 1
            began_s = self._run.loop.now
            error, low = await delete_before(client, _address(leader), p, 1, _ASK_MS)
            self._note("DeleteRecords", self._run.loop.now - began_s)
            self._expect("DeleteRecords", (error, low), (ErrorCode.NONE, 1))
            if session.id:
                found = (await session.fetch({})).get(p)
                self._expect("the log start in a session", found.log_start if found is not None else None, 1)
            late = await fetch_once(client, _address(leader), p, 0, _LONG_MS)
            self._expect("a fetch before the log start", late.error, ErrorCode.OFFSET_OUT_OF_RANGE)
            del self._sent[p][:1]

    async def _open_sessions(self) -> None:
        """A broker that has no room for another fetch session keeps those that it has."""
        leader, p = self._replicas[1], _partition(1)
        async with self._client("many sessions") as client:
            sessions: list[FetchSession] = []
            while len(sessions) < _MAX_SESSIONS:
                session = FetchSession(client, _address(leader))
                await session.fetch({p: 0})
                if not session.id:
                    break
                sessions.append(session)
            for session in sessions:
                self._expect("a fetch in an open session", await session.fetch({}), {})
                session.end()
                await session.fetch({})

    async def _speak_old_versions(self) -> None:
        """Clients of old versions write and read the same records, in their message formats."""
        leader, follower, p = self._replicas[1], self._replicas[0], _partition(1)
        async with self._client("old") as client:
            for magic in (0, 1):
                value = b"old/%d" % magic
                error = await produce_message(client, _address(leader), p, self._record(value), magic)
                self._expect(f"Produce of format {magic}", error, ErrorCode.NONE)
                self._add(p, value)
            await self._send(p)
            for newest in (1, 3, 12):
                found = await read_values(client, _address(leader), p, 0, newest)
                self._expect(f"Fetch of version {newest}", found, self._sent[p])
            offsets = await old_style_offsets(client, _address(leader), p)
            self._expect("ListOffsets of version 0", offsets, (ErrorCode.NONE, (self._end(p), 0)))
            refused, _ = await old_style_offsets(client, _address(follower), p)
            self._expect("ListOffsets of version 0 at a follower", refused, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def _ask_about_offsets(self) -> None:
        """The leader, and no other replica, tells consumers the ends of the log and of its epoch, as the files say."""
        leader, follower, p = self._replicas[0], self._replicas[1], _partition(0)
        await asyncio.sleep(_UNTIL_IT_WAITS_S)
        await self._send(p)
        epoch, end, broker = self._state(p).leader_epoch, self._end(p), _address(leader)
        start, newest_ms = end - len(self._sent[p]), self._newest_ms
        expected = {LATEST: end, EARLIEST: start, MAX_TIMESTAMP: end - 1, newest_ms: end - 1, newest_ms + 1: -1}
        async with self._client("offsets") as client:
            for timestamp, offset in expected.items():
                for is_committed in (False, True):
                    found = await list_offset(client, broker, p, timestamp, CONSUMER, is_committed)
                    self._expect(f"ListOffsets of {timestamp}", found[:2], (ErrorCode.NONE, offset))
                    self._expect(f"the epoch of {timestamp}", found.leader_epoch, epoch if offset >= 0 else -1)
            refused = {
                epoch - 1: ErrorCode.FENCED_LEADER_EPOCH,
                epoch: ErrorCode.NONE,
                epoch + 1: ErrorCode.UNKNOWN_LEADER_EPOCH,
            }
            for known, error in refused.items():
                if known >= 0:
                    found = await list_offset(client, broker, p, LATEST, leader_epoch=known)
                    self._expect(f"ListOffsets in epoch {known} of {epoch}", found.error, error)
                    ended = await epoch_end(client, broker, p, epoch, known)
                    self._expect(f"OffsetForLeaderEpoch in epoch {known} of {epoch}", ended.error, error)
            self._expect("the end of the epoch", await epoch_end(client, broker, p, epoch), (0, epoch, end))
            self._expect(
                "the end of a later epoch",
                await epoch_end(client, broker, p, epoch + 1),
                EpochEnd(ErrorCode.NONE, -1, -1),
            )
            found = await list_offset(client, _address(follower), p, LATEST)
            self._expect("ListOffsets at a follower", found.error, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            ended = await epoch_end(client, _address(follower), p, epoch)
            self._expect("OffsetForLeaderEpoch at a follower", ended.error, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            found = await list_offset(client, _address(follower), p, LATEST, DEBUGGER)
            self._expect("the log end of a follower", found[:2], (ErrorCode.NONE, end))

    async def _describe_logs(self) -> None:
        """DescribeLogDirs names each log, its directory and its size in bytes, as the files say."""
        async with self._client("describes") as client:
            for node in self._replicas:
                logs = [(p, self._run.tier.disks[node].of(p)) for p in map(_partition, range(3))]
                expected = [
                    DescribedLog(log.directory.rpartition("/")[0], p.partition, log.size, 0, False)
                    for p, log in logs
                    if log is not None
                ]
                found = await described_logs(client, _address(node), TOPIC, range(3))
                self._expect(f"DescribeLogDirs of node {node}", found, sorted(expected))

    async def _see_what_is_committed(self, client: AsyncClient, p: TopicPartition) -> None:
        """While a record waits for a follower, consumers find the log without it, and debuggers find it."""
        leader, end = _address(self._state(p).leader), self._end(p)
        for is_committed in (False, True):
            found = await list_offset(client, leader, p, LATEST, CONSUMER, is_committed)
            self._expect("the end of what is committed", found[:2], (ErrorCode.NONE, end))
            for timestamp in (MAX_TIMESTAMP, self._newest_ms):
                found = await list_offset(client, leader, p, timestamp, CONSUMER, is_committed)
                self._expect(f"ListOffsets of {timestamp} before the commit", found[:2], _NOWHERE)
        found = await list_offset(client, leader, p, LATEST, DEBUGGER)
        self._expect("the end of the leader's log", found[:2], (ErrorCode.NONE, end + 1))

    # ---- changes of the replicas

    async def _move_log(self) -> None:
        """The leader's log moves to another directory while a fetch waits, which then gets the next record at once."""
        if len(self._directories) == 1:
            return
        leader, p = self._replicas[0], _partition(0)
        for _ in range(_ENOUGH_BATCHES):
            await self._send(p)
        async with self._client("waits") as client:
            waiting = asyncio.ensure_future(fetch_once(client, _address(leader), p, self._end(p), _LONG_MS))
            await asyncio.sleep(_UNTIL_IT_WAITS_S)
            target = self._directories[0]
            await self._move(leader, (0,), target, (ErrorCode.NONE,))
            await self._until(lambda: self._is_in(leader, p, target), f"{p} is in {target}", _MOVE_S)
            await self._send(p)
            self._expect("records after the move", await self._timed("a fetch during a move", waiting, p), 1)

    def _is_in(self, node: int, p: TopicPartition, directory: str) -> bool:
        """Whether the replica's log is in this directory, and no copy is left."""
        disk = self._run.tier.disks[node]
        log = disk.of(p)
        is_copied = any(found.partition == p for _, found in disk.directories(DirectoryKind.FUTURE))
        return log is not None and log.directory.startswith(f"{directory}/") and not is_copied

    async def _change_leader(self) -> None:
        """All that waits at a leader is answered when it becomes follower: fetches, acks=all and DeleteRecords."""
        leader, successor, third = self._replicas
        p, network = _partition(0), self._run.network
        reordered = ReassignableTopic(TOPIC, [ReassignablePartition(0, (successor, leader, third))])
        async with (
            self._client("first") as first,
            self._client("second") as second,
            self._client("third") as producer,
            self._client("fourth") as deleter,
        ):
            await self._send(p)
            epoch = self._state(p).leader_epoch
            session, late = FetchSession(second, _address(leader), epoch), self._record(b"late")
            await session.fetch({p: self._end(p)})
            network.cut(f"node-{third}", f"node-{leader}")
            waiting: dict[str, asyncio.Future[Any]] = {
                "a fetch": asyncio.ensure_future(fetch_once(first, _address(leader), p, self._end(p), _LONG_MS, epoch)),
                "acks=all": asyncio.ensure_future(produce(producer, _address(leader), p, late, _LONG_MS)),
                "DeleteRecords": asyncio.ensure_future(
                    delete_before(deleter, _address(leader), p, self._end(p), _LONG_MS)
                ),
            }
            if session.id:
                waiting["a fetch in a session"] = asyncio.ensure_future(session.fetch({}, _LONG_MS))
            await asyncio.sleep(_UNTIL_IT_WAITS_S)
            early = [(what, answer.result()) for what, answer in waiting.items() if answer.done()]
            self._expect("what is answered while a follower is cut off", early, [])
            async with self._client("asks meanwhile") as asking:
                await self._see_what_is_committed(asking, p)
            request = AlterPartitionReassignmentsRequest(_ASK_MS, [reordered])
            await ask_controller(self._run, ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)
            elected = asyncio.ensure_future(self._elect(0))
            await self._until(lambda: self._leads(successor, p), "the preferred replica leads", _MOVE_S)
            began_s = self._run.loop.now
            for what, answer in waiting.items():
                found = await answer
                self._note(f"{what} at a former leader", self._run.loop.now - began_s)
                self._expect(f"{what} at a former leader", _error_of(found, p) in _FORMER_LEADER, True)
            network.end_cut(f"node-{third}", f"node-{leader}")
            await elected
        self._sent[p].clear()

    def _leads(self, node: int, p: TopicPartition) -> bool:
        """Whether this node leads the partition."""
        return self._state(p).leader == node

    async def _elect(self, number: int) -> None:
        """Elect the preferred replica of a partition."""
        partition = ElectLeadersRequestTopicPartitions(TOPIC, (number,))
        await ask_controller(self._run, ApiKey.ELECT_LEADERS, ElectLeadersRequest(0, [partition], _ASK_MS))

    async def _read_all(self) -> None:
        """Each acknowledged record is read once, in order."""
        for p in self._sent:
            leader = _address(self._state(p).leader)
            async with self._client(f"reads {p.partition}") as client:
                found = await read_values(client, leader, p, self._end(p) - len(self._sent[p]))
                values = [value for value in found if value != b"late"]
                self._expect(f"the records of {p}", values, self._sent[p])

    # ---- inside

    def _client(self, name: str) -> AsyncClient:
        """A client of its own: a broker answers the requests of a connection one after the other."""
        return open_client(self._run.admin, name, self._run.options.nodes, PORT)

    def _end(self, p: TopicPartition) -> int:
        """The offset after what was sent."""
        return self._ends.get(p, 0)

    def _state(self, p: TopicPartition) -> LeaderAndIsr:
        """The state of a partition that is there."""
        state = self._run.tier.state(p)
        assert state is not None
        return state

    async def _send(self, p: TopicPartition) -> None:
        """Write a record with acks=all, after a while in which others begin to wait."""
        await asyncio.sleep(_UNTIL_IT_WAITS_S)
        value = b"%d/%d" % (p.partition, self._end(p)) + b"." * 200
        async with self._client("sends") as client:
            began_s = self._run.loop.now
            error = await produce(client, _address(self._state(p).leader), p, self._record(value), _LONG_MS)
        self._note(f"acks=all to {p}", self._run.loop.now - began_s)
        self._expect(f"acks=all to {p}", error, ErrorCode.NONE)
        self._add(p, value)

    def _record(self, value: bytes) -> NewRecord:
        """A record of now, or just after the last one: retention must not remove it."""
        self._newest_ms = max(self._run.admin.clock.now_ms(), self._newest_ms + 1)
        return NewRecord(value, None, self._newest_ms)

    def _add(self, p: TopicPartition, value: bytes) -> None:
        """Remember an acknowledged record."""
        self._sent.setdefault(p, []).append(value)
        self._ends[p] = self._end(p) + 1

    async def _timed(self, what: str, waiting: "asyncio.Future[Any]", p: TopicPartition) -> int:
        """Wait for the answer to a fetch; return how many records of the partition it has."""
        began_s = self._run.loop.now
        found = await waiting
        self._note(what, self._run.loop.now - began_s)
        return len(found.values) if isinstance(found, Fetched) else _count(found, p)

    async def _move(self, node: int, partitions: Sequence[int], target: str, expected: Sequence[ErrorCode]) -> None:
        """Move replicas of a node to a log directory, with one of these answers for each."""
        topics = [AlterReplicaLogDirTopic(TOPIC, tuple(partitions))]
        request = AlterReplicaLogDirsRequest([AlterReplicaLogDir(target, topics)])
        async with self._client("moves") as client:
            answer = await client.ask(_address(node), Request(ApiKey.ALTER_REPLICA_LOG_DIRS, request))
        for found in answer.results[0].partitions:
            error = ErrorCode(found.error_code)
            self._expect(
                f"AlterReplicaLogDirs of partition {found.partition_index}: {error.name}", error in expected, True
            )

    async def _until(self, is_done: Callable[[], bool], what: str, most_s: float) -> None:
        """Wait until this is true, and record how long that took. Raises TimeoutError."""
        began_s = self._run.loop.now
        while not is_done():
            if self._run.loop.now > began_s + most_s:
                raise TimeoutError(f"{what}: not after {most_s} s")
            await asyncio.sleep(_STEP_S)


def _partition(number: int) -> TopicPartition:
    """A partition of the topic."""
    return TopicPartition(TOPIC, number)


def _address(node: int) -> Address:
    """Where a node listens."""
    return Address(f"node-{node}", PORT)


def _count(found: Mapping[TopicPartition, Fetched], p: TopicPartition) -> int:
    """How many records of the partition were fetched."""
    return len(found[p].values) if p in found else 0


def _error_of(answer: Any, p: TopicPartition) -> ErrorCode:
    """The error of a partition in the answer to any of the requests that wait."""
    if isinstance(answer, dict):
        return answer[p].error if p in answer else ErrorCode.NONE
    if isinstance(answer, Fetched):
        return answer.error
    error: ErrorCode = answer[0] if isinstance(answer, tuple) else answer
    return error
