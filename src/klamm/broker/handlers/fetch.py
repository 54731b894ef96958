"""Fetch, for consumers and followers. Source: KafkaApis.handleFetchRequest (3.9)."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator
from itertools import compress, groupby
from operator import attrgetter, itemgetter
from typing import Final, cast

from klamm.broker.current_leaders import current_leader, leader_endpoints
from klamm.broker.dispatch import Offered, Request
from klamm.broker.metadata_cache import MetadataCache
from klamm.model.errors import ErrorCode
from klamm.model.ids import NO_BROKER, BrokerId, TopicPartition
from klamm.replication.fetch_data import FetchData, FetchParams, FetchPartition, Isolation
from klamm.replication.fetch_sessions import FetchAnswer, FetchRequested
from klamm.replication.fetch_waiter import CachedPartition
from klamm.replication.replica_manager import ReplicaManager
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchResponseEpochEndOffset,
    FetchResponseLeaderIdAndEpoch,
    FetchResponseNodeEndpoint,
    FetchResponsePartitionData,
)

FETCH: Final = Offered(ApiKey.FETCH, 0, 17)
_FIRST_WITH_MAGIC_1: Final = 2
_FIRST_WITH_MAGIC_2: Final = 4
_FIRST_WITH_ZSTD: Final = 10
_FIRST_WITH_STORAGE_ERROR: Final = 6
_FIRST_WITH_FOLLOWER_READS: Final = 11
_FIRST_WITH_CURRENT_LEADER: Final = 12
_FIRST_WITH_TOPIC_IDS: Final = 13
_FIRST_WITH_REPLICA_STATE: Final = 15
_FIRST_WITH_NODE_ENDPOINTS: Final = 16
_ERRORS_WITH_CURRENT_LEADER: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

_data_of, _error_of = itemgetter(1), attrgetter("error")

ConfirmLeadership = Callable[[TopicPartition], Awaitable[bool]]
"""Whether it is certain that no other broker had become leader of the partition when this was called."""


class Fetch:
    """Serves Fetch."""

    def __init__(
        self,
        cache: MetadataCache,
        replicas: ReplicaManager,
        fetch_max_bytes: int,
        confirm_leadership: ConfirmLeadership,
        *,
        is_rack_aware: bool = False,
    ) -> None:
        """`is_rack_aware`: consumers are sent to in-sync followers in their own rack."""
        self._confirm_leadership = confirm_leadership
        self._is_rack_aware = is_rack_aware
        self._cache = cache
        self._replicas = replicas
        self._fetch_max_bytes = fetch_max_bytes
        self.bytes_out = 0
        self.replication_bytes_out = 0

    async def handle(self, request: Request, message: FetchRequest) -> FetchResponse:
        """Answer Fetch: read the requested partitions, and count the bytes for consumers and followers separately."""
        params = self._read_params(request, message)
        answer = await self._replicas.fetch(params, await self._read_partitions(request, message, params.replica_id))
        if not params.is_follower and ErrorCode.OFFSET_OUT_OF_RANGE in map(_error_of, map(_data_of, answer.partitions)):
            answer = await self._confirm_out_of_range(answer)
        response = FetchResponse(error_code=answer.error, session_id=answer.session_id)
        leaders: set[BrokerId] = set()
        rest = request.slices.begin(self._add_results(request, params, answer, response, leaders))
        if rest is not None:
            await rest
            await request.slices.clear(answer.partitions)
        if leaders and request.version >= _FIRST_WITH_NODE_ENDPOINTS:
            endpoints = leader_endpoints(self._cache, leaders, request.peer.listener)
            response.node_endpoints = [FetchResponseNodeEndpoint(*endpoint) for endpoint in endpoints]
        return response

    async def _confirm_out_of_range(self, answer: FetchAnswer) -> FetchAnswer:
        """Replace OFFSET_OUT_OF_RANGE by NOT_LEADER_OR_FOLLOWER where another broker may lead the partition.

        A leader that was replaced and does not know it lacks what its successor has: the consumer would go back to the
        log start, or skip records up to the log end.
        """
        found = list(answer.partitions)
        at = [i for i, (_, data) in enumerate(found) if data.error is ErrorCode.OFFSET_OUT_OF_RANGE]
        unconfirmed = await asyncio.gather(*(self._is_unconfirmed(found[i][0]) for i in at))
        for i in compress(at, unconfirmed):
            cached, data = found[i]
            found[i] = cached, data._replace(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return answer._replace(partitions=found)

    async def _is_unconfirmed(self, cached: CachedPartition) -> bool:
        """Whether this broker takes itself for the partition's leader, and may have been replaced."""
        topic_partition = cached.topic_partition
        if topic_partition is None:
            return False
        hosted = self._replicas.partition(topic_partition)
        is_leader = hosted is not None and hosted.is_leader
        return is_leader and not await self._confirm_leadership(topic_partition)

    def _read_params(self, request: Request, message: FetchRequest) -> FetchParams:
        """What holds for the whole fetch, from a request of any version."""
        version = request.version
        replica = BrokerId(
            message.replica_state.replica_id if version >= _FIRST_WITH_REPLICA_STATE else message.replica_id
        )
        most = min(message.max_bytes, self._fetch_max_bytes)  # of followers, too: whoever claims to be one
        return FetchParams(
            replica_id=replica,
            max_wait_ms=message.max_wait_ms,
            min_bytes=min(message.min_bytes, most),
            max_bytes=most,
            isolation=Isolation.READ_COMMITTED if message.isolation_level == 1 else Isolation.READ_UNCOMMITTED,
            leader_only=version < _FIRST_WITH_FOLLOWER_READS,
            magic=(version >= _FIRST_WITH_MAGIC_1) + (version >= _FIRST_WITH_MAGIC_2),
            knows_zstd=version >= _FIRST_WITH_ZSTD,
            near_brokers=self._brokers_in_rack(message.rack_id, request.peer.listener) if message.rack_id else (),
            broker_epoch=message.replica_state.replica_epoch,
        )

    async def _read_partitions(self, request: Request, message: FetchRequest, replica: BrokerId) -> FetchRequested:
        """The partitions and the session of the fetch, from a request of any version."""
        version = request.version
        partitions = await request.slices.list_of(
            FetchPartition(
                name,
                topic.topic_id,
                p.partition,
                p.fetch_offset,
                p.partition_max_bytes,
                p.current_leader_epoch,
                p.last_fetched_epoch,
                p.log_start_offset,
            )
            for topic in message.topics
            for name in (self._topic_name(version, topic.topic, topic.topic_id),)
            for p in topic.partitions
        )
        forgotten: list[tuple[str | None, uuid.UUID, int]] = []
        if message.forgotten_topics_data:
            forgotten = await request.slices.list_of(
                (self._topic_name(version, topic.topic, topic.topic_id), topic.topic_id, partition)
                for topic in message.forgotten_topics_data
                for partition in topic.partitions
            )
        return FetchRequested(
            partitions, message.session_id, message.session_epoch, forgotten, version >= _FIRST_WITH_TOPIC_IDS, replica
        )

    def _brokers_in_rack(self, rack: str, listener: str) -> frozenset[BrokerId]:
        """The live brokers in this rack that clients of the listener can reach; none without a replica selector."""
        if not self._is_rack_aware:
            return frozenset()
        return frozenset(broker.id for broker, _ in self._cache.brokers_on(listener) if broker.rack == rack)

    def _topic_name(self, version: int, name: str, topic_id: uuid.UUID) -> str | None:
        """The topic's name, from the request or by its id; None for an unknown id."""
        return name if version < _FIRST_WITH_TOPIC_IDS else self._cache.topic_name(topic_id)

    def _add_results(
        self,
        request: Request,
        params: FetchParams,
        answer: FetchAnswer,
        response: FetchResponse,
        leaders: set[BrokerId],
    ) -> Iterator[None]:
        """Put the result of each partition into the response, and count its bytes; pauses after each."""
        is_follower = params.replica_id >= 0
        for (name, topic_id), group in groupby(answer.partitions, _topic_key):
            topic = FetchableTopicResponse(name or "", topic_id)
            response.responses.append(topic)
            for cached, data in group:
                topic.partitions.append(self._partition_result(request, name, cached, data, leaders))
                if is_follower:
                    self.replication_bytes_out += len(data.records)
                else:
                    self.bytes_out += len(data.records)
                yield

    def _partition_result(
        self,
        request: Request,
        topic: str | None,
        cached: CachedPartition,
        data: FetchData,
        leaders: set[BrokerId],
    ) -> FetchResponsePartitionData:
        """The result of one partition; where another broker leads it, that leader, which is added to `leaders`."""
        error = data.error
        if error is ErrorCode.KAFKA_STORAGE_ERROR and request.version < _FIRST_WITH_STORAGE_ERROR:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition = FetchResponsePartitionData(
            partition_index=cached.request.partition,
            error_code=error,
            high_watermark=data.high_watermark,
            last_stable_offset=data.last_stable_offset,
            log_start_offset=data.log_start_offset,
            aborted_transactions=None
            if data.aborted is None
            else [AbortedTransaction(a.producer_id, a.first_offset) for a in data.aborted],
            records=cast("bytes | memoryview", data.records),  # a slice of a file passes through the encoder as it is
        )
        if data.preferred_replica != NO_BROKER:
            partition.preferred_read_replica = data.preferred_replica
        if data.diverging is not None:
            partition.diverging_epoch = FetchResponseEpochEndOffset(data.diverging.epoch, data.diverging.end_offset)
        if error in _ERRORS_WITH_CURRENT_LEADER and topic is not None and request.version >= _FIRST_WITH_CURRENT_LEADER:
            known = current_leader(self._replicas, self._cache, TopicPartition(topic, cached.request.partition))
            if known is not None:
                leaders.add(known.leader)
                partition.current_leader = FetchResponseLeaderIdAndEpoch(*known)
        return partition


def _topic_key(entry: tuple[CachedPartition, FetchData]) -> tuple[str | None, uuid.UUID]:
    """The topic's name and id, by which the response groups partitions."""
    request = entry[0].request
    return request.topic, request.topic_id
