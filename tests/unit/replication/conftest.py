"""Clusters of replica managers in simulated time."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.replica_cluster import ReplicaCluster
from tests.unit.replication.runs import Run, Scenario
from tests.unit.replication.scripted_leader import follow

from klamm.sim.loop import SimulatedLoop

__all__ = ["follow"]


@pytest.fixture
def run() -> Run:
    """`run(scenario, **settings)`: plays a scenario on a fresh cluster, in simulated time, and closes the cluster."""

    def play(scenario: Scenario, **settings: Any) -> None:
        async def main() -> None:
            cluster = ReplicaCluster(**settings)
            try:
                await scenario(cluster)
            finally:
                await cluster.close()

        SimulatedLoop().run(main())

    return play


@pytest.fixture(params=["in memory", "on disk"])
def run_on(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Like `run`, once over logs in memory and once over real ones."""

    def play(scenario: Scenario, **settings: Any) -> None:
        async def main() -> None:
            if request.param == "on disk":
                cluster = await ReplicaCluster.on_disk(str(tmp_path), **settings)
            else:
                cluster = ReplicaCluster(**settings)
            try:
                await scenario(cluster)
            finally:
                await cluster.close()

        SimulatedLoop().run(main())

    return play


@pytest.fixture
def run_on_disk(tmp_path: Path) -> Run:
    """Like `run`, over real logs."""

    def play(scenario: Scenario, **settings: Any) -> None:
        async def main() -> None:
            cluster = await ReplicaCluster.on_disk(str(tmp_path), **settings)
            try:
                await scenario(cluster)
            finally:
                await cluster.close()

        SimulatedLoop().run(main())

    return play
