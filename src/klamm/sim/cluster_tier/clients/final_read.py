"""The last reads: every partition from its beginning to its end, after one more record was written to it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from klamm.client.errors import RetriableError
from klamm.client.records import FetchLimits, produce_error_code, produce_request
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.runtime.world import World
from klamm.sim.cluster_tier.clients.consumer import Read, Reader
from klamm.sim.cluster_tier.clients.locator import open_client
from klamm.sim.cluster_tier.invariants.rest import FinalRead
from klamm.sim.cluster_tier.trace import Send, SendState
from klamm.wire.records import CorruptRecords
from klamm.wire.records.build import build_batch
from klamm.wire.records.record import NewRecord

_LIMITS: Final = FetchLimits(1 << 20, 0)
_COMMITTED: Final = FetchLimits(1 << 20, 0, read_committed=True)
_TRIES: Final = 10
_PAUSE_S: Final = 0.2
_PRODUCE_TIMEOUT_S: Final = 3.0


async def read_to_the_end(
    world: World, nodes: int, port: int, partitions: Sequence[TopicPartition], tell: Callable[[Send], None]
) -> dict[TopicPartition, FinalRead]:
    """Write a record with acks=all to each partition, then read each partition from its beginning."""
    reads: dict[TopicPartition, FinalRead] = {}
    async with open_client(world, "final", nodes, port) as client:
        reader = Reader(client)
        for p in partitions:
            read = reads[p] = FinalRead()
            send = Send("final", p, (b"final/%d" % len(reads),), -1, asyncio.get_running_loop().time())
            send.state = SendState.UNKNOWN
            tell(send)
            for _ in range(_TRIES):
                read.error = await _write_and_read(reader, p, send, read, world.clock.now_ms())
                if not read.error:
                    break
                reader.locator.forget(p)
                await asyncio.sleep(_PAUSE_S)
    return reads


async def read_compacted(world: World, nodes: int, port: int, partition: TopicPartition) -> FinalRead:
    """Read a partition from its beginning; `error` says why that fails."""
    read = FinalRead()
    async with open_client(world, "final compacted", nodes, port) as client:
        reader = Reader(client)
        for _ in range(_TRIES):
            try:
                await _read_all(reader, partition, read)
                await _read_committed(reader, partition, read)
            except (KlammError, CorruptRecords) as error:
                read.error, read.is_damaged = str(error), isinstance(error, CorruptRecords)
                await asyncio.sleep(_PAUSE_S)
            else:
                read.records = [record for record in read.records if record[0] not in read.control]
                read.error, read.at_s = "", asyncio.get_running_loop().time()
                break
    return read


async def _write_and_read(reader: Reader, p: TopicPartition, send: Send, read: FinalRead, now_ms: int) -> str:
    """Write to the partition and read it; return why that fails, empty if it works."""
    try:
        leader = await reader.locator.leader(p)
        batch = build_batch([NewRecord(value, None, now_ms) for value in send.values])
        answer = await reader.client.ask(leader.address, produce_request(p, batch, _PRODUCE_TIMEOUT_S))
        if code := produce_error_code(answer):
            return f"a record is refused: {ErrorCode(code).name}"
        await _read_all(reader, p, read)
        await _read_committed(reader, p, read)
        await _look_up_times(reader, p, read)
        read.fenced = {
            "older": await reader.probe(p, leader.epoch - 1),
            "newer": await reader.probe(p, leader.epoch + 1),
        }
        if leader.epoch == 0:
            del read.fenced["older"]
    except CorruptRecords as error:
        read.is_damaged = True
        return str(error)
    except KlammError as error:
        return str(error)
    return ""


async def _read_all(reader: Reader, p: TopicPartition, read: FinalRead) -> None:
    """Read the partition from its beginning to the high watermark. Raises KlammError."""
    read.records.clear()
    read.timestamps.clear()
    offset = read.log_start = await reader.start_of(p)
    async for found in _reads(reader, p, offset, _LIMITS):
        read.high_watermark = found.high_watermark
        read.records.extend(found.found.records)
        read.control |= found.found.control
        read.timestamps.extend(found.found.timestamps)


async def _read_committed(reader: Reader, p: TopicPartition, read: FinalRead) -> None:
    """Read the partition to its last stable offset, without records of aborted transactions. Raises KlammError."""
    read.committed.clear()
    async for found in _reads(reader, p, read.log_start, _COMMITTED):
        read.last_stable_offset = found.last_stable_offset
        read.committed.extend(found.found.visible)


async def _look_up_times(reader: Reader, p: TopicPartition, read: FinalRead) -> None:
    """Ask for the offsets of some times: of records, just after one, and after the last one. Raises KlammError."""
    times, count = read.timestamps, len(read.timestamps)
    wanted = {times[count // 3], times[count // 2] + 1, times[-1], max(times) + 1} if times else set[int]()
    read.offsets_by_time = {at_ms: await reader.offset_for(p, at_ms) for at_ms in sorted(wanted)}


async def _reads(reader: Reader, p: TopicPartition, offset: int, limits: FetchLimits) -> AsyncIterator[Read]:
    """Fetch from this offset on until nothing comes; yield what each Fetch returned.

    Raises KlammError, CorruptRecords.
    """
    while True:
        found = await reader.read(p, offset, limits)
        if found.error is ErrorCode.CORRUPT_MESSAGE:
            raise CorruptRecords(f"a Fetch at offset {offset} is answered {found.error.name}")
        if found.error:
            raise RetriableError(f"a Fetch at offset {offset} is answered {found.error.name}")
        yield found
        if found.found.next_offset <= offset:
            return
        offset = found.found.next_offset
