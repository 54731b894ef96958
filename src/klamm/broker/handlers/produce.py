"""Produce: append records to the leaders' logs. Source: KafkaApis.handleProduceRequest (3.9)."""

from collections.abc import Mapping
from typing import Final

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
_ADMIN_CLIENT: Final = "__admin_client"
_NO_TRANSACTIONAL_ID: Final = AppendResult(
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    message="The request has a transactional batch, but no transactional id. Set transactional.id in the producer.",
)
"""For the whole request, as Apache Kafka answers it. Producers treat it as fatal."""
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
        records = _remove_records(message)
        results: dict[TopicPartition, AppendResult] = {}
        if message.transactional_id is None and any(map(_is_transactional, records.values())):
            results = dict.fromkeys(records, _NO_TRANSACTIONAL_ID)
        else:
            for topic_partition, batch in records.items():
                if (error := self._refusal(request, topic_partition, batch)) is not None:
                    results[topic_partition] = error
        accepted = {tp: batch for tp, batch in records.items() if batch is not None and tp not in results}
        records.clear()
        batch = None
        if message.transactional_id is not None:
            results |= await self._unverified(request, message.transactional_id, accepted)
            accepted = {tp: batch for tp, batch in accepted.items() if tp not in results}
        if accepted:
            results |= await self._replicas.append(message.acks, message.timeout_ms, accepted)
        if message.acks == _NO_ACKS:
            _raise_on_error(results)
            return None
        return self._response(request, message, results)

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
        found = {tp: _transactional_header(batch) for tp, batch in batches.items()}
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

    def _response(self, request: Request, message: ProduceRequest, results: Results) -> ProduceResponse:
        """Return the response with the result of each partition, and the current leaders where the version has them."""
        response = ProduceResponse(
            responses=[
                TopicProduceResponse(
                    topic.name,
                    [
                        _partition_result(p.index, results[TopicPartition(topic.name, p.index)])
                        for p in topic.partition_data
                    ],
                )
                for topic in message.topic_data
            ]
        )
        if request.version >= _FIRST_WITH_CURRENT_LEADER:
            self._add_current_leaders(request, response)
        return response

    def _add_current_leaders(self, request: Request, response: ProduceResponse) -> None:
        """Add leader and endpoint to each NOT_LEADER_OR_FOLLOWER, so that the producer can move at once (KIP-951)."""
        leaders: set[BrokerId] = set()
        for topic in response.responses:
            for partition in topic.partition_responses:
                if partition.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    continue
                state = self._cache.state(TopicPartition(topic.name, partition.index))
                if state is not None:
                    leaders.add(BrokerId(state.leader))
                    partition.current_leader = ProduceResponseLeaderIdAndEpoch(state.leader, state.leader_epoch)
        response.node_endpoints = [
            ProduceResponseNodeEndpoint(leader, endpoint.host, endpoint.port, self._cache.brokers[leader].rack)
            for leader in sorted(leaders)
            if (endpoint := self._cache.endpoint_on(leader, request.peer.listener)) is not None
        ]


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


def _remove_records(message: ProduceRequest) -> dict[TopicPartition, Records | None]:
    """The records by partition; `message` no longer refers to them."""
    records: dict[TopicPartition, Records | None] = {}
    for topic in message.topic_data:
        for partition in topic.partition_data:
            records[TopicPartition(topic.name, partition.index)] = partition.records
            partition.records = None
    return records


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
    failed = [f"{tp} {result.error.name}" for tp, result in results.items() if result.error]
    if failed:
        raise CloseConnection(f"a produce request with acks=0 failed, so its connection is closed: {', '.join(failed)}")
