"""OffsetCommit, OffsetFetch, OffsetDelete. Source: KafkaApis.scala, GroupCoordinatorAdapter.scala (3.9).

Version 0 of the first two keeps offsets in ZooKeeper, where consumers before 0.9 kept them, and knows no groups.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from klamm.broker.by_topic import group_by_topic
from klamm.broker.dispatch import Offered, Request
from klamm.broker.metadata_cache import MetadataCache
from klamm.coordinator.committed_offsets import Offset
from klamm.coordinator.coordinator import GroupCoordinator
from klamm.coordinator.handlers.offsets import (
    NOTHING_COMMITTED,
    CommitRequest,
    Errors,
    FetchedOffset,
    is_metadata_too_large,
)
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.runtime.clock import Clock
from klamm.runtime.time_slices import PIECE, Slices
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from klamm.zk.errors import ZkError
from klamm.zk.hosts import WrongPath
from klamm.zk.znodes import MalformedZnode

OFFSET_COMMIT: Final = Offered(ApiKey.OFFSET_COMMIT, 0, 9)
OFFSET_FETCH: Final = Offered(ApiKey.OFFSET_FETCH, 0, 9)
OFFSET_DELETE: Final = Offered(ApiKey.OFFSET_DELETE, 0, 0)

_IN_ZOOKEEPER: Final = 0
_TELLS_GROUP_ERROR: Final = 2
_SEVERAL_GROUPS: Final = 8
_NO_TIMESTAMP: Final = -1
_NO_RETENTION: Final = -1
_LAST_TIMESTAMP: Final = 2**63 - 1

Fetched = dict[TopicPartition, FetchedOffset]
Requested = TypeVar("Requested")
_Topic = OffsetFetchRequestTopic | OffsetFetchRequestTopics


class ZooKeeperOffsets(Protocol):
    """Where consumers before 0.9 kept offsets; raises ZkError."""

    async def write_consumer_offset(self, group_id: str, partition: TopicPartition, offset: int) -> None:
        """Write the offset to the group's znode of the partition. Raises ZkError."""

    async def read_consumer_offset(self, group_id: str, partition: TopicPartition) -> int | None:
        """Return the offset in the group's znode of the partition; None where it has none."""


