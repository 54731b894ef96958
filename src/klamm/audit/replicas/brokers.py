"""The brokers that have replicas: none is waited for twice, however many partitions it has."""

from typing import Final

from klamm.audit.replicas.replica_log import ReplicaUnavailable
from klamm.client.backoff import Backoff
from klamm.client.blocking import BlockingClient
from klamm.client.cluster import TopicGone
from klamm.client.errors import ConnectionLost, RequestRefused, RetriableError, Unreachable
from klamm.client.offsets import EARLIEST, list_offsets
from klamm.model.cluster import Address
from klamm.model.ids import BrokerId, TopicPartition

NOT_RUNNING: Final = "it is not running. Start it, and verify again."
_CHECK: Final = "Check that the broker runs, and its address."
_NEXT_WAIT_S: Final = 0.1
"""For what did not happen in the whole timeout once: it is not likely to happen soon after."""


class ReplicaBrokers:
    """Where brokers are, and what was waited for in vain; `timeout_s` limits the wait for a broker and for leaders."""

    def __init__(self, client: BlockingClient, timeout_s: float) -> None:
        self.client = client
        self._timeout_s = timeout_s
        self._lost: dict[BrokerId, str] = {}
        self._waited_for: set[BrokerId | None] = set()
        """Brokers, and None for leaders of partitions."""

    def address(self, broker: BrokerId) -> Address:
        """Where the broker is now. Raises ReplicaUnavailable where it is not registered, or was not reached before."""
        if broker in self._lost:
            raise ReplicaUnavailable(self._lost[broker])
        if broker not in self.client.cluster.brokers:
            raise ReplicaUnavailable(NOT_RUNNING)
        return self.client.cluster.brokers[broker]

    def backoff(self, broker: BrokerId | None, limit_s: float | None = None) -> Backoff:
        """The pauses between attempts at a broker, or at leaders (None), for at most `limit_s`."""
        total_s = _NEXT_WAIT_S if broker in self._waited_for else self._timeout_s
        return Backoff(self.client.world.now_s, total_s if limit_s is None else min(total_s, limit_s))

    def on_connection_lost(self, address: Address) -> None:
        """Close the connection, and look up which brokers are registered now."""
        self.client.drop(address)
        try:
            self.client.run(self.client.cluster.refresh(()))
        except RetriableError:
            return  # no broker answers: the next attempt shows whether this one does

    def give_up(self, broker: BrokerId, error: Unreachable, cause: Exception) -> ReplicaUnavailable:
        """Remember that the broker was waited for; one that cannot be reached is not asked again. Returns the error."""
        self._waited_for.add(broker)
        if isinstance(cause, ConnectionLost):
            self._lost[broker] = str(error)
        return ReplicaUnavailable(str(error))

    def log_start(self, partition: TopicPartition) -> int:
        """The log start of the partition as its leader has it. Raises ReplicaUnavailable.

        A leader that is elected while the wait for the last one ends is asked, too.
        """
        leader = self._leader(partition)
        while True:
            if leader in self._lost:
                raise ReplicaUnavailable(f"the leader is broker {leader}: {self._lost[leader]}")
            earliest = list_offsets(self.client.cluster, {partition: EARLIEST}, self.backoff(None))
            try:
                return self.client.run(earliest)[partition]
            except (RequestRefused, TopicGone) as error:
                raise ReplicaUnavailable(str(error)) from error
            except Unreachable as error:
                before, leader = leader, self._leader(partition)
                if leader not in (None, before):
                    continue
                self._waited_for.add(None)
                if leader is not None:
                    self._check_connection(leader)
                raise ReplicaUnavailable(str(error)) from error

    def _check_connection(self, broker: BrokerId) -> None:
        """Remember a broker to which no connection is possible, so that it is not waited for again."""
        try:
            self.client.at(self.client.cluster.brokers[broker])
        except ConnectionLost as error:
            self._lost[broker] = f"{error}. {_CHECK}"

    def _leader(self, partition: TopicPartition) -> BrokerId | None:
        """The leader of the partition in the metadata; None where there is none now. Raises ReplicaUnavailable."""
        try:
            address = self.client.run(self.client.cluster.leader(partition))
        except RetriableError:
            return None
        except TopicGone as error:
            raise ReplicaUnavailable(str(error)) from error
        return next(broker for broker, at in self.client.cluster.brokers.items() if at == address)
