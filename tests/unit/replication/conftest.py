"""Clusters of replica managers in simulated time."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.replica_cluster import ReplicaCluster
from tests.support.simulated_loop import SimulatedLoop

Scenario = Callable[[ReplicaCluster], Awaitable[None]]


@pytest.fixture
def run() -> Callable[..., None]:
    """`run(scenario, **how)`: plays a scenario on a fresh cluster, in simulated time, and closes the cluster."""

    def play(scenario: Scenario, **how: Any) -> None:
        async def main() -> None:
            cluster = ReplicaCluster(**how)
            try:
                await scenario(cluster)
            finally:
                await cluster.close()

        SimulatedLoop().run(main())

    return play
