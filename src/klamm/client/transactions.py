"""Producer ids and transactions from the asking side. Source: TransactionManager.java."""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

from klamm.client.backoff import Backoff
from klamm.client.cluster import ClusterMetadata
from klamm.client.errors import (
    ConnectionLost,
    RequestRefused,
    RetriableError,
    UnsupportedVersion,
    retriable_or_raise,
)
from klamm.client.routing import CoordinatorRoute, CoordinatorType, send_to_any
from klamm.client.steps import Ask, Steps, retried
from klamm.client.versions import Request
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
)
from klamm.wire.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

_NEWEST_OF_CLIENTS: Final = 3
"""Later versions of AddPartitionsToTxn are for brokers."""
_ENDED: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)
"""A transaction that is not open any more, because it was aborted: by its timeout, or by another producer."""
ONGOING: Final = "Ongoing"


class Producer(NamedTuple):
    id: int
    epoch: int


NO_PRODUCER: Final = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class OpenTransaction(NamedTuple):
    """All that its coordinator needs to end it, from any process."""

    transactional_id: str
    producer: Producer


def init_producer_id(cluster: ClusterMetadata) -> Steps[Producer]:
    """A new producer id and its epoch. Raises ConnectionLost, RetriableError, RequestRefused."""
    answer: Any = yield from send_to_any(cluster, Request(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(None, 0)))
    if answer.error_code:
        raise RetriableError(retriable_or_raise("producer id", answer.error_code))
    return Producer(answer.producer_id, answer.producer_epoch)


class Transactions:
    """Asks the coordinators of transactional ids; each call ends within the time of a new backoff."""

    def __init__(self, cluster: ClusterMetadata, backoff: Callable[[], Backoff]) -> None:
        self._cluster = cluster
        self._backoff = backoff
        self._routes: dict[str, CoordinatorRoute] = {}

    def begin(self, transactional_id: str, timeout_ms: int) -> Steps[OpenTransaction]:
        """Get the id's producer in a new epoch: what older epochs have open is aborted, and they are fenced.

        Raises Unreachable, RequestRefused.
        """
        request = Request(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id, timeout_ms))
        answer = yield from self._ask(transactional_id, request, lambda a: a.error_code)
        return OpenTransaction(transactional_id, Producer(answer.producer_id, answer.producer_epoch))

    def add_partitions(self, transaction: OpenTransaction, partitions: Collection[TopicPartition]) -> Steps[None]:
        """Add partitions, which may be in the transaction already. Raises Unreachable, RequestRefused."""
        by_topic: defaultdict[str, list[int]] = defaultdict(list)
        for topic, number in sorted(partitions):
            by_topic[topic].append(number)
        (transactional_id, producer) = transaction
        message = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(topic, tuple(numbers)) for topic, numbers in by_topic.items()],
        )
        request = Request(ApiKey.ADD_PARTITIONS_TO_TXN, message, newest=_NEWEST_OF_CLIENTS)
        yield from self._ask(transactional_id, request, _first_error)

    def end(self, transaction: OpenTransaction, *, commit: bool) -> Steps[bool]:
        """Commit or abort; whether it was done, now or by an earlier call. False: the opposite was done before.

        Raises Unreachable, RequestRefused.
        """
        (transactional_id, producer) = transaction
        request = Request(ApiKey.END_TXN, EndTxnRequest(transactional_id, producer.id, producer.epoch, commit))
        try:
            yield from self._ask(transactional_id, request, lambda a: a.error_code)
        except RequestRefused as error:
            if error.code in _ENDED:
                return False
            raise
        return True

    def is_open(self, transaction: OpenTransaction, partition: TopicPartition) -> Steps[bool]:
        """Whether the transaction, which has the partition, is still open. Raises Unreachable, RequestRefused."""
        try:
            yield from self.add_partitions(transaction, [partition])
        except RequestRefused as error:
            if error.code in _ENDED:
                return False
            raise
        return True

    def _ask(self, transactional_id: str, request: Request, error_of: Callable[[Any], int]) -> Steps[Any]:
        """Ask the coordinator until it answers for good."""
        route = self._routes.setdefault(
            transactional_id, CoordinatorRoute(self._cluster, CoordinatorType.TRANSACTION, transactional_id)
        )
        backoff = self._backoff()

        def attempt() -> Steps[Any]:
            """Ask once."""
            answer = yield from route.ask(request, error_of, backoff)
            if code := error_of(answer):
                raise RetriableError(retriable_or_raise(route.what, code))
            return answer

        return (yield from retried(route.what, attempt, backoff))


def _first_error(answer: Any) -> int:
    """The first error code of the partitions in an AddPartitionsToTxn response, 0 if there is none.

    The error that explains the others counts: where one is refused, the rest is OPERATION_NOT_ATTEMPTED.
    """
    codes = [p.partition_error_code for t in answer.results_by_topic_v3_and_below for p in t.results_by_partition]
    wrong = [code for code in codes if code]
    return next((code for code in wrong if code != ErrorCode.OPERATION_NOT_ATTEMPTED), wrong[0] if wrong else 0)


def ongoing_transactions(cluster: ClusterMetadata, prefix: str) -> Steps[Sequence[str]]:
    """The transactional ids with this prefix that have an open transaction, as far as coordinators say so.

    A broker that does not answer, or is older than the API (before 3.0), is left out.
    """
    yield from cluster.refresh(())
    found: list[str] = []
    for address in list(cluster.brokers.values()):
        try:
            answer = yield Ask(address, Request(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest((ONGOING,), ())))
        except (ConnectionLost, UnsupportedVersion):
            continue
        found += [t.transactional_id for t in answer.transaction_states if t.transactional_id.startswith(prefix)]
    return sorted(found)
