"""TxnOffsetCommit: offsets in a producer's transaction. Source: KafkaApis.scala, GroupCoordinator.scala (3.9)."""

from collections.abc import Iterator
from typing import Final

from klamm.broker.by_topic import group_by_topic
from klamm.broker.dispatch import Offered, Request
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.transaction_verification import TransactionalBatches, TransactionVerification
from klamm.coordinator.committed_offsets import Offset, Offsets
from klamm.coordinator.coordinator import GroupCoordinator
from klamm.coordinator.handlers.offsets import CommitRequest, Errors, TransactionalCommitRequest
from klamm.coordinator.offsets_topic import OFFSET_ERRORS
from klamm.coordinator.requests import ProducerIdAndEpoch
from klamm.coordinator.topic_partitions import OFFSETS_TOPIC
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.runtime.clock import Clock
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from klamm.wire.records.batch import NO_SEQUENCE

TXN_OFFSET_COMMIT: Final = Offered(ApiKey.TXN_OFFSET_COMMIT, 0, 4)
_KNOWS_ABORTABLE: Final = 4
_KNOWS_LOADING: Final = 2


class TransactionalOffsets:
    def __init__(
        self, coordinator: GroupCoordinator, cache: MetadataCache, clock: Clock, verification: TransactionVerification
    ) -> None:
        self._coordinator = coordinator
        self._cache = cache
        self._clock = clock
        self._verification = verification

    async def commit(self, request: Request, message: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
        """Answer TxnOffsetCommit: store offsets that become committed with the producer's transaction."""
        slices = request.slices
        now_ms = self._clock.now_ms()
        errors: Errors = {}
        known: dict[TopicPartition, Offset] = {}
        await slices.run(self._sort_out(message, now_ms, known, errors))
        if known:
            errors |= await self._commit(request, message, known)
        results = (
            (p.topic, TxnOffsetCommitResponsePartition(p.partition, _for_version(request, error)))
            for p, error in errors.items()
        )
        topics = await group_by_topic(results, slices)
        await slices.clear(errors)
        return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(*topic) for topic in topics.items()])

    def _sort_out(
        self, message: TxnOffsetCommitRequest, now_ms: int, known: dict[TopicPartition, Offset], errors: Errors
    ) -> Iterator[None]:
        """Put the offsets of existing partitions into `known`, and into `errors` what the others get.

        The offsets are committed now. Pauses after each partition.
        """
        for topic in message.topics:
            for requested in topic.partitions:
                partition = TopicPartition(topic.name, requested.partition_index)
                errors[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if self._cache.contains(partition):
                    text = requested.committed_metadata or ""
                    known[partition] = Offset(
                        requested.committed_offset, requested.committed_leader_epoch, text, now_ms
                    )
                yield

    async def _commit(self, request: Request, message: TxnOffsetCommitRequest, offsets: Offsets) -> Errors:
        """Verify that the transaction includes the group's partition of `__consumer_offsets`.

        Then store the offsets.
        """
        if error := self._coordinator.availability(message.group_id):
            return dict.fromkeys(offsets, error)
        partition = TopicPartition(OFFSETS_TOPIC, self._coordinator.partition_for(message.group_id))
        producer = ProducerIdAndEpoch(message.producer_id, message.producer_epoch)
        unverified = await self._verification.verify(
            TransactionalBatches(message.transactional_id, producer, {partition: NO_SEQUENCE}),
            knows_abortable=request.version >= _KNOWS_ABORTABLE,
        )
        if error := unverified.get(partition, ErrorCode.NONE):
            return dict.fromkeys(offsets, OFFSET_ERRORS.get(error, error))
        commit = CommitRequest(
            message.group_id, offsets, message.member_id, message.group_instance_id, message.generation_id
        )
        return await self._coordinator.commit_transactional_offsets(TransactionalCommitRequest(producer, commit))


def _for_version(request: Request, error: ErrorCode) -> ErrorCode:
    """Return the error code that the producer knows.

    Producers before 2.3 get COORDINATOR_NOT_AVAILABLE, since COORDINATOR_LOAD_IN_PROGRESS may crash them (KAFKA-7296).
    """
    is_unknown = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and request.version < _KNOWS_LOADING
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if is_unknown else error
