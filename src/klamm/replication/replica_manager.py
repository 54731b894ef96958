"""All replicas of one broker and the operations on them. Source: ReplicaManager.scala (Kafka 3.9)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import structlog

from klamm.log.epochs import EpochEnd
from klamm.log.errors import REPLACE_REPLICA, StorageFailed
from klamm.log.producers import Origin, Producer, Verification
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.replication.alter_partition import AlterPartitionManager, SendAlterPartition
from klamm.replication.appending import AppendResult, ProduceService
from klamm.replication.context import ReplicationContext
from klamm.replication.fetch_data import CONSUMER, FetchParams, Isolation
from klamm.replication.fetch_session_client import FetchSettings
from klamm.replication.fetch_sessions import FetchAnswer, FetchRequested, FetchSessions
from klamm.replication.fetcher_manager import FetcherManager
from klamm.replication.fetching import FetchService
from klamm.replication.hosted_partitions import HostedPartitions, PartitionHealth
from klamm.replication.isr_changes import maybe_shrink_isr
from klamm.replication.leader_end_point import Connect
from klamm.replication.leadership import Leadership, LeadershipChange
from klamm.replication.leadership_proof import LeadershipProof
from klamm.replication.log_dir_moves import LogDirMoves
from klamm.replication.offset_lookup import FoundOffset, look_up_offset, segment_offsets_before
from klamm.replication.partition import Partition
from klamm.replication.partition_reads import end_of_epoch
from klamm.replication.ports import FutureLogsPort, LogsPort, MetadataPort, PartitionRefused
from klamm.replication.purgatory import Purgatory
from klamm.replication.quota import ReplicationQuota, ReplicationQuotas
from klamm.replication.record_deletion import DeletionResult, RecordDeletion
from klamm.runtime.disk import Buffer
from klamm.runtime.workers import WorkerFailed
from klamm.runtime.world import World
from klamm.wire.messages import LeaderAndIsrRequest, LeaderAndIsrResponse, StopReplicaRequest, StopReplicaResponse
from klamm.wire.records import CorruptRecords

log = structlog.get_logger("replication")


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """The broker configs replication reads, by Kafka's names with underscores."""

    replica_lag_time_max_ms: int = 30_000
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_min_bytes: int = 1
    replica_fetch_max_bytes: int = 1_048_576
    replica_fetch_response_max_bytes: int = 10_485_760
    replica_fetch_backoff_ms: int = 1_000
    replica_socket_timeout_ms: int = 30_000
    num_replica_fetchers: int = 1
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    max_incremental_fetch_session_cache_slots: int = 1_000
    max_waiting_requests: int = 100_000
    """Produce and DeleteRecords requests, each, that wait for replicas; one more is answered as timed out."""


