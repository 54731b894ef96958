"""Several replica managers that replicate to each other: real wire messages, simulated time, no sockets.

The test plays the controller: it says who leads, and answers AlterPartition as it is told to.
"""

import asyncio
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, cast

from tests.support.memory_log import MemoryLog, MemoryLogs, batch
from tests.support.real_logs import RealLogs, real_batch, values

from klamm.log.log import Log
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.replication.fetch_data import FetchParams, FetchPartition, Isolation
from klamm.replication.fetch_sessions import FetchAnswer, FetchRequested
from klamm.replication.partition import Partition
from klamm.replication.replica_manager import ReplicaManager, ReplicationSettings
from klamm.runtime.clock import Clock
from klamm.runtime.disk import RealDisk
from klamm.runtime.world import World
from klamm.sim.loop import SimulatedLoop
from klamm.sim.world import SeededRandomness, SimulatedClock
from klamm.wire.api import ApiKey, api
from klamm.wire.messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchResponseEpochEndOffset,
    FetchResponsePartitionData,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

P0 = TopicPartition("orders", 0)
TOPIC_ID = uuid.UUID(int=77)


def ids(*brokers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(b) for b in brokers)


class Metadata:
    """The metadata cache of all brokers in one."""

    def __init__(self, brokers: Iterable[int]) -> None:
        self.alive = {BrokerId(b) for b in brokers}
        self.topics: dict[str, uuid.UUID] = {P0.topic: TOPIC_ID}
        self.known: set[TopicPartition] | None = None

    def is_alive(self, broker_id: BrokerId) -> bool:
        return broker_id in self.alive

    def endpoint(self, broker_id: BrokerId) -> tuple[str, int] | None:
        return ("broker", broker_id) if broker_id in self.alive else None

    def contains(self, topic_partition: TopicPartition) -> bool:
        return topic_partition.topic in self.topics if self.known is None else topic_partition in self.known

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        return next((name for name, i in self.topics.items() if i == topic_id), None)


class Controller:
    """Accepts every AlterPartition, unless `answers` has other responses for the next ones."""

    def __init__(self) -> None:
        self.requests: list[AlterPartitionRequest] = []
        self.times: list[float] = []
        self.answers: list[ErrorCode | Exception | Callable[[AlterPartitionRequest], AlterPartitionResponse]] = []
        self.held: asyncio.Event | None = None
        """While set and not fired, no answer is given."""

    async def alter_partition(
        self, build: Callable[[int], AlterPartitionRequest], newest: int
    ) -> AlterPartitionResponse:
        request = AlterPartitionRequest.decode(build(newest).encode(newest), newest)
        self.requests.append(request)
        self.times.append(asyncio.get_running_loop().time())
        if self.held is not None:
            await self.held.wait()
        else:
            await asyncio.sleep(0.001)
        answer = self.answers.pop(0) if self.answers else ErrorCode.NONE
        if isinstance(answer, Exception):
            raise answer
        if callable(answer):
            return answer(request)
        return alter_partition_response(request, answer)

    @property
    def proposed(self) -> list[tuple[int, ...]]:
        """The requested ISRs, in order."""
        return [_isr(p) for r in self.requests for t in r.topics for p in t.partitions]


