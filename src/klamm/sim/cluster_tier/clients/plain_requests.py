"""Single requests without retries, of new and old versions, and fetch sessions (KIP-227)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from klamm.client.asynchronous import AsyncClient
from klamm.client.errors import RequestRefused
from klamm.client.leaders import NO_EPOCH
from klamm.client.records import ALL_IN_SYNC, produce_error_code, produce_request
from klamm.client.versions import Request
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.compression import Codec
from klamm.wire.messages import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from klamm.wire.records.any_format import records_of_any_format
from klamm.wire.records.batch import NO_TIMESTAMP, batches
from klamm.wire.records.build import build_batch
from klamm.wire.records.legacy import Message, encode_messages
from klamm.wire.records.record import NewRecord

_BY_NAME: Final = 12
_SESSIONS_SINCE: Final = 7
_MAX_BYTES: Final = 1 << 20
_LATEST: Final = -1
_MAX_OFFSETS: Final = 100
_FINAL_EPOCH: Final = -1
_PRODUCE_VERSION: Final = {0: 1, 1: 2}
"""By message format: the newest version whose clients send it."""


class Fetched(NamedTuple):
    """A partition in the answer to a Fetch."""

    error: ErrorCode
    values: list[bytes]
    high_watermark: int
    log_start: int


class FetchSession:
    """A session of a consumer at one broker; `id` is 0 where the broker has none for it."""

    def __init__(self, client: AsyncClient, broker: Address, leader_epoch: int = NO_EPOCH) -> None:
        self._leader_epoch = leader_epoch
        self._client = client
        self._broker = broker
        self._positions: dict[TopicPartition, int] = {}
        self._epoch = 0
        self.id = 0

    def end(self) -> None:
        """Let the next fetch end the session."""
        self._epoch = _FINAL_EPOCH

    def pretend(self, session_id: int, epoch: int) -> None:
        """Let the next fetch name this session and epoch, whatever the broker has."""
        self.id, self._epoch = session_id, epoch

    @property
    def epoch(self) -> int:
        """The epoch of the next fetch."""
        return self._epoch

    async def fetch(
        self,
        positions: Mapping[TopicPartition, int],
        wait_ms: int = 0,
        min_bytes: int = 1,
        forgotten: Sequence[TopicPartition] = (),
        max_bytes: int = _MAX_BYTES,
    ) -> dict[TopicPartition, Fetched]:
        """Fetch in the session, and return what changed. Raises KlammError."""
        message = _fetch_message(positions, wait_ms, min_bytes, self._leader_epoch, max_bytes)
        message.session_id, message.session_epoch = self.id, self._epoch
        message.forgotten_topics_data = [ForgottenTopic(topic=p.topic, partitions=(p.partition,)) for p in forgotten]
        self._positions.update(positions)
        if self._epoch >= 0:
            self._epoch += 1
        request = Request(ApiKey.FETCH, message, oldest=_SESSIONS_SINCE, newest=_BY_NAME)
        answer = await self._client.ask(self._broker, request)
        if answer.error_code:
            raise RequestRefused(subject="a fetch in a session", code=ErrorCode(answer.error_code))
        self.id = answer.session_id
        found = _fetched(answer, self._positions)
        for p, data in found.items():
            self._positions[p] = self._positions.get(p, 0) + len(data.values)
        return found


async def fetch_once(
    client: AsyncClient,
    broker: Address,
    p: TopicPartition,
    offset: int,
    wait_ms: int,
    leader_epoch: int = NO_EPOCH,
    newest: int = _BY_NAME,
    min_bytes: int = 1,
) -> Fetched:
    """Fetch from one partition, in a version up to `newest`. Raises KlammError."""
    request = Request(ApiKey.FETCH, _fetch_message({p: offset}, wait_ms, min_bytes, leader_epoch), newest=newest)
    return _fetched(await client.ask(broker, request), {p: offset})[p]


async def read_values(
    client: AsyncClient, broker: Address, p: TopicPartition, offset: int, newest: int = _BY_NAME
) -> list[bytes]:
    """Fetch from this offset on until nothing comes, in a version up to `newest`. Raises KlammError."""
    values: list[bytes] = []
    while found := (await fetch_once(client, broker, p, offset + len(values), 0, newest=newest)).values:
        values.extend(found)
    return values


def _fetch_message(
    positions: Mapping[TopicPartition, int],
    wait_ms: int,
    min_bytes: int = 1,
    leader_epoch: int = NO_EPOCH,
    max_bytes: int = _MAX_BYTES,
) -> FetchRequest:
    """A Fetch of these partitions."""
    by_topic: defaultdict[str, list[FetchPartition]] = defaultdict(list)
    for (topic, number), offset in positions.items():
        wanted = FetchPartition(number, leader_epoch, offset, partition_max_bytes=_MAX_BYTES)
        by_topic[topic].append(wanted)
    topics = [FetchTopic(topic=topic, partitions=partitions) for topic, partitions in by_topic.items()]
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=topics)


def _fetched(answer: Any, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, Fetched]:
    """The partitions in the answer to a Fetch; records before the requested offset are left out."""
    found: dict[TopicPartition, Fetched] = {}
    for topic in answer.responses:
        for data in topic.partitions:
            p = TopicPartition(topic.topic, data.partition_index)
            content, offset = data.records or b"", positions.get(p, 0)
            values = [
                record.value or b""
                for header in batches(content)
                for record in records_of_any_format(content, header)
                if record.offset >= offset
            ]
            found[p] = Fetched(ErrorCode(data.error_code), values, data.high_watermark, data.log_start_offset)
    return found


async def produce(
    client: AsyncClient, broker: Address, p: TopicPartition, record: NewRecord, timeout_ms: int
) -> ErrorCode:
    """Write a record with acks=all, and return the answer. Raises KlammError."""
    return await produce_batch(client, broker, p, build_batch([record]), timeout_ms)


async def produce_batch(
    client: AsyncClient, broker: Address, p: TopicPartition, batch: bytes, timeout_ms: int, acks: int = ALL_IN_SYNC
) -> ErrorCode:
    """Write a batch, and return the answer. Raises KlammError."""
    return ErrorCode(produce_error_code(await client.ask(broker, produce_request(p, batch, timeout_ms / 1000, acks))))


async def produce_message(
    client: AsyncClient, broker: Address, p: TopicPartition, record: NewRecord, magic: int
) -> ErrorCode:
    """Write a message of format 0 or 1 as old clients do, and return the answer. Raises KlammError."""
    message = Message(0, record.timestamp if magic else NO_TIMESTAMP, None, record.value, magic=magic)
    content = encode_messages([message], magic, Codec.NONE)
    request = produce_request(p, content, 1.0)._replace(oldest=0, newest=_PRODUCE_VERSION[magic])
    return ErrorCode(produce_error_code(await client.ask(broker, request)))


async def delete_before(
    client: AsyncClient, broker: Address, p: TopicPartition, offset: int, timeout_ms: int
) -> tuple[ErrorCode, int]:
    """Delete the records before an offset; return error and low watermark. Raises KlammError."""
    topics = [DeleteRecordsTopic(p.topic, [DeleteRecordsPartition(p.partition, offset)])]
    request = Request(ApiKey.DELETE_RECORDS, DeleteRecordsRequest(topics, timeout_ms))
    found = (await client.ask(broker, request, timeout_ms / 1000 + 1)).topics[0].partitions[0]
    return ErrorCode(found.error_code), found.low_watermark


async def old_style_offsets(
    client: AsyncClient, broker: Address, p: TopicPartition
) -> tuple[ErrorCode, tuple[int, ...]]:
    """Error and offsets that ListOffsets of version 0 answers for the newest time. Raises KlammError."""
    wanted = ListOffsetsPartition(partition_index=p.partition, timestamp=_LATEST, max_num_offsets=_MAX_OFFSETS)
    message = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(p.topic, [wanted])])
    found = (await client.ask(broker, Request(ApiKey.LIST_OFFSETS, message, newest=0))).topics[0].partitions[0]
    return ErrorCode(found.error_code), tuple(found.old_style_offsets)
