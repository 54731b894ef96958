"""What invariants look at: the history with the event that comes next, or the cluster as it stands."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

from klamm.model.ids import TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.history.history import History
from klamm.sim.history.trace import Term
from klamm.sim.nodes.broker import StubBroker
from klamm.sim.zookeeper.tree import Tree

Always: TypeAlias = Callable[[History, Any], str | None]
"""What happened before and what happens now in; out a sentence on what is wrong, or None."""


class Cluster(Protocol):
    """A cluster that had time, or the part of it that is healed."""

    history: History

    @property
    def tree(self) -> Tree:
        """The znodes that ZooKeeper has committed."""
        ...

    @property
    def running(self) -> Iterable[StubBroker]:
        """The nodes that run and for which invariants must hold."""
        ...

    def connections_of(self, number: int) -> int:
        """How many connections the processes of a node have to ZooKeeper servers."""
        ...

    def watched_by(self, broker: StubBroker) -> tuple[set[str], set[str]]:
        """Paths on whose data, and on whose children, ZooKeeper holds a watch for this broker's session."""
        ...


AtRest: TypeAlias = Callable[[Cluster], str | None]


def newest(cluster: Cluster, p: TopicPartition) -> LeaderAndIsr | None:
    """The newest state of the partition in ZooKeeper."""
    versions = cluster.history.states.versions.get(p)
    return versions[-1] if versions else None


def acting(cluster: Cluster) -> list[Term]:
    """The terms of running nodes that began and have not ended."""
    return cluster.history.controllers.acting({(b.number, b.incarnation) for b in cluster.running})