def alter_partition_response(
    request: AlterPartitionRequest, error: ErrorCode = ErrorCode.NONE
) -> AlterPartitionResponse:
    """The controller's response: it accepts the requested ISR, or answers with `error`."""
    topics = [
        AlterPartitionResponseTopicData(
            topic_name=topic.topic_name,
            topic_id=topic.topic_id,
            partitions=[
                AlterPartitionResponsePartitionData(
                    partition_index=p.partition_index,
                    error_code=error,
                    leader_epoch=p.leader_epoch,
                    isr=_isr(p),
                    partition_epoch=p.partition_epoch + 1,
                )
                for p in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return AlterPartitionResponse(topics=topics)


def _isr(partition: Any) -> tuple[int, ...]:
    return tuple(partition.new_isr) or tuple(b.broker_id for b in partition.new_isr_with_epochs)


class Link:
    """A connection from one broker to another: every message is encoded and decoded on its way."""

    def __init__(self, cluster: "ReplicaCluster", source: int, target: int) -> None:
        self._cluster = cluster
        self._ends = source, target
        self.closed = False
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def request(self, api_key: ApiKey, version: int, message: Any, timeout_s: float) -> Any:
        cluster, kind = self._cluster, api(api_key)
        cluster.sent.append((*self._ends, message, version))
        source, target = self._ends
        if self.closed or not cluster.is_reachable(source, target):
            raise ConnectionResetError(f"broker {target} cannot be reached")
        await asyncio.sleep(cluster.delay_s)
        request = kind.request.decode(message.encode(version), version)
        serving = asyncio.ensure_future(cluster.serve(target, api_key, request, version))
        await asyncio.wait([serving, self._broken], return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            serving.cancel()
            raise ConnectionResetError("closed by us")
        answer = serving.result()
        await asyncio.sleep(cluster.delay_s)
        if self.closed or not cluster.is_reachable(source, target):
            raise ConnectionResetError(f"broker {target} cannot be reached")
        return kind.response.decode(answer.encode(version), version)

    def close(self) -> None:
        self.closed = True
        if not self._broken.done():
            self._broken.set_result(None)


class ReplicaCluster:
    """Replica managers of several brokers; the test plays the controller. Time is simulated unless `clock` is given."""

    def __init__(
        self,
        brokers: Sequence[int] = (1, 2, 3),
        *,
        min_insync_replicas: int = 1,
        settings: ReplicationSettings | None = None,
        make_logs: Callable[[int], Any] | None = None,
        clock: Clock | None = None,
    ) -> None:
        clock = clock or SimulatedClock(cast(SimulatedLoop, asyncio.get_running_loop()))
        self.world = World(clock, None, RealDisk(), SeededRandomness(1))  # type: ignore[arg-type]
        self.metadata = Metadata(brokers)
        self.controller = Controller()
        self.logs: dict[int, Any] = {}
        self.brokers: dict[int, ReplicaManager] = {}
        self.cut: set[tuple[int, int]] = set()
        self.sent: list[tuple[int, int, Any, int]] = []
        self.complaints: list[tuple[int, TopicPartition, int]] = []
        """Broker, partition and fetch offset of each fetch that met damaged records."""
        self.on_corrupt: dict[int, Callable[[TopicPartition, int], None]] = {}
        self.delay_s = 0.001
        self.leader_epoch: dict[TopicPartition, int] = {}
        self.partition_epoch: dict[TopicPartition, int] = {}
        self.settings = settings or ReplicationSettings()
        self.make_batch: Callable[..., bytes] = batch
        for b in brokers:
            self.logs[b] = MemoryLogs(min_insync_replicas) if make_logs is None else make_logs(b)
            self.boot(b)

    @classmethod
    async def on_disk(
        cls, directory: str, brokers: Sequence[int] = (1, 2, 3), directory_count: int = 1, **how: Any
    ) -> "ReplicaCluster":
        """With real logs below `directory`, in so many log directories for each broker."""
        cluster = cls((), **how)
        cluster.make_batch = real_batch
        for b in brokers:
            cluster.logs[b] = RealLogs(
                cluster.world, f"{directory}/{b}", b, how.get("min_insync_replicas", 1), directory_count
            )
            await cluster.start(b)
        return cluster

    async def start(self, broker: int) -> None:
        """Start a process over the logs on disk."""
        if isinstance(self.logs[broker], RealLogs):
            await self.logs[broker].load()
        self.boot(broker)

    def boot(self, broker: int) -> None:
        """Start a new process of the broker with its existing logs."""
        self.brokers[broker] = ReplicaManager(
            self.world,
            BrokerId(broker),
            lambda: 100,
            self.logs[broker],
            self.metadata,
            lambda build, newest: self.controller.alter_partition(build, newest),
            lambda host, port, client_id: self._connect(broker, port),
            self.settings,
            future_logs=self.logs[broker].manager.moves if isinstance(self.logs[broker], RealLogs) else None,
            on_corrupt=partial(self._on_corrupt, broker),
        )
        self.logs[broker].on_failed = self.brokers[broker].set_offline
        self.brokers[broker].start()
        self.metadata.alive.add(BrokerId(broker))

    def _on_corrupt(self, broker: int, partition: TopicPartition, offset: int) -> None:
        """A fetch met damaged records."""
        self.complaints.append((broker, partition, offset))
        if broker in self.on_corrupt:
            self.on_corrupt[broker](partition, offset)

    async def crash(self, broker: int) -> None:
        """End the process without a shutdown; what it wrote stays."""
        self.metadata.alive.discard(BrokerId(broker))
        manager = self.brokers.pop(broker)
        for task in manager._tasks:
            task.cancel()
        manager._checkpoints_run = False
        await manager.close()
        if isinstance(self.logs[broker], RealLogs):
            await self.logs[broker].drop()

    async def close(self) -> None:
        for broker in list(self.brokers):
            await self.crash(broker)

    def is_reachable(self, source: int, target: int) -> bool:
        return target in self.brokers and source in self.brokers and not {(source, target), (target, source)} & self.cut

    async def _connect(self, source: int, target: int) -> Link:
        await asyncio.sleep(self.delay_s)
        if not self.is_reachable(source, target):
            raise ConnectionRefusedError(f"broker {target} cannot be reached")
        return Link(self, source, target)

    # ---- the controller's part

    async def elect(
        self,
        leader: int,
        isr: Sequence[int] = (1, 2, 3),
        replicas: Sequence[int] = (1, 2, 3),
        *,
        tell: Iterable[int] | None = None,
        partition: TopicPartition = P0,
        epoch: int | None = None,
    ) -> dict[int, LeaderAndIsrResponse]:
        """Send LeaderAndIsr with this leader and ISR to the brokers."""
        self.leader_epoch[partition] = self.leader_epoch.get(partition, -1) + 1 if epoch is None else epoch
        known = [b.partition(partition) for b in self.brokers.values()]
        newest = max((p.partition_epoch for p in known if p is not None), default=0)
        self.partition_epoch[partition] = max(newest, self.partition_epoch.get(partition, 0)) + 1
        request = leader_and_isr(
            leader, isr, replicas, self.leader_epoch[partition], self.partition_epoch[partition], partition
        )
        order = sorted(replicas, key=lambda b: b != leader) if tell is None else tell
        return {b: await self.brokers[b].become_leader_or_follower(request, 7) for b in order if b in self.brokers}

    # ---- looking

    def partition(self, broker: int, partition: TopicPartition = P0) -> Partition:
        found = self.brokers[broker].partition(partition)
        assert found is not None
        return found

    def log(self, broker: int, partition: TopicPartition = P0) -> MemoryLog:
        found: MemoryLog = self.logs[broker].logs[partition]
        return found

    def values(self, broker: int) -> list[bytes]:
        """The values of the records in the log of a broker."""
        log = self.log(broker)
        return values(cast(Log, log)) if isinstance(self.logs[broker], RealLogs) else log.fillers()

    def isr(self, broker: int) -> tuple[int, ...]:
        return self.partition(broker).isr_state.isr

    async def produce(
        self, broker: int, filler: bytes = b"", *, count: int = 1, acks: int = -1, timeout_ms: int = 5_000
    ) -> ErrorCode:
        """Produce a batch to a broker; the error code."""
        results = await self.brokers[broker].append(acks, timeout_ms, {P0: self.make_batch(count, filler=filler)})
        return results[P0].error

    # ---- serving

    async def serve(self, broker: int, api_key: ApiKey, request: Any, version: int) -> Any:
        """Handle a request at a broker and return the response."""
        manager = self.brokers[broker]
        if api_key is ApiKey.FETCH:
            return await serve_fetch(manager, self.metadata, request, version)
        assert api_key is ApiKey.LIST_OFFSETS
        return await serve_list_offsets(manager, request)


def leader_and_isr(
    leader: int,
    isr: Sequence[int],
    replicas: Sequence[int],
    leader_epoch: int,
    partition_epoch: int,
    partition: TopicPartition = P0,
    *,
    topic_id: uuid.UUID = TOPIC_ID,
    controller_epoch: int = 1,
    broker_epoch: int = -1,
    is_new: bool = False,
    adding: Sequence[int] = (),
    removing: Sequence[int] = (),
) -> LeaderAndIsrRequest:
    state = LeaderAndIsrPartitionState(
        topic_name=partition.topic,
        partition_index=partition.partition,
        controller_epoch=controller_epoch,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=tuple(isr),
        partition_epoch=partition_epoch,
        replicas=tuple(replicas),
        is_new=is_new,
        adding_replicas=tuple(adding),
        removing_replicas=tuple(removing),
    )
    topic = LeaderAndIsrTopicState(topic_name=partition.topic, topic_id=topic_id, partition_states=[state])
    return LeaderAndIsrRequest(
        controller_id=1, controller_epoch=controller_epoch, broker_epoch=broker_epoch, topic_states=[topic]
    )


async def serve_fetch(manager: ReplicaManager, metadata: Metadata, request: FetchRequest, version: int) -> Any:
    by_id = version >= 13
    replica_id = BrokerId(request.replica_state.replica_id if version >= 15 else request.replica_id)

    def name(topic: Any) -> str | None:
        return metadata.topic_name(topic.topic_id) if by_id else topic.topic

    params = FetchParams(
        replica_id,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        Isolation(request.isolation_level),
        leader_only=version < 11,
        broker_epoch=request.replica_state.replica_epoch,
    )
    wanted = [
        FetchPartition(
            name(topic),
            topic.topic_id,
            p.partition,
            p.fetch_offset,
            p.partition_max_bytes,
            p.current_leader_epoch,
            p.last_fetched_epoch,
            p.log_start_offset,
        )
        for topic in request.topics
        for p in topic.partitions
    ]
    forgotten = [(name(t), t.topic_id, p) for t in request.forgotten_topics_data for p in t.partitions]
    answer = await manager.fetch(
        params, FetchRequested(wanted, request.session_id, request.session_epoch, forgotten, by_id, replica_id)
    )
    return fetch_response(answer)


def fetch_response(answer: FetchAnswer) -> FetchResponse:
    topics: dict[tuple[str | None, uuid.UUID], FetchableTopicResponse] = {}
    for cached, data in answer.partitions:
        wanted = cached.request
        topic = topics.setdefault(
            (wanted.topic, wanted.topic_id),
            FetchableTopicResponse(topic=wanted.topic or "", topic_id=wanted.topic_id, partitions=[]),
        )
        found = FetchResponsePartitionData(
            partition_index=wanted.partition,
            error_code=data.error,
            high_watermark=data.high_watermark,
            last_stable_offset=data.last_stable_offset,
            log_start_offset=data.log_start_offset,
            records=cast(bytes, data.records),
        )
        if data.diverging is not None:
            found.diverging_epoch = FetchResponseEpochEndOffset(data.diverging.epoch, data.diverging.end_offset)
        topic.partitions.append(found)
    return FetchResponse(error_code=answer.error, session_id=answer.session_id, responses=list(topics.values()))


async def serve_list_offsets(manager: ReplicaManager, request: ListOffsetsRequest) -> ListOffsetsResponse:
    topics = []
    for topic in request.topics:
        partitions = []
        for p in topic.partitions:
            found = await manager.look_up_offset(
                TopicPartition(topic.name, p.partition_index),
                p.timestamp,
                replica_id=BrokerId(request.replica_id),
                current_leader_epoch=p.current_leader_epoch,
            )
            partitions.append(
                ListOffsetsPartitionResponse(
                    partition_index=p.partition_index,
                    error_code=found.error,
                    timestamp=found.timestamp,
                    offset=found.offset,
                    leader_epoch=found.leader_epoch,
                )
            )
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)
