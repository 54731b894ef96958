"""Transactions that one process begins and another one ends: tasks of a write leave them to the driver."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

from klamm.client.backoff import Backoff
from klamm.client.cluster import ClusterMetadata
from klamm.client.errors import ConnectionLost, RequestRefused, UnsupportedVersion
from klamm.client.routing import CoordinatorRoute, CoordinatorType
from klamm.client.steps import Ask, Steps
from klamm.client.transactions import ProducerFenced, ProducerIdAndEpoch, Transactions
from klamm.client.versions import Request
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import DescribeTransactionsRequest, ListTransactionsRequest

_ONGOING: Final = "Ongoing"


class OpenTransaction(NamedTuple):
    """All that its coordinator needs to end it, from any process."""

    transactional_id: str
    producer: ProducerIdAndEpoch


class SinkTransactions:
    """Asks the coordinators of transactional ids; each call ends within the time of a new backoff."""

    def __init__(self, cluster: ClusterMetadata, backoff: Callable[[], Backoff]) -> None:
        self.cluster = cluster
        self.backoff = backoff
        self._known: dict[str, Transactions] = {}

    def begin(self, transactional_id: str, timeout_ms: int) -> Steps[OpenTransaction]:
        """Get the id's producer in a new epoch: what older epochs have open is aborted, and they are fenced.

        Raises Unreachable, RequestRefused.
        """
        transactions = Transactions(self.cluster, transactional_id, timeout_ms)
        yield from transactions.init(self.backoff())
        self._known[transactional_id] = transactions
        return OpenTransaction(transactional_id, transactions.producer)

    def add_partitions(self, transaction: OpenTransaction, partitions: Collection[TopicPartition]) -> Steps[None]:
        """Add partitions, which may be in the transaction already.

        Raises ProducerFenced, Unreachable, RequestRefused.
        """
        yield from self._of(transaction).add_partitions(sorted(partitions), self.backoff())

    def end(self, transaction: OpenTransaction, *, commit: bool) -> Steps[bool]:
        """Commit or abort the transaction; return False if it had ended the other way before, else True.

        Raises Unreachable, RequestRefused.
        """
        return (yield from _is_accepted(self._of(transaction).end(commit, self.backoff())))

    def is_open(self, transaction: OpenTransaction, partition: TopicPartition) -> Steps[bool]:
        """Whether the transaction, which has the partition, is still open. Raises Unreachable, RequestRefused."""
        return (yield from _is_accepted(self.add_partitions(transaction, [partition])))

    def is_ongoing(self, transactional_id: str) -> Steps[bool]:
        """Whether the id has an open transaction, as far as its coordinator says so: False of brokers before 3.0.

        Raises Unreachable, RequestRefused.
        """
        route = CoordinatorRoute(self.cluster, CoordinatorType.TRANSACTION, transactional_id)
        request = Request(ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest((transactional_id,)))
        try:
            answer = yield from route.ask(request, _code_of_state, self.backoff())
        except UnsupportedVersion:
            return False
        return _code_of_state(answer) == ErrorCode.NONE and answer.transaction_states[0].transaction_state == _ONGOING

    def ongoing(self, prefix: str) -> Steps[Sequence[str]]:
        """The transactional ids with this prefix that have an open transaction, as far as coordinators say so.

        A broker that does not answer, or is older than the API (before 3.0), is left out. Raises RetriableError where
        no broker answers.
        """
        yield from self.cluster.refresh(())
        found: list[str] = []
        for address in list(self.cluster.brokers.values()):
            try:
                answer = yield Ask(address, Request(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest((_ONGOING,), ())))
            except (ConnectionLost, UnsupportedVersion):
                continue
            found += [t.transactional_id for t in answer.transaction_states if t.transactional_id.startswith(prefix)]
        return sorted(found)

    def _of(self, transaction: OpenTransaction) -> Transactions:
        """Return the client's transactions of this transactional id, with the producer id and epoch of this one."""
        name, producer = transaction
        known = self._known.setdefault(name, Transactions(self.cluster, name, 0))
        known.producer = producer
        return known


def _code_of_state(answer: Any) -> int:
    """The error code of a DescribeTransactions response about one transactional id."""
    code: int = answer.transaction_states[0].error_code
    return code


def _is_accepted(steps: Steps[None]) -> Steps[bool]:
    """Take the steps of a request about a transaction; return False where the transaction has ended already."""
    try:
        yield from steps
    except ProducerFenced:
        return False
    except RequestRefused as error:
        if error.code == ErrorCode.INVALID_TXN_STATE:
            return False
        raise
    return True
