"""The types of the fixtures that run a scenario."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from tests.support.replica_cluster import ReplicaCluster

Scenario = Callable[[ReplicaCluster], Awaitable[None]]


class Run(Protocol):
    """Runs a scenario on a new cluster, in simulated time, and closes the cluster."""

    def __call__(self, scenario: Scenario, **settings: Any) -> None:
        """`settings`: arguments of ReplicaCluster."""
