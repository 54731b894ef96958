"""Repairs damaged records: fetches them from another in-sync replica, as a consumer. Apache Kafka has no such task.

A follower asks its leader, a leader its in-sync followers: below the high watermark all of them have the same records.
What is fetched replaces the damaged records only when the new segment is whole; until then they stay as they are.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Final

import structlog

from klamm.log.errors import StorageFailed
from klamm.log.log import Log
from klamm.log.repair.checking import DamagedRange
from klamm.log.repair.segment_repair import CannotRepair, repair_segment
from klamm.log.segment import Segment
from klamm.model.errors import ErrorCode, KlammError, error_text
from klamm.model.ids import NO_BROKER, BrokerId, TopicPartition
from klamm.replication.leader_end_point import Connect, LeaderEndPoint
from klamm.replication.partition import Partition
from klamm.replication.ports import MetadataPort
from klamm.runtime.disk import Buffer
from klamm.runtime.workers import Workers
from klamm.runtime.world import World
from klamm.wire.messages import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from klamm.wire.records import batches, crc_is_valid

log = structlog.get_logger("replication")

FETCH_VERSION: Final = 11
"""Consumers of this version may read from a follower; it names topics by name."""
FETCH_BYTES: Final = 1024 * 1024
FETCH_WAIT_MS: Final = 500
FIRST_BACKOFF_S: Final = 1.0
MAX_BACKOFF_S: Final = 600.0
_REPORT: Final = "Nothing to do; if it happens again, report it with this stack trace as a bug in klamm."


class RecordRepair:
    """Repairs one log after the other; a log whose damage cannot be repaired now is tried again after a backoff."""

    def __init__(
        self,
        world: World,
        broker_id: BrokerId,
        find_partition: Callable[[TopicPartition], Partition | None],
        metadata: MetadataPort,
        connect: Connect,
        timeout_s: float,
    ) -> None:
        self._world = world
        self._broker_id = broker_id
        self._find_partition = find_partition
        self._metadata = metadata
        self._connect = connect
        self._timeout_s = timeout_s
        self._waiting: dict[TopicPartition, float] = {}
        """When to try each partition, on the loop's clock."""
        self._failures: dict[TopicPartition, int] = {}
        self._wakeup = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.repaired_ranges = 0

    def start(self) -> None:
        """Start the task that repairs logs in which damaged records were found."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="record repair")

    async def close(self) -> None:
        """Stop repairing; damage that is left is found again after the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def on_damage(self, damaged: Log) -> None:
        """Schedule the repair of the damaged records of this log."""
        if damaged.partition not in self._waiting:
            self._waiting[damaged.partition] = asyncio.get_running_loop().time()
            self._wakeup.set()

    async def _run(self) -> None:
        """Repair one log after the other, or wait for the next, until the task is cancelled."""
        workers = self._world.workers.pool(1)
        try:
            while True:
                self._wakeup.clear()
                now = asyncio.get_running_loop().time()
                due = next((tp for tp, at in self._waiting.items() if at <= now), None)
                if due is not None:
                    await self._repair_log(due, workers)
                    continue
                try:
                    async with asyncio.timeout_at(min(self._waiting.values(), default=None)):
                        await self._wakeup.wait()
                except TimeoutError:
                    continue
        finally:
            await workers.close()

    async def _repair_log(self, topic_partition: TopicPartition, workers: Workers) -> None:
        """Repair all damaged segments of a partition; where that fails, try again later."""
        partition = self._find_partition(topic_partition)
        if partition is None or partition.log is None or partition.log.has_failed:
            self._forget(topic_partition)
            return
        own_log = partition.log
        try:
            for segment in [segment for segment in own_log.segments if segment.damaged]:
                if segment.damaged:  # the log may have been truncated while another segment was repaired
                    await self._repair_segment(partition, own_log, segment, workers)
        except (KlammError, OSError, TimeoutError) as error:
            self._retry_later(topic_partition, error_text(error))
        except Exception:
            log.exception("unexpected error while damaged records are repaired: trying again later", action=_REPORT)
            self._retry_later(topic_partition, "unexpected error")
        else:
            self._forget(topic_partition)

    async def _repair_segment(self, partition: Partition, own_log: Log, segment: Segment, workers: Workers) -> None:
        """Repair one segment with the records of the first replica that has them. Raises KlammError, OSError."""
        damaged = segment.damaged
        if damaged[-1].end_offset > own_log.high_watermark:
            raise CannotRepair(
                f"the damaged records of {partition.topic_partition} are not below the high watermark yet; they are "
                "repaired once they are"
            )
        problems = []
        for source in _sources(partition, self._broker_id):
            end_point = LeaderEndPoint(
                self._broker_id, source, f"repair-{self._broker_id}", self._metadata, self._connect, self._timeout_s
            )
            try:
                fetch = partial(fetch_range, end_point, partition)
                await repair_segment(self._world, workers, own_log, segment, fetch)
            except StorageFailed:
                raise
            except (KlammError, OSError, TimeoutError) as error:
                problems.append(f"broker {source}: {error_text(error)}")
                continue
            finally:
                end_point.close()
            self._on_repaired(own_log, segment, damaged, source)
            return
        raise CannotRepair("; ".join(problems) or "no other replica is in the ISR")

    def _on_repaired(self, own_log: Log, segment: Segment, damaged: tuple[DamagedRange, ...], source: BrokerId) -> None:
        """Count and log the repaired ranges, and allow compaction of the log again."""
        self.repaired_ranges += len(damaged)
        own_log.cleaning.on_config_changed()
        for each in damaged:
            log.warning(
                "damaged records of a log were replaced by those of another replica",
                partition=str(own_log.partition),
                file=segment.log_path,
                offsets=f"{each.first_offset} to {each.end_offset - 1}",
                source=source,
            )

    def _forget(self, topic_partition: TopicPartition) -> None:
        """Remove the partition from those to repair."""
        self._waiting.pop(topic_partition, None)
        self._failures.pop(topic_partition, None)

    def _retry_later(self, topic_partition: TopicPartition, reason: str) -> None:
        """Schedule another attempt after a backoff that doubles."""
        failures = self._failures[topic_partition] = self._failures.get(topic_partition, 0) + 1
        pause_s = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(failures, 20))
        self._waiting[topic_partition] = asyncio.get_running_loop().time() + pause_s
        log.warning(
            "damaged records of a log cannot be replaced by another replica's now: trying again later",
            partition=str(topic_partition),
            reason=reason,
            retry_s=round(pause_s),
            action="Start the brokers that have the other replicas. Without any, the records are lost.",
        )


