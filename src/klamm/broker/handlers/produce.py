"""Produce: append records to the leaders' logs. Source: KafkaApis.handleProduceRequest (3.9)."""

from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Final

from klamm.broker.current_leaders import current_leader, leader_endpoints
from klamm.broker.dispatch import Offered, Request
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.transaction_verification import (
    RETRIED_AS_NOT_ENOUGH_REPLICAS,
    TransactionalBatches,
    TransactionVerification,
)
from klamm.coordinator.requests import ProducerIdAndEpoch
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.topic_names import INTERNAL_TOPICS
from klamm.net.server import CloseConnection
from klamm.replication.appending import AppendResult
from klamm.replication.replica_manager import ReplicaManager
from klamm.runtime.disk import Buffer
from klamm.runtime.time_slices import PIECE, Slices
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceResponseLeaderIdAndEpoch,
    ProduceResponseNodeEndpoint,
    TopicProduceResponse,
)
from klamm.wire.records import BatchHeader, Codec, CorruptRecords, header_at
from klamm.wire.records.batch import MAGIC, produced_entry_size

PRODUCE: Final = Offered(ApiKey.PRODUCE, 0, 11)
_FIRST_WITH_BATCHES: Final = 3
_FIRST_WITH_ZSTD: Final = 7
_FIRST_WITH_CURRENT_LEADER: Final = 10
_FIRST_WITH_ABORTABLE: Final = 11
_NO_ACKS: Final = 0
_MAGIC_AT: Final = 16
_MAX_NAMED: Final = 10
"""Partitions in the log line of a failed request with acks=0."""
_ADMIN_CLIENT: Final = "__admin_client"
_NO_TRANSACTIONAL_ID: Final = AppendResult(
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    message="The request has a transactional batch, but no transactional id. Set transactional.id in the producer.",
)
"""For the whole request, as Apache Kafka answers it. Producers treat it as fatal."""
_NOT_LED: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
_SEVERAL_PRODUCERS: Final = AppendResult(
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    message="The request has transactional batches of several producer ids. Send the batches of one producer.",
)

Records = Buffer
Results = Mapping[TopicPartition, AppendResult]


