"""Read one partition from beginning to end."""

from collections.abc import Sequence
from typing import Final

from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.net.client import Connection, ConnectionLost
from klamm.runtime.world import World
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    MetadataRequest,
    MetadataRequestTopic,
)
from klamm.wire.records import batches, records

_FETCH_VERSION: Final = 11  # topics by name, leader epochs optional; every broker since 2.3 has it
_LIST_OFFSETS_VERSION: Final = 2
_METADATA_VERSION: Final = 8
_TIMEOUT_S: Final = 10.0
_EARLIEST: Final = -2
_MOST_BYTES: Final = 8 * 1024 * 1024


class CannotRead(KlammError):
    pass


async def read_values(world: World, bootstrap: Sequence[tuple[str, int]], partition: TopicPartition) -> list[bytes]:
    """The value of every record. Raises CannotRead."""
    host, port = await _leader(world, bootstrap, partition)
    connection = await Connection.open(world, host, port, "klamm-cli", _TIMEOUT_S)
    try:
        return await _read(connection, partition)
    finally:
        connection.close()


async def _leader(world: World, bootstrap: Sequence[tuple[str, int]], p: TopicPartition) -> tuple[str, int]:
    for host, port in bootstrap:
        try:
            connection = await Connection.open(world, host, port, "klamm-cli", _TIMEOUT_S)
        except ConnectionLost:
            continue
        try:
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=p.topic)], allow_auto_topic_creation=False)
            answer = await connection.request(ApiKey.METADATA, _METADATA_VERSION, asked, _TIMEOUT_S)
        finally:
            connection.close()
        leaders = {found.partition_index: found.leader_id for found in answer.topics[0].partitions}
        if p.partition not in leaders:
            raise CannotRead(f"There is no partition {p} on the cluster at {host}:{port}.")
        for broker in answer.brokers:
            if broker.node_id == leaders[p.partition]:
                return broker.host, broker.port
        raise CannotRead(f"{p} has no leader.")
    raise CannotRead(f"No broker answers at {', '.join(f'{h}:{port}' for h, port in bootstrap)}.")


async def _read(connection: Connection, p: TopicPartition) -> list[bytes]:
    asked = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[ListOffsetsTopic(p.topic, [ListOffsetsPartition(p.partition, -1, _EARLIEST)])],
    )
    answer = await connection.request(ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, asked, _TIMEOUT_S)
    first = answer.topics[0].partitions[0]
    _check(first.error_code, p)
    offset, values = first.offset, list[bytes]()
    while True:
        fetched = await connection.request(ApiKey.FETCH, _FETCH_VERSION, _fetch(p, offset), _TIMEOUT_S)
        found = fetched.responses[0].partitions[0]
        _check(found.error_code, p)
        content = found.records or b""
        for batch in batches(content):
            for record in records(content, batch):
                if record.offset >= offset and record.value is not None and not batch.is_control:
                    values.append(bytes(record.value))
            offset = batch.last_offset + 1
        if offset >= found.high_watermark:
            return values


def _fetch(p: TopicPartition, offset: int) -> FetchRequest:
    part = FetchPartition(partition=p.partition, fetch_offset=offset, partition_max_bytes=_MOST_BYTES)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=100,
        min_bytes=0,
        max_bytes=_MOST_BYTES,
        topics=[FetchTopic(topic=p.topic, partitions=[part])],
    )


def _check(code: int, p: TopicPartition) -> None:
    if code:
        raise CannotRead(f"Cannot read {p}: {ErrorCode(code).name}.")