class ReplicaManager:
    """Create it, `start()` it, pass it the controller's and the clients' requests, `close()` it."""

    def __init__(
        self,
        world: World,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        logs: LogsPort,
        metadata: MetadataPort,
        send_alter_partition: SendAlterPartition,
        connect: Connect,
        settings: ReplicationSettings | None = None,
        *,
        quotas: ReplicationQuotas | None = None,
        future_logs: FutureLogsPort | None = None,
        on_corrupt: Callable[[TopicPartition, int], None] = lambda topic_partition, offset: None,
    ) -> None:
        """`broker_epoch()` is the czxid of our registration.

        Without `quotas`, nothing can be throttled but through `quotas` of this object. Without `future_logs`, replicas
        cannot move between log directories.
        """
        self.quotas = quotas = quotas or ReplicationQuotas.new(_now_ms)
        self._settings = settings = settings or ReplicationSettings()
        self._logs = logs
        self._alter_partition = AlterPartitionManager(broker_id, broker_epoch, send_alter_partition)
        limit, slices = settings.max_waiting_requests, world.request_slices
        self._produces: Purgatory[TopicPartition] = Purgatory(limit, slices)
        self._deletes: Purgatory[TopicPartition] = Purgatory(limit, slices)
        context = ReplicationContext(
            broker_id, metadata, self._alter_partition, self._produces, self._deletes, _now_ms, quotas.leader,
            settings.replica_lag_time_max_ms,
        )  # fmt: skip
        self.counts = context.counts
        self._hosted = HostedPartitions(context)
        self._hosted.on_offline = lambda partitions: self.on_leadership_change(
            LeadershipChange(offline=tuple(partitions))
        )
        self._fetchers = _make_fetchers(broker_id, broker_epoch, metadata, connect, settings, quotas.follower)
        self.on_leadership_change: Callable[[LeadershipChange], None] = lambda change: None
        """Called after every instruction of the controller, before it is answered, and when partitions went offline.

        It must not raise.
        """
        self._leadership = Leadership(
            broker_id,
            broker_epoch,
            self._hosted,
            logs,
            self._fetchers,
            lambda change: self.on_leadership_change(change),
            lambda partitions: self._fetches.on_leader_epochs_begun(partitions),
            world.request_slices,
        )
        self._produce = ProduceService(self._hosted, self._produces, self.counts, world.workers, world.request_slices)
        self._deletion = RecordDeletion(self._hosted, self._deletes, world.request_slices)
        self._moves = None
        if future_logs is not None:
            self._moves = LogDirMoves(
                self._hosted,
                future_logs,
                quotas.log_dir_moves,
                self._leadership.lock,
                settings.replica_fetch_max_bytes,
                world.request_slices,
            )
        self._workers = world.workers
        self._clock = world.clock
        rng = world.randomness.stream("fetch sessions")
        self._sessions = FetchSessions(rng, _now_ms, settings.max_incremental_fetch_session_cache_slots)
        self._fetches = FetchService(
            self._hosted,
            self._sessions,
            _now_ms,
            quotas.leader,
            workers=world.workers,
            slices=world.request_slices,
            on_corrupt=on_corrupt,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._checkpoints_run = False

    # ---- life

    def start(self) -> None:
        """Start the periodic task that proposes smaller ISRs."""
        self._run_every(self._settings.replica_lag_time_max_ms / 2000, self._shrink_isrs)
        if self._moves is not None:
            self._moves.start()

    def begin_shutdown(self) -> None:
        """Stop fetching partitions that become followers here from now on, because controlled shutdown began."""
        self._fetchers.refuse_new_partitions()

    async def close(self) -> None:
        """Stop fetching and all tasks; waiting requests end when the server closes their connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._moves is not None:
            await self._moves.close()
        await self._fetchers.close()
        await self._alter_partition.close()
        self._sessions.close()
        await self._workers.close()
        if self._checkpoints_run:
            await self._logs.checkpoint_high_watermarks()

    # ---- the controller's requests

    async def become_leader_or_follower(self, request: LeaderAndIsrRequest, version: int) -> LeaderAndIsrResponse:
        """Apply a LeaderAndIsr; the caller has checked that the sender may send one."""
        response = await self._leadership.become_leader_or_follower(request, version)
        if self._moves is not None:
            self._moves.on_replicas_changed()
        if not self._checkpoints_run and not response.error_code:
            self._checkpoints_run = True
            seconds = self._settings.replica_high_watermark_checkpoint_interval_ms / 1000
            self._run_every(seconds, self._logs.checkpoint_high_watermarks)
        return response

    async def stop_replicas(self, request: StopReplicaRequest, version: int) -> StopReplicaResponse:
        """Apply a StopReplica request and return an error code for each partition."""
        return await self._leadership.stop_replicas(request, version)

    def check_update_metadata(self, broker_epoch: int, controller_epoch: int) -> ErrorCode:
        """Check the epochs of an UpdateMetadata, and remember its controller epoch.

        Returns STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH or NONE.
        """
        return self._leadership.check_epochs(broker_epoch, controller_epoch)

    def on_live_brokers_changed(self) -> None:
        """Check again the high watermarks and waiting DeleteRecords requests, which do not wait for dead brokers."""
        for partition in self._hosted:
            partition.recheck_high_watermark()
        self._deletes.check_all()

    # ---- clients and followers

    async def append(
        self,
        acks: int,
        timeout_ms: int,
        records: dict[TopicPartition, Buffer],
        origin: Origin = Origin.CLIENT,
        *,
        on_appended: Callable[[], None] = lambda: None,
    ) -> dict[TopicPartition, AppendResult]:
        """Append one batch to each partition and wait as `acks` requires: with −1 until the in-sync replicas have it.

        Empties `records`, so that a waiting request keeps no batch in memory. Errors are in the results, by partition.
        `on_appended` is called when every batch is appended or refused: later batches may follow from then on.
        """
        return await self._produce.append(acks, timeout_ms, records, origin, on_appended)

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], timeout_ms: int
    ) -> dict[TopicPartition, DeletionResult]:
        """Delete the records before each offset (-1: the high watermark), and wait for the live replicas."""
        return await self._deletion.delete(offsets, timeout_ms)

    async def alter_log_dirs(self, directories: Mapping[TopicPartition, str]) -> dict[TopicPartition, ErrorCode]:
        """Begin to move each replica of this broker to its log directory."""
        assert self._moves is not None, "moves between log directories are not set up"
        return await self._moves.alter(directories)

    async def fetch(self, params: FetchParams, requested: FetchRequested) -> FetchAnswer:
        """Serve a Fetch of a consumer or a follower, waiting up to `params.max_wait_ms` for `params.min_bytes`."""
        return await self._fetches.fetch(params, requested)

    async def look_up_offset(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        *,
        replica_id: BrokerId = CONSUMER,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        current_leader_epoch: int = -1,
    ) -> FoundOffset:
        """Answer ListOffsets for one partition.

        See `offset_lookup`. Requests below version 5 get LEADER_NOT_AVAILABLE instead of OFFSET_NOT_AVAILABLE.
        """
        try:
            partition = self._hosted.find(topic_partition)
            return await look_up_offset(partition, timestamp, replica_id, isolation, current_leader_epoch)
        except PartitionRefused as refusal:
            return FoundOffset(refusal.code)
        except StorageFailed:
            return FoundOffset(ErrorCode.KAFKA_STORAGE_ERROR)
        except CorruptRecords as error:
            log.error(
                "corrupt records in a log segment: ListOffsets is answered with CORRUPT_MESSAGE",
                partition=str(topic_partition),
                why=str(error),
                action=REPLACE_REPLICA,
            )
            return FoundOffset(ErrorCode.CORRUPT_MESSAGE)
        except WorkerFailed as error:
            log.error(
                "worker process failed while searching for a timestamp: ListOffsets is answered with "
                "UNKNOWN_SERVER_ERROR",
                partition=str(topic_partition),
                why=str(error),
                action="Check the memory of this machine.",
            )
            return FoundOffset(ErrorCode.UNKNOWN_SERVER_ERROR)

    def check_crcs(self, *, is_on: bool) -> None:
        """Set whether records of closed segments are checked before they are sent (`klamm.fetch.check.crcs`)."""
        self._fetches.checks_crcs = is_on

    def segment_offsets_before(
        self, topic_partition: TopicPartition, timestamp: int, most: int, replica_id: BrokerId
    ) -> tuple[ErrorCode, list[int]]:
        """Answer ListOffsets version 0 for one partition.

        Returns its error, and at most `most` offsets of segments before the timestamp.
        """
        try:
            partition = self._hosted.find(topic_partition)
            return ErrorCode.NONE, segment_offsets_before(partition, timestamp, most, replica_id)
        except PartitionRefused as refusal:
            return refusal.code, []
        except StorageFailed:
            return ErrorCode.KAFKA_STORAGE_ERROR, []

    def end_of_epoch(
        self, topic_partition: TopicPartition, leader_epoch: int, current_leader_epoch: int = -1
    ) -> tuple[ErrorCode, EpochEnd]:
        """Answer OffsetForLeaderEpoch for one partition: its error, and the end offset of the requested epoch."""
        try:
            return ErrorCode.NONE, end_of_epoch(self._hosted.find(topic_partition), leader_epoch, current_leader_epoch)
        except PartitionRefused as refusal:
            return refusal.code, EpochEnd(-1, -1)

    def producers_of(self, topic_partition: TopicPartition) -> list[Producer]:
        """The active producers in the log of this broker's replica, leader or not. Raises PartitionRefused."""
        return list(self._hosted.find(topic_partition).hosted_log.producers.by_id.values())

    def start_verification(
        self, topic_partition: TopicPartition, producer_id: int, epoch: int, sequence: int
    ) -> Verification | None:
        """Return what the coordinator must confirm before the producer's transactional batch is appended (KIP-890).

        None where its transaction is open on the partition. Raises PartitionRefused where this broker does not lead it.
        """
        producers = self._hosted.find(topic_partition).leader_log.producers
        return producers.start_verification(producer_id, epoch, sequence, self._clock.now_ms())

    def prove_leadership(self, topic_partition: TopicPartition) -> LeadershipProof | None:
        """Begin to prove that no other broker leads the partition yet; None where this broker does not lead it."""
        partition = self._hosted.get(topic_partition)
        return self._fetches.proofs.begin(partition) if partition is not None and partition.is_leader else None

    # ---- facts

    def partition(self, topic_partition: TopicPartition) -> Partition | None:
        """The hosted partition; None where it is not hosted or offline."""
        return self._hosted.get(topic_partition)

    def partitions(self) -> Iterator[Partition]:
        """Return an iterator over the partitions that have a replica on this broker."""
        return iter(self._hosted)

    @property
    def offline_partitions(self) -> frozenset[TopicPartition]:
        """The partitions whose log directory has failed."""
        return self._hosted.offline

    async def partition_health(self, late_before_ms: int = 0) -> PartitionHealth:
        """Count the partitions by health, without blocking the loop for long.

        A transaction without a batch since `late_before_ms` is late.
        """
        health = PartitionHealth(late_before_ms)
        for count, partition in enumerate(list(self._hosted), 1):
            health.add(partition)
            if count % 1_000 == 0:
                await asyncio.sleep(0)
        return health

    @property
    def fetchers(self) -> FetcherManager:
        """The manager of the fetchers that follow leaders on other brokers."""
        return self._fetchers

    @property
    def fetch_sessions(self) -> FetchSessions:
        """The fetch sessions of followers and consumers."""
        return self._sessions

    # ---- failures

    def set_offline(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Mark partitions of a failed log directory as offline and stop fetching them."""
        partitions = list(topic_partitions)
        self._fetchers.remove(partitions)
        self._hosted.set_offline(partitions)
        for partition in self._hosted:
            partition.check_waiting_deletes()  # a future log in that directory delays them no longer

    # ---- background

    def _run_every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        """Start a background task that awaits `work` every `seconds`, also after it failed."""
        self._tasks.append(asyncio.get_running_loop().create_task(_repeat(seconds, work)))

    async def _shrink_isrs(self) -> None:
        """Propose to remove lagging members from the ISR of every partition led here."""
        for count, partition in enumerate(self._hosted, 1):
            maybe_shrink_isr(partition)
            partition.recheck_high_watermark()
            if count % 1_000 == 0:
                await asyncio.sleep(0)


def _make_fetchers(
    broker_id: BrokerId,
    broker_epoch: Callable[[], int],
    metadata: MetadataPort,
    connect: Connect,
    settings: ReplicationSettings,
    quota: ReplicationQuota,
) -> FetcherManager:
    """Return the manager of the fetchers, with their part of the settings."""
    fetch = FetchSettings(
        broker_id,
        settings.replica_fetch_wait_max_ms,
        settings.replica_fetch_min_bytes,
        settings.replica_fetch_response_max_bytes,
        settings.replica_fetch_max_bytes,
    )
    return FetcherManager(
        broker_id,
        broker_epoch,
        metadata,
        connect,
        fetch,
        quota,
        fetchers_per_leader=settings.num_replica_fetchers,
        backoff_ms=settings.replica_fetch_backoff_ms,
        socket_timeout_ms=settings.replica_socket_timeout_ms,
    )


async def _repeat(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    """Await `work` every `seconds`; an error is logged."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await work()
        except (KlammError, OSError) as error:
            log.error(
                "background task failed: it runs again after its interval",
                work=work.__qualname__,
                why=str(error),
                interval_s=seconds,
            )
        except Exception:  # without it, lagging replicas would stay in every ISR
            log.exception(
                "unexpected error in a background task: it runs again after its interval",
                work=work.__qualname__,
                interval_s=seconds,
                action="Report this as a bug in klamm, with the stack trace.",
            )


def _now_ms() -> float:
    """Return the time of the running event loop's clock in milliseconds."""
    return asyncio.get_running_loop().time() * 1000
