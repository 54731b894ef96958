"""What a script added to the coordinators' topics and to the topic `data`, decoded, one line for each record."""

from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from tests.differential.coordinators.names import DATA, Names, Place

from klamm.client.connection import Connection
from klamm.coordinator.topic_partitions import OFFSETS_TOPIC
from klamm.model.ids import TopicPartition
from klamm.wire import messages as m
from klamm.wire.api import ApiKey
from klamm.wire.records import BatchHeader, Record, batches, end_marker_of, records

_FETCH_VERSION: Final = 11
_LIST_OFFSETS_VERSION: Final = 5
_LATEST: Final = -1
_BYTES: Final = 1 << 20
_TIMEOUT_S: Final = 30.0
_GROUP_KEY: Final = 2


class Contents:
    def __init__(self, place: Place, names: Names) -> None:
        self._place = place
        self._names = names

    async def end(self, connection: Connection, partition: TopicPartition) -> int:
        """The offset at which the next record will be written."""
        topic = m.ListOffsetsTopic(partition.topic, [m.ListOffsetsPartition(partition.partition, -1, _LATEST)])
        request = m.ListOffsetsRequest(-1, 0, [topic])
        answer = await connection.request(ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, request, _TIMEOUT_S)
        return int(answer.topics[0].partitions[0].offset)

    async def lines(self, connection: Connection, partition: TopicPartition, offset: int) -> AsyncIterator[str]:
        """The script's records from the offset on. Those of one batch are sorted, since their order means nothing."""
        while True:
            part = m.FetchPartition(partition.partition, -1, offset, -1, -1, _BYTES)
            request = m.FetchRequest(
                replica_id=-1,
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=_BYTES,
                session_epoch=-1,
                topics=[m.FetchTopic(partition.topic, partitions=[part])],
            )
            answer = await connection.request(ApiKey.FETCH, _FETCH_VERSION, request, _TIMEOUT_S)
            found = answer.responses[0].partitions[0]
            assert not found.error_code, f"{partition}: {found.error_code}"
            content = bytes(found.records or b"")
            if not content:
                return
            for header in batches(content):
                for line in sorted(self._batch(partition.topic, content, header)):
                    yield line
                offset = header.next_offset

    def _batch(self, topic: str, content: bytes, header: BatchHeader) -> Iterator[str]:
        producer = ""
        if header.has_producer:
            if not self._names.knows_producer(header.producer_id):
                return
            flags = "transactional " * header.is_transactional
            producer = f" [{flags}{self._names.producer(header.producer_id)} {header.producer_epoch}"
            producer += f" {header.base_sequence}]"
        at = f"{header.base_offset}: " if topic == DATA else ""
        if header.is_control:
            marker = end_marker_of(content, header)
            yield f"{at}{'?' if marker is None else marker.type.name}{producer}"
            return
        for record in records(content, header):
            if topic == DATA:
                yield f"{at}{bytes(record.key or b'')!r} {bytes(record.value or b'')!r}{producer}"
            elif (text := self._coordinator_record(topic, record)) is not None:
                yield f"{text}{producer}"

    def _coordinator_record(self, topic: str, record: Record) -> str | None:
        """The record of a group or transaction; None where it is another script's."""
        key, value = bytes(record.key or b""), None if record.value is None else bytes(record.value)
        key_kind, value_kind = _kinds(topic, int.from_bytes(key[:2], "big"))
        name: Any = key_kind.decode(key, int.from_bytes(key[:2], "big"), 2)
        owner = name.transactional_id if topic != OFFSETS_TOPIC else name.group
        if owner not in self._place.known:
            return None
        if value is None:
            return f"{self._names.describe(name)} tombstone"
        version = int.from_bytes(value[:2], "big")
        return f"{self._names.describe(name)} v{version} {self._names.describe(value_kind.decode(value, version, 2))}"


def _kinds(topic: str, key_version: int) -> tuple[Any, Any]:
    """The messages of key and value."""
    if topic != OFFSETS_TOPIC:
        return m.TransactionLogKey, m.TransactionLogValue
    if key_version == _GROUP_KEY:
        return m.GroupMetadataKey, m.GroupMetadataValue
    return m.OffsetCommitKey, m.OffsetCommitValue
