"""Producer ids, and transactions of one transactional id: the requests to its coordinator, as steps for either driver.

The caller sends the records itself, in batches with `transactions.producer` and the transactional bit. Source:
TransactionManager.java, Sender.java (3.9).
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from klamm.client.backoff import Backoff
from klamm.client.cluster import ClusterMetadata
from klamm.client.committed_offsets import NO_MEMBERSHIP, Membership, numbers_by_topic, partition_errors
from klamm.client.errors import RetriableError, code_name, retriable_or_raise
from klamm.client.routing import CoordinatorRoute, CoordinatorType, send_to_any
from klamm.client.steps import Steps, Wait
from klamm.client.versions import Request
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from klamm.wire.records import NO_PRODUCER_ID
from klamm.wire.records.batch import NO_PRODUCER_EPOCH

_NEWEST_OF_CLIENTS: Final = 3
"""Of AddPartitionsToTxn: later versions are for brokers."""
_HAS_MEMBERSHIP: Final = 3
_FENCED: Final = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


class ProducerFenced(KlammError):
    """Another producer uses the transactional id, or the coordinator ended the transaction: start again."""

    def __init__(self, transactional_id: str, code: int) -> None:
        super().__init__(
            f"transactional id {transactional_id}: this producer is fenced ({code_name(code)}), because another one "
            "began to use the id, or because its transaction timed out. Run one producer for each id."
        )
        self.code = code


class ProducerIdAndEpoch(NamedTuple):
    id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


NO_PRODUCER: Final = ProducerIdAndEpoch()


def init_producer_id(cluster: ClusterMetadata) -> Steps[ProducerIdAndEpoch]:
    """Get a new producer id, without a transactional id. Raises ConnectionLost, RetriableError, RequestRefused."""
    answer: Any = yield from send_to_any(cluster, Request(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(None, 0)))
    if answer.error_code:
        raise RetriableError(retriable_or_raise("producer id", answer.error_code))
    return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)


class Transactions:
    """`init` once; then for each transaction `add_partitions` before records are sent, and `end`."""

    def __init__(self, cluster: ClusterMetadata, transactional_id: str, timeout_ms: int) -> None:
        """`timeout_ms`: after this time the coordinator aborts a transaction that has not ended."""
        self.id = transactional_id
        self.producer = NO_PRODUCER
        """What the batches of the transaction have; from `init` on."""
        self._timeout_ms = timeout_ms
        self._cluster = cluster
        self._coordinator = CoordinatorRoute(cluster, CoordinatorType.TRANSACTION, transactional_id)

    def init(self, backoff: Backoff) -> Steps[None]:
        """Get a producer id and epoch; older producers of the transactional id are fenced, their transaction aborted.

        Raises ProducerFenced, Unreachable, RequestRefused.
        """
        message = InitProducerIdRequest(transactional_id=self.id, transaction_timeout_ms=self._timeout_ms)
        answer = yield from self._ask(Request(ApiKey.INIT_PRODUCER_ID, message), _own_code, backoff)
        self.producer = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

    def add_partitions(self, partitions: Collection[TopicPartition], backoff: Backoff) -> Steps[None]:
        """Make these partitions part of the transaction. Raises ProducerFenced, Unreachable, RequestRefused."""
        producer_id, epoch = self.producer
        topics = [AddPartitionsToTxnTopic(topic, numbers) for topic, numbers in numbers_by_topic(partitions)]
        message = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=topics,
        )
        request = Request(ApiKey.ADD_PARTITIONS_TO_TXN, message, newest=_NEWEST_OF_CLIENTS)
        yield from self._ask(request, _code_of_partitions, backoff)

    def commit_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        backoff: Backoff,
        member: Membership = NO_MEMBERSHIP,
    ) -> Steps[None]:
        """Commit a group's offsets with the transaction: they are stored if it is committed.

        Raises ProducerFenced, Unreachable, RequestRefused.
        """
        producer_id, epoch = self.producer
        add = AddOffsetsToTxnRequest(self.id, producer_id, epoch, group_id)
        yield from self._ask(Request(ApiKey.ADD_OFFSETS_TO_TXN, add), _own_code, backoff)
        topics = [
            TxnOffsetCommitRequestTopic(
                topic, [TxnOffsetCommitRequestPartition(n, offsets[TopicPartition(topic, n)]) for n in numbers]
            )
            for topic, numbers in numbers_by_topic(offsets)
        ]

        def build(version: int) -> TxnOffsetCommitRequest:
            """Build the TxnOffsetCommit request for this version."""
            known = member if version >= _HAS_MEMBERSHIP else NO_MEMBERSHIP
            return TxnOffsetCommitRequest(self.id, group_id, producer_id, epoch, *known, topics=topics)

        oldest = _HAS_MEMBERSHIP if member != NO_MEMBERSHIP else 0
        group = CoordinatorRoute(self._cluster, CoordinatorType.GROUP, group_id)
        request = Request(ApiKey.TXN_OFFSET_COMMIT, build, oldest=oldest)
        yield from self._ask(request, _code_of_offsets, backoff, group)

    def end(self, is_commit: bool, backoff: Backoff) -> Steps[None]:
        """Commit or abort the transaction. Raises ProducerFenced, Unreachable, RequestRefused."""
        message = EndTxnRequest(self.id, *self.producer, is_commit)
        yield from self._ask(Request(ApiKey.END_TXN, message), _own_code, backoff)

    def _ask(
        self, request: Request, code_of: Callable[[Any], int], backoff: Backoff, at: CoordinatorRoute | None = None
    ) -> Steps[Any]:
        """Ask a coordinator until the answer has no retriable error."""
        route = at or self._coordinator
        while True:
            answer = yield from route.ask(request, code_of, backoff)
            code = code_of(answer)
            if not code:
                return answer
            if code in _FENCED:
                raise ProducerFenced(self.id, code)
            cause = RetriableError(retriable_or_raise(f"transactional id {self.id}", code))
            yield Wait(backoff.next_wait_s(f"{request.key.name} of the {route.what}", cause))


def _own_code(answer: Any) -> int:
    """The error code of a response that has one."""
    code: int = answer.error_code
    return code


def _code_of_partitions(answer: Any) -> int:
    """The error code of an AddPartitionsToTxn response: all partitions were added, or none."""
    codes = [p.partition_error_code for t in answer.results_by_topic_v3_and_below for p in t.results_by_partition]
    return _cause_of(codes)


def _code_of_offsets(answer: Any) -> int:
    """The error code of a TxnOffsetCommit response."""
    return _cause_of([code for _, code in partition_errors(answer)])


def _cause_of(codes: Collection[int]) -> int:
    """The first error that is more than "not attempted, because of another partition"."""
    errors: Iterator[int] = (code for code in codes if code)
    return min(errors, key=lambda code: code == ErrorCode.OPERATION_NOT_ATTEMPTED, default=0)