class Produce:
    """Serves Produce."""

    def __init__(self, cache: MetadataCache, replicas: ReplicaManager, verification: TransactionVerification) -> None:
        self._cache = cache
        self._replicas = replicas
        self._verification = verification

    async def handle(self, request: Request, message: ProduceRequest) -> ProduceResponse | None:
        """Answer Produce: append the records. With acks=0 the result is None, and an error closes the connection.

        The records are taken out of `message`: a request that waits for its replicas must not keep the frame alive.
        """
        slices = request.slices
        records = await slices.dict_of(_removed_records(message))
        results: dict[TopicPartition, AppendResult] = {}
        accepted: dict[TopicPartition, Records] = {}
        if message.transactional_id is None and await _has_transactional(records, slices):
            results = await slices.dict_of(zip(records, repeat(_NO_TRANSACTIONAL_ID)))
        elif (rest := slices.begin(self._sort_out(request, records, accepted, results))) is not None:
            await rest
        if len(records) > PIECE:
            await slices.clear(records)
        records.clear()
        if message.transactional_id is not None:
            refused = await self._unverified(request, message.transactional_id, accepted)
            for topic_partition in refused:
                del accepted[topic_partition]
            results |= refused
        if accepted:
            on_appended = request.connection.let_next_begin
            results |= await self._replicas.append(message.acks, message.timeout_ms, accepted, on_appended=on_appended)
        if message.acks == _NO_ACKS:
            _raise_on_error(results)
            return None
        return await self._response(request, message, results)

    def _sort_out(
        self,
        request: Request,
        records: Mapping[TopicPartition, Records | None],
        accepted: dict[TopicPartition, Records],
        results: dict[TopicPartition, AppendResult],
    ) -> Iterator[None]:
        """Put what may be appended into `accepted`, and the errors of the others into `results`; pauses after each."""
        for topic_partition, batch in records.items():
            if (error := self._refusal(request, topic_partition, batch)) is not None:
                results[topic_partition] = error
            elif batch is not None:
                accepted[topic_partition] = batch
            yield

    def _refusal(
        self, request: Request, topic_partition: TopicPartition, records: Records | None
    ) -> AppendResult | None:
        """The error for records that must not be appended to this partition; None where they may be appended.

        These checks come before the log reads the records.
        """
        if not self._cache.contains(topic_partition):
            return AppendResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if topic_partition.topic in INTERNAL_TOPICS and request.client_id != _ADMIN_CLIENT:
            return AppendResult(ErrorCode.INVALID_TOPIC_EXCEPTION)
        return _refusal_of_batch(records or b"", request.version)

    async def _unverified(
        self, request: Request, transactional_id: str, batches: Mapping[TopicPartition, Records]
    ) -> dict[TopicPartition, AppendResult]:
        """The partitions whose transactional batch the coordinator does not confirm, each with its error."""
        slices = request.slices
        found = await slices.dict_of((tp, _transactional_header(batch)) for tp, batch in batches.items())
        headers = {tp: header for tp, header in found.items() if header is not None and header.has_producer}
        producers = {ProducerIdAndEpoch(header.producer_id, header.producer_epoch) for header in headers.values()}
        if not producers:
            return {}
        if len(producers) > 1:
            return dict.fromkeys(batches, _SEVERAL_PRODUCERS)
        sequences = {tp: header.base_sequence for tp, header in headers.items()}
        errors = await self._verification.verify(
            TransactionalBatches(transactional_id, producers.pop(), sequences),
            knows_abortable=request.version >= _FIRST_WITH_ABORTABLE,
        )
        return {tp: _unverified_result(error) for tp, error in errors.items()}

    async def _response(self, request: Request, message: ProduceRequest, results: Results) -> ProduceResponse:
        """Return the response with the result of each partition, and the current leaders where the version has them."""
        response = ProduceResponse()
        leaders: set[BrokerId] = set()
        knows_leaders = request.version >= _FIRST_WITH_CURRENT_LEADER
        steps = self._describe_results(message, results, response, leaders if knows_leaders else None)
        if (rest := request.slices.begin(steps)) is not None:
            await rest
        if leaders:
            endpoints = leader_endpoints(self._cache, leaders, request.peer.listener)
            response.node_endpoints = [ProduceResponseNodeEndpoint(*endpoint) for endpoint in endpoints]
        return response

    def _describe_results(
        self, message: ProduceRequest, results: Results, response: ProduceResponse, leaders: set[BrokerId] | None
    ) -> Iterator[None]:
        """Put the result of each partition into the response; pauses after each.

        With `leaders`, each NOT_LEADER_OR_FOLLOWER names the leader, so that the producer can move at once (KIP-951).
        """
        for topic in message.topic_data:
            described = TopicProduceResponse(topic.name)
            response.responses.append(described)
            yield
            for asked in topic.partition_data:
                topic_partition = TopicPartition(topic.name, asked.index)
                result = _partition_result(asked.index, results[topic_partition])
                described.partition_responses.append(result)
                if leaders is not None and result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    known = current_leader(self._replicas, self._cache, topic_partition)
                    if known is not None:
                        leaders.add(known.leader)
                        result.current_leader = ProduceResponseLeaderIdAndEpoch(*known)
                yield


def _partition_result(index: int, result: AppendResult) -> PartitionProduceResponse:
    """Return the result of appending to partition `index` in the form of the response.

    A batch that was appended and not replicated in time keeps its offset beside the error, as in Kafka.
    """
    return PartitionProduceResponse(
        index,
        result.error,
        result.base_offset,
        result.log_append_time_ms,
        result.log_start_offset,
        record_errors=[BatchIndexAndErrorMessage(index, text) for index, text in result.record_errors],
        error_message=result.message,
    )


