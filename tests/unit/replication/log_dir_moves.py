"""Brokers with two log directories each, and what moves of replicas between them need."""

import asyncio
import os
from typing import cast

from tests.support.replica_cluster import P0, ReplicaCluster
from tests.unit.replication.runs import Run, Scenario

from klamm.log.log import Log
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.replication.replica_manager import ReplicationSettings

NONE = ErrorCode.NONE
SMALL_CHUNKS = ReplicationSettings(replica_fetch_max_bytes=100)


def with_two_directories(run_on_disk: Run) -> Run:
    """Plays a scenario on brokers with two log directories each."""

    def play(scenario: Scenario, **settings: object) -> None:
        run_on_disk(scenario, directory_count=2, **settings)

    return play


def directories(cluster: ReplicaCluster, broker: int = 1) -> list[str]:
    found: list[str] = cluster.logs[broker].directories
    return found


def names_in(directory: str) -> list[str]:
    """The directories of partitions in a log directory, without unique parts."""
    return sorted(n.split(".")[0] + "-" + n.rpartition("-")[2] for n in os.listdir(directory) if n.startswith("orders"))


def log_of(cluster: ReplicaCluster, broker: int = 1) -> Log:
    return cast(Log, cluster.log(broker))


async def with_records(cluster: ReplicaCluster, count: int = 20, leader: int = 1) -> None:
    await cluster.elect(leader)
    for number in range(count):
        assert await cluster.produce(leader, b"%d" % number) is NONE
    await asyncio.sleep(1)


async def alter(cluster: ReplicaCluster, directory: str, broker: int = 1, tp: TopicPartition = P0) -> ErrorCode:
    return (await cluster.brokers[broker].alter_log_dirs({tp: directory}))[tp]


async def wait_until_moved(cluster: ReplicaCluster, directory: str, broker: int = 1) -> None:
    for _ in range(5_000):
        if cluster.logs[broker].manager.directory_of(P0) == directory:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{P0} is not in {directory}")
