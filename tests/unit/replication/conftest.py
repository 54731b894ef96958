"""Clusters of replica managers in simulated time."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.replica_cluster import ReplicaCluster
from tests.unit.replication.runs import Run, Scenario
from tests.unit.replication.scripted_leader import follow

from klamm.sim.loop import SimulatedLoop

__all__ = ["follow"]


def play_on(make: Callable[..., Awaitable[ReplicaCluster]]) -> Run:
    """Runs each scenario on a cluster that `make` makes from the settings."""

    def play(scenario: Scenario, **settings: Any) -> None:
        async def main() -> None:
            cluster = await make(**settings)
            try:
                await scenario(cluster)
            finally:
                await cluster.close()

        SimulatedLoop().run(main())

    return play


async def in_memory(**settings: Any) -> ReplicaCluster:
    return ReplicaCluster(**settings)


@pytest.fixture
def run() -> Run:
    """`run(scenario, **settings)`: plays a scenario on a fresh cluster, in simulated time, and closes the cluster."""
    return play_on(in_memory)


@pytest.fixture
def run_on_disk(tmp_path: Path) -> Run:
    """Like `run`, over real logs."""
    return play_on(partial(ReplicaCluster.on_disk, str(tmp_path)))


@pytest.fixture(params=["in memory", "on disk"])
def run_on(request: pytest.FixtureRequest, run: Run, run_on_disk: Run) -> Run:
    """Like `run`, once over logs in memory and once over real ones."""
    return run_on_disk if request.param == "on disk" else run