def _removed_records(message: ProduceRequest) -> Iterator[tuple[TopicPartition, Records | None]]:
    """The partitions and their records; `message` no longer refers to them then."""
    for topic in message.topic_data:
        for partition in topic.partition_data:
            records, partition.records = partition.records, None
            yield TopicPartition(topic.name, partition.index), records
            del records


async def _has_transactional(records: Mapping[TopicPartition, Records | None], slices: Slices) -> bool:
    """Whether the records of any partition are transactional."""
    if len(records) <= PIECE:
        return any(map(_is_transactional, records.values()))
    return any(await slices.list_of(map(_is_transactional, records.values())))


def _is_transactional(records: Records | None) -> bool:
    """Whether the records begin with a transactional batch; false for other formats and corrupt headers."""
    return records is not None and _transactional_header(records) is not None


def _transactional_header(records: Records) -> BatchHeader | None:
    """The header of a transactional batch; None for any other."""
    try:
        header = header_at(records)
    except CorruptRecords:
        return None  # the log refuses it and says what is wrong
    return header if header.magic == MAGIC and header.is_transactional else None


def _unverified_result(error: ErrorCode) -> AppendResult:
    """Return the result for a batch whose transaction was not confirmed.

    It is NOT_ENOUGH_REPLICAS where the producer shall retry, else the error itself.
    """
    if error in _NOT_LED:
        return AppendResult(error, message="The partition is not led by this broker. Refresh the metadata and retry.")
    if error in RETRIED_AS_NOT_ENOUGH_REPLICAS:
        return AppendResult(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            message=f"The transaction cannot be verified now: its coordinator answers {error.name}. Retry.",
        )
    return AppendResult(
        error,
        message=f"The partition is not in the open transaction of this producer ({error.name}). Abort the "
        "transaction and begin another one.",
    )


def _refusal_of_batch(records: Records, version: int) -> AppendResult | None:
    """The error for records that do not fit this version of the Produce request; None where they fit.

    Newer versions need exactly one batch. Older versions may have one batch, or any number of messages, which the log
    checks; where they have nothing, nothing is appended, and that succeeds, as in Apache Kafka.
    """
    is_old = version < _FIRST_WITH_BATCHES
    try:
        size = produced_entry_size(records)
        if is_old and (size is None or records[_MAGIC_AT] < MAGIC):
            return AppendResult() if size is None else None
        if size is None:
            return _invalid(
                f"the request has no complete record batch; a Produce request of version {version} must have one"
            )
        if (magic := records[_MAGIC_AT]) != MAGIC:
            return _invalid(
                f"the records have magic {magic}; a Produce request of version {version} must have magic {MAGIC}"
            )
        if not is_old and version < _FIRST_WITH_ZSTD and _is_zstd(records):
            return AppendResult(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if produced_entry_size(records, size) is not None:
            return _invalid("the request has more than one record batch for this partition; send one")
    except CorruptRecords as error:
        return AppendResult(ErrorCode.CORRUPT_MESSAGE, message=f"the batch is corrupt: {error}. Send the batch again.")
    return None


def _invalid(problem: str) -> AppendResult:
    """The result INVALID_RECORD for records that do not fit the version of the request."""
    return AppendResult(ErrorCode.INVALID_RECORD, message=f"{problem}. Update or replace the producer's client.")


def _is_zstd(records: Records) -> bool:
    """Whether the first batch is compressed with zstd; false for a corrupt header."""
    try:
        return header_at(records).codec is Codec.ZSTD
    except CorruptRecords:
        return False  # the log refuses it and says what is wrong


def _raise_on_error(results: Results) -> None:
    """Raise CloseConnection where an append failed: with acks=0 the client has no other way to learn of it."""
    failed = [(tp, result.error) for tp, result in results.items() if result.error]
    if failed:
        named = ", ".join(f"{tp} {error.name}" for tp, error in failed[:_MAX_NAMED])
        more = f" and {len(failed) - _MAX_NAMED} more" if len(failed) > _MAX_NAMED else ""
        raise CloseConnection(f"a produce request with acks=0 failed, so its connection is closed: {named}{more}")
