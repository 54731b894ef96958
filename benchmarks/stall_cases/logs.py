"""Cases with large logs: truncation, look-ups, compaction, flushes, cold reads."""

import asyncio
import os
import random
import socket
import struct
import threading
from typing import Any, Final, cast

import numpy as np
from tests.support.replica_cluster import P0, TOPIC_ID, ReplicaCluster

from klamm.log.cleaner.cleaner import LogCleaner
from klamm.log.file_slice import FileSlice
from klamm.log.log import Log
from klamm.log.settings import CleanerSettings
from klamm.net.client_connection import ClientConnection
from klamm.net.response_writer import Part
from klamm.net.server import EndsWithClient, Server, ServerLimits
from klamm.replication.fetch_data import FetchParams, FetchPartition
from klamm.replication.fetch_sessions import FetchRequested
from klamm.runtime.workers import ProcessWorkers
from klamm.wire.records import NewRecord, build_batch

BATCHES_AT_ONCE: Final = 20_000
PRODUCERS: Final = 20
PRODUCED: Final = 200
COLD_FETCHES: Final = 20


def the_log(cluster: ReplicaCluster) -> Log:
    """The log of the partition that the cases use."""
    return cast(Log, cluster.log(1, P0))


async def fill_with_tiny_batches(log: Log, count: int) -> None:
    """Append batches of one empty record, all with the same timestamp."""
    one = build_batch([NewRecord(b"", None, 1_000)])
    for first in range(0, count, BATCHES_AT_ONCE):
        size = min(BATCHES_AT_ONCE, count - first)
        content = np.frombuffer(one * size, dtype=np.uint8).reshape(size, len(one)).copy()
        content[:, :8] = np.arange(first, first + size, dtype=">i8").view(np.uint8).reshape(size, 8)
        await asyncio.to_thread(log.append_as_follower, content.tobytes())
    log.update_high_watermark(count // 2)


async def truncate(cluster: ReplicaCluster, count: int) -> str:
    log = the_log(cluster)
    before = log.end_offset
    log.truncate_to(count // 2)
    while log.is_restoring_producers:  # noqa: ASYNC110 - nothing tells when a thread has restored the producers
        await asyncio.sleep(0.01)
    found = await log.offset_for_timestamp(1_000)
    return f"{before:,} to {log.end_offset:,}, first at its timestamp: {found and found.offset}"


async def fill_for_compaction(log: Log, mib: int) -> None:
    """Append batches of 16 KiB whose keys come again and again."""
    log.update_config(log.config.parse({"segment.bytes": str(256 << 20), "min.cleanable.dirty.ratio": "0"}))
    draw = random.Random(1)
    batches = [
        build_batch(
            [NewRecord(draw.randbytes(500) * 2, b"key-%06d" % draw.randrange(100_000), 1_000) for _ in range(16)]
        )
        for _ in range(2_000)
    ]

    def fill() -> None:
        for _ in range(mib << 20 >> 14):
            log.append_as_leader(draw.choice(batches), 0)
        log.update_high_watermark(log.end_offset)
        log.roll()
        log.flush_now()

    await asyncio.to_thread(fill)


async def compact(cluster: ReplicaCluster) -> str:
    log = the_log(cluster)
    log.update_config(log.config.parse({"cleanup.policy": "compact", "segment.bytes": str(256 << 20)}))
    before = log.size
    workers = ProcessWorkers(1)
    cleaner = LogCleaner(cluster.world, cluster.logs[1].manager, CleanerSettings())
    while await cleaner.clean_next(workers):
        pass
    await workers.close()
    return f"{before / 1e6:,.0f} MB, {log.size / 1e6:,.0f} MB stay"


async def produce_with_flush(cluster: ReplicaCluster) -> str:
    """Several producers; each request waits for the flush that `flush.messages=1` requires."""
    log = the_log(cluster)
    log.update_config(log.config.parse({"flush.messages": "1"}))
    batch = build_batch([NewRecord(bytes(1_000), None, 0)])

    async def run_producer() -> None:
        for _ in range(PRODUCED):
            result = await cluster.brokers[1].append(1, 60_000, {P0: batch})
            assert not result[P0].error

    await asyncio.gather(*(run_producer() for _ in range(PRODUCERS)))
    return f"{PRODUCERS * PRODUCED:,} requests"


async def fill_closed_segments(log: Log, mib: int) -> None:
    """Append records in segments of 64 MiB, and drop them from the page cache."""
    log.update_config(log.config.parse({"segment.bytes": str(64 << 20)}))
    batch = build_batch([NewRecord(os.urandom(100_000), None, 0)])

    def fill() -> None:
        for _ in range((mib << 20) // len(batch)):
            log.append_as_leader(batch, 0)
        log.update_high_watermark(log.end_offset)
        log.roll()
        log.flush_now()
        for segment in log.segments:
            for index in (segment.offset_index, segment.time_index):
                index.release()
            for path in segment.paths():
                if os.path.exists(path):
                    _evict(path)

    await asyncio.to_thread(fill)


def _evict(path: str) -> None:
    """Drop the file's pages from the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


async def fetch_cold(cluster: ReplicaCluster, fetch_mib: int) -> str:
    """A client fetches through a real server, at offsets all over the log, and reads everything."""
    log = the_log(cluster)
    offsets = [log.end_offset * n // COLD_FETCHES for n in range(COLD_FETCHES)]

    async def answer(frame: bytes) -> list[Part]:
        wanted = FetchPartition(P0.topic, TOPIC_ID, P0.partition, struct.unpack(">q", frame)[0], fetch_mib << 20)
        found = await cluster.brokers[1].fetch(FetchParams(max_bytes=fetch_mib << 20), FetchRequested([wanted]))
        ((_, data),) = found.partitions
        assert isinstance(data.records, FileSlice), data
        return [struct.pack(">i", len(data.records)), data.records]

    def handle(frame: bytes, _connection: ClientConnection) -> EndsWithClient:
        return EndsWithClient(answer(frame))

    server = Server(cluster.world.network, ServerLimits())
    port = await server.bind("PLAINTEXT", "127.0.0.1", 0)
    await server.start(handle)
    received = await _in_daemon(_read_all, port, offsets)
    await server.close()
    return f"{len(offsets)} fetches, {received >> 20:,} MiB"


def _read_all(port: int, offsets: list[int]) -> int:
    """Fetch at each offset; the bytes that came."""
    total = 0
    buffer = bytearray(1 << 20)
    with socket.create_connection(("127.0.0.1", port)) as client:
        for offset in offsets:
            client.sendall(struct.pack(">iq", 8, offset))
            (left,) = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))
            total += left
            while left:
                left -= client.recv_into(buffer, min(left, len(buffer)))
    return total


async def _in_daemon(call: Any, *arguments: Any) -> Any:
    """Run the call in a thread of its own, so that the pool of the node's threads is left alone."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def run() -> None:
        result = call(*arguments)
        loop.call_soon_threadsafe(done.set_result, result)

    threading.Thread(target=run, daemon=True).start()
    return await done