class GroupOffsetsApis:
    def __init__(
        self,
        coordinator: GroupCoordinator,
        cache: MetadataCache,
        clock: Clock,
        zookeeper: Callable[[], ZooKeeperOffsets],
        *,
        metadata_max_bytes: int,
        allows_static: bool,
    ) -> None:
        """`allows_static`: whether all brokers of this inter.broker.protocol.version keep instance ids."""
        self._coordinator = coordinator
        self._cache = cache
        self._clock = clock
        self._zookeeper = zookeeper
        self._metadata_max_bytes = metadata_max_bytes
        self._allows_static = allows_static

    # ---- commit

    async def commit(self, request: Request, message: OffsetCommitRequest) -> OffsetCommitResponse:
        """Answer OffsetCommit: version 0 commits to ZooKeeper, later versions to `__consumer_offsets`.

        Unknown partitions get UNKNOWN_TOPIC_OR_PARTITION.
        """
        slices = request.slices
        requested = await slices.dict_of(
            (TopicPartition(t.name, p.partition_index), p) for t in message.topics for p in t.partitions
        )
        errors: Errors = dict.fromkeys(requested, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        known = dict(filter(None, await slices.list_of(map(self._known, requested.items()))))
        if message.group_instance_id is not None and not self._allows_static:
            errors = dict.fromkeys(requested, ErrorCode.UNSUPPORTED_VERSION)
        elif known and request.version == _IN_ZOOKEEPER:
            for partition, committed in known.items():
                errors[partition] = await self._commit_to_zookeeper(message.group_id, partition, committed)
        elif known:
            errors |= await self._coordinator.commit_offsets(await self._commit_request(message, known, slices))
        results = ((p.topic, OffsetCommitResponsePartition(p.partition, error)) for p, error in errors.items())
        topics = await group_by_topic(results, slices)
        for done in (requested, known, errors):
            await slices.clear(done)
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(*topic) for topic in topics.items()])

    def _known(self, entry: tuple[TopicPartition, Requested]) -> tuple[TopicPartition, Requested] | None:
        """Return the partition and what is requested for it; None where the metadata cache does not have it."""
        return entry if self._cache.contains(entry[0]) else None

    async def _commit_request(
        self, message: OffsetCommitRequest, known: dict[TopicPartition, OffsetCommitRequestPartition], slices: Slices
    ) -> CommitRequest:
        """Return the commit of the `known` partitions for the coordinator.

        Commit and expiry times are absolute, in ms.
        """
        now_ms = self._clock.now_ms()
        retention_ms = message.retention_time_ms
        expires = None if retention_ms == _NO_RETENTION else min(now_ms + retention_ms, _LAST_TIMESTAMP)
        offsets = await slices.dict_of(
            (
                partition,
                Offset(
                    requested.committed_offset,
                    requested.committed_leader_epoch,
                    requested.committed_metadata or "",
                    now_ms if requested.commit_timestamp == _NO_TIMESTAMP else requested.commit_timestamp,
                    expires,
                ),
            )
            for partition, requested in known.items()
        )
        generation = message.generation_id_or_member_epoch
        return CommitRequest(message.group_id, offsets, message.member_id, message.group_instance_id, generation)

    async def _commit_to_zookeeper(
        self, group_id: str, partition: TopicPartition, requested: OffsetCommitRequestPartition
    ) -> ErrorCode:
        """Write one offset to ZooKeeper, as version 0 of OffsetCommit does, and return its error."""
        if is_metadata_too_large(requested.committed_metadata or "", self._metadata_max_bytes):
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        try:
            await self._zookeeper().write_consumer_offset(group_id, partition, requested.committed_offset)
        except (ZkError, WrongPath):  # the group id may contain what no znode name may
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE

    # ---- fetch

    async def fetch(self, request: Request, message: OffsetFetchRequest) -> OffsetFetchResponse:
        """Answer OffsetFetch: the committed offsets of one group, or from version 8 of several.

        Version 0 reads from ZooKeeper.
        """
        if request.version >= _SEVERAL_GROUPS:
            errors = await self._coordinator.confirm_coordinator([group.group_id for group in message.groups])
            return OffsetFetchResponse(
                groups=[await self._fetch_group(request, message, group, errors) for group in message.groups]
            )
        slices = request.slices
        partitions = await _partitions_of(message.topics, slices)
        if request.version == _IN_ZOOKEEPER:
            fetched = await self._fetch_from_zookeeper(message.group_id, partitions or [])
            return await _one_group(ErrorCode.NONE, fetched, slices)
        fetched = {}
        error = (await self._coordinator.confirm_coordinator([message.group_id]))[message.group_id]
        if not error:
            error, fetched = await self._fetch(message.group_id, partitions, message.require_stable, slices)
        if error and request.version < _TELLS_GROUP_ERROR:
            fetched = dict.fromkeys(partitions or [], FetchedOffset(error=error))
        return await _one_group(error, fetched, slices)

    async def _fetch_group(
        self,
        request: Request,
        message: OffsetFetchRequest,
        requested: OffsetFetchRequestGroup,
        errors: Mapping[str, ErrorCode],
    ) -> OffsetFetchResponseGroup:
        """Return the committed offsets of one group in the form of the response; without topics, those of all."""
        if error := errors[requested.group_id]:
            return OffsetFetchResponseGroup(requested.group_id, [], error)
        slices = request.slices
        partitions = await _partitions_of(requested.topics, slices)
        error, fetched = await self._fetch(requested.group_id, partitions, message.require_stable, slices)
        results = ((p.topic, OffsetFetchResponsePartitions(*_fields(p, found))) for p, found in fetched.items())
        topics = await group_by_topic(results, slices)
        await slices.clear(fetched)
        described = [OffsetFetchResponseTopics(*topic) for topic in topics.items()]
        return OffsetFetchResponseGroup(requested.group_id, described, error)

    async def _fetch(
        self, group_id: str, partitions: Sequence[TopicPartition] | None, require_stable: bool, slices: Slices
    ) -> tuple[ErrorCode, Fetched]:
        """The group's error and its committed offsets, None for all; many are looked up in time slices."""
        wants_all = partitions is None
        if partitions is None:
            error, partitions = self._coordinator.committed_partitions(group_id)
            if error:
                return error, {}
        if len(partitions) <= PIECE:
            return self._coordinator.fetch_offsets(group_id, partitions, require_stable=require_stable)
        fetched: Fetched = {}
        async for piece in slices.over(partitions):
            error, found = self._coordinator.fetch_offsets(group_id, piece, require_stable=require_stable)
            if error:
                return error, {}
            if wants_all:  # an offset that was removed meanwhile is not among all
                found = {p: offset for p, offset in found.items() if offset != NOTHING_COMMITTED}
            fetched |= found
        return ErrorCode.NONE, fetched

    async def _fetch_from_zookeeper(self, group_id: str, partitions: Iterable[TopicPartition]) -> Fetched:
        """Read committed offsets from ZooKeeper, for version 0 of OffsetFetch.

        A partition that is unknown or has no offset gets UNKNOWN_TOPIC_OR_PARTITION.
        """
        fetched: Fetched = {}
        for partition in partitions:
            found: int | None = None
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if self._cache.contains(partition):
                try:
                    found = await self._zookeeper().read_consumer_offset(group_id, partition)
                except (ZkError, MalformedZnode, WrongPath):
                    error = ErrorCode.UNKNOWN_SERVER_ERROR
            fetched[partition] = FetchedOffset(error=error) if found is None else FetchedOffset(Offset(found))
        return fetched

    # ---- delete

    async def delete(self, request: Request, message: OffsetDeleteRequest) -> OffsetDeleteResponse:
        """Answer OffsetDelete: delete the group's committed offsets of known partitions."""
        slices = request.slices
        requested = await slices.list_of(
            TopicPartition(t.name, p.partition_index) for t in message.topics for p in t.partitions
        )
        errors: Errors = dict.fromkeys(requested, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        existing = await slices.list_of(partition if self._cache.contains(partition) else None for partition in errors)
        known = list(filter(None, existing))
        error, deleted = await self._delete(message.group_id, known, slices)
        if error:
            return OffsetDeleteResponse(error_code=error)
        errors |= deleted
        results = ((p.topic, OffsetDeleteResponsePartition(p.partition, error)) for p, error in errors.items())
        topics = await group_by_topic(results, slices)
        return OffsetDeleteResponse(topics=[OffsetDeleteResponseTopic(*topic) for topic in topics.items()])

    async def _delete(
        self, group_id: str, partitions: Sequence[TopicPartition], slices: Slices
    ) -> tuple[ErrorCode, Errors]:
        """Delete the group's offsets, those of many partitions in time slices; returns its error and theirs.

        A group without members is removed with its last offset: the partitions after that one have none to delete.
        """
        if len(partitions) <= PIECE:
            return await self._coordinator.delete_offsets(group_id, partitions)
        errors: Errors = {}
        async for piece in slices.over(partitions):
            error, deleted = await self._coordinator.delete_offsets(group_id, piece)
            if error is ErrorCode.GROUP_ID_NOT_FOUND and errors:
                deleted = dict.fromkeys(piece, ErrorCode.NONE)
            elif error:
                return error, {}
            errors |= deleted
        return ErrorCode.NONE, errors


async def _one_group(error: ErrorCode, fetched: Fetched, slices: Slices) -> OffsetFetchResponse:
    """The OffsetFetch response up to version 7, which has the offsets of one group."""
    results = ((p.topic, OffsetFetchResponsePartition(*_fields(p, found))) for p, found in fetched.items())
    topics = await group_by_topic(results, slices)
    return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(*topic) for topic in topics.items()], error_code=error)


def _fields(partition: TopicPartition, fetched: FetchedOffset) -> tuple[int, int, int, str, ErrorCode]:
    """The fields of one partition in a response, in their order."""
    offset = fetched.offset
    return partition.partition, offset.offset, offset.leader_epoch, offset.metadata, fetched.error


async def _partitions_of(topics: Iterable[_Topic] | None, slices: Slices) -> list[TopicPartition] | None:
    """The partitions that an OffsetFetch request names; None where it asks for all."""
    if topics is None:
        return None
    return await slices.list_of(TopicPartition(topic.name, n) for topic in topics for n in topic.partition_indexes)
