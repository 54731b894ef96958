"""Converts what a fetch answers to a format of records that its client knows. Source: KafkaApis.scala, KIP-31, KIP-283.

The work is done in worker processes, on a bounded part of each partition: the client fetches the rest next.
"""

from typing import Final

import structlog

from klamm.log.errors import OffsetOutOfRange, SliceLost, StorageFailed
from klamm.log.file_slice import FileSlice, Records
from klamm.log.log import Log
from klamm.model.errors import ErrorCode
from klamm.replication.fetch_data import FetchData, FetchParams
from klamm.replication.fetch_sessions import FetchAnswer
from klamm.replication.fetch_waiter import CachedPartition
from klamm.replication.hosted_partitions import HostedPartitions
from klamm.runtime.workers import WorkerFailed, Workers
from klamm.wire.records import CorruptRecords
from klamm.wire.records.batch import MAGIC, PREFIX_BYTES, entry_size
from klamm.wire.records.down_conversion import down_convert

log = structlog.get_logger("replication")

REQUEST_BYTES: Final = 16 * 1024 * 1024
"""What the partitions of a response may have together; the first batch of each may exceed its share."""
MIN_PARTITION_BYTES: Final = 64 * 1024
_MAX_READS: Final = 100
"""How many times records are read on where those before are all left out."""


class FetchConversion:
    """Converts the records of responses."""

    def __init__(self, hosted: HostedPartitions, workers: Workers) -> None:
        self._hosted = hosted
        self._workers = workers

    async def convert(self, answer: FetchAnswer, params: FetchParams) -> FetchAnswer:
        """The answer in the client's format; partitions that cannot be converted have an error in it."""
        if params.magic >= MAGIC and params.knows_zstd:
            return answer
        share = max(MIN_PARTITION_BYTES, REQUEST_BYTES // max(1, len(answer.partitions)))
        partitions = []
        for cached, data in answer.partitions:
            partitions.append((cached, await self._convert_partition(cached, data, params, share)))
        return answer._replace(partitions=partitions)

    async def _convert_partition(
        self, cached: CachedPartition, data: FetchData, params: FetchParams, share: int
    ) -> FetchData:
        """The data of one partition in the client's format."""
        partition = None if cached.topic_partition is None else self._hosted.get(cached.topic_partition)
        own_log = None if partition is None else partition.log
        if data.error or own_log is None:
            return data
        if own_log.config.compression_type == "zstd" and not params.knows_zstd:
            return FetchData(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if params.magic >= MAGIC:
            return data
        if not params.is_follower and not own_log.config.message_downconversion_enable:
            return FetchData(ErrorCode.UNSUPPORTED_VERSION)
        try:
            return await self._converted(own_log, cached, data, params.magic, share)
        except SliceLost as lost:
            log.warning(
                "records to convert for an old client were truncated or deleted before they were read: the client "
                "fetches again",
                partition=str(cached.topic_partition),
                why=str(lost),
            )
            return FetchData(ErrorCode.KAFKA_STORAGE_ERROR)
        except (StorageFailed, OffsetOutOfRange):
            return FetchData(ErrorCode.KAFKA_STORAGE_ERROR)
        except CorruptRecords as error:
            log.error(
                "corrupt records cannot be converted for an old client: the client gets CORRUPT_MESSAGE",
                partition=str(cached.topic_partition),
                why=str(error),
            )
            return FetchData(ErrorCode.CORRUPT_MESSAGE)
        except WorkerFailed as error:
            log.error(
                "worker process failed while converting records: the consumer gets UNKNOWN_SERVER_ERROR",
                partition=str(cached.topic_partition),
                why=str(error),
                action="Check the memory of this machine.",
            )
            return FetchData(ErrorCode.UNKNOWN_SERVER_ERROR)

    async def _converted(
        self, own_log: Log, cached: CachedPartition, data: FetchData, magic: int, share: int
    ) -> FetchData:
        """Convert the records to this format.

        Where the conversion leaves all of them out, the records that follow are converted.
        """
        records, offset = data.records, cached.request.fetch_offset
        for _ in range(_MAX_READS):
            if not len(records):
                break
            content = await _read_some(records, share)
            converted = await self._workers.run(down_convert, content, magic, offset, share)
            if converted.content:
                return data._replace(records=converted.content, settled=False)
            if converted.has_zstd:
                return FetchData(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            if converted.problem is not None:
                raise CorruptRecords(converted.problem)
            if converted.next_offset <= offset:
                break
            offset = converted.next_offset
            if offset >= data.high_watermark:
                break
            records = own_log.slice(offset, share, data.high_watermark, True).records
        return data._replace(records=b"")


async def _read_some(records: Records, share: int) -> bytes:
    """The first bytes of the records: as many as the share, and at least the first batch. Raises SliceLost."""
    if not isinstance(records, FileSlice):
        return bytes(records)
    content = await records.read(0, share)
    needed = entry_size(content) if len(content) >= PREFIX_BYTES else 0
    if needed > len(content):
        content = await records.read(0, needed)
    return bytes(content)