def _sources(partition: Partition, own_id: BrokerId) -> Iterator[BrokerId]:
    """The replicas to fetch from: for a follower the leader, for a leader the other ISR members."""
    if not partition.is_leader:
        if partition.leader_id not in (NO_BROKER, own_id):
            yield partition.leader_id
        return
    yield from (broker for broker in partition.isr_state.isr if broker != own_id)


async def fetch_range(end_point: LeaderEndPoint, partition: Partition, damage: DamagedRange) -> AsyncIterator[Buffer]:
    """Fetch the complete batches of this offset range from another replica, and check their checksums.

    Raises CannotRepair, and what a request raises.
    """
    offset = damage.first_offset
    while offset < damage.end_offset:
        content = await _fetch(end_point, partition, offset)
        begin = end = None
        for header in batches(content):
            if header.base_offset >= damage.end_offset:
                offset = damage.end_offset  # the other replica has nothing more in this range
                break
            if header.base_offset < offset or header.last_offset >= damage.end_offset:
                raise CannotRepair(
                    f"the fetched batch has offsets {header.base_offset} to {header.last_offset}, but only "
                    f"offsets within {offset} to {damage.end_offset - 1} of {partition.topic_partition} were requested"
                )
            if not crc_is_valid(content, header):
                raise CannotRepair(
                    f"the fetched batch of {partition.topic_partition} at offset {header.base_offset} does not match "
                    "its CRC either"
                )
            begin = header.position if begin is None else begin
            end, offset = header.position + header.size, header.next_offset
        if begin is not None:
            yield memoryview(content)[begin:end]
        elif offset < damage.end_offset:
            raise _no_records(partition, offset)


async def _fetch(end_point: LeaderEndPoint, partition: Partition, offset: int) -> Buffer:
    """Send one Fetch to the other replica and return its records. Raises CannotRepair, and what a request raises."""
    topic_partition = partition.topic_partition
    wanted = FetchPartition(
        partition=topic_partition.partition,
        current_leader_epoch=partition.leader_epoch,
        fetch_offset=offset,
        log_start_offset=-1,
        partition_max_bytes=FETCH_BYTES,
    )
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic_partition.topic, partitions=[wanted])],
    )
    response = await end_point.fetch(request, FETCH_VERSION)
    content = _records_of(response, topic_partition)
    if not content:
        raise _no_records(partition, offset)
    return content


def _no_records(partition: Partition, offset: int) -> CannotRepair:
    """Return the error for a replica that has no record at the offset of a damaged one."""
    return CannotRepair(
        f"the replica has no records of {partition.topic_partition} at offset {offset} below its high watermark"
    )


def _records_of(response: FetchResponse, topic_partition: TopicPartition) -> Buffer:
    """Return the partition's records in a Fetch response. Raises CannotRepair."""
    if response.error_code:
        raise CannotRepair(f"the Fetch for {topic_partition} was answered with {ErrorCode(response.error_code).name}")
    for topic in response.responses:
        for answer in topic.partitions:
            if (topic.topic, answer.partition_index) == topic_partition:
                if answer.error_code:
                    raise CannotRepair(
                        f"the Fetch for {topic_partition} was answered with {ErrorCode(answer.error_code).name}"
                    )
                records: Buffer = answer.records or b""
                return records
    raise CannotRepair(f"the Fetch response does not contain {topic_partition}")
