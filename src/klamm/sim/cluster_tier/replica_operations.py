"""What operators do with single partitions: requests that a certain broker has to serve."""

import asyncio
from typing import Any, Final

from klamm.client.errors import UnsupportedVersion
from klamm.client.versions import Request
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.sim.actions import Draw
from klamm.sim.cluster_tier.clients.locator import Locator
from klamm.sim.cluster_tier.node import PORT, log_directories
from klamm.sim.cluster_tier.operations import OperatedCluster, partitions_of, topics_of
from klamm.sim.cluster_tier.trace import RecordsDeleted
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

_TIMEOUT_MS: Final = 5_000
_NOTHING_DONE: Final = frozenset({
    ErrorCode.LOG_DIR_NOT_FOUND,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
})  # fmt: skip
"""Answers to AlterReplicaLogDirs after which the replica stays where it is."""


async def move_log(cluster: OperatedCluster, draw: Draw) -> None:
    """A replica moves to another log directory of its broker; the directory that it has cancels the move."""
    replicas = sorted((p, n) for p in cluster.history.states.versions for n in cluster.history.topics.replicas(p))
    directories = log_directories(cluster.topic_size[1])
    chosen: list[Any] = draw("replica", lambda rng: list(_flat(rng.choice(replicas))) if replicas else [])
    directory = draw("directory", lambda rng: rng.choice(directories))
    if not chosen or len(directories) == 1:
        return
    topic, number, node = chosen
    p = TopicPartition(topic, number)
    topics = [AlterReplicaLogDirTopic(topic, (number,))]
    request = AlterReplicaLogDirsRequest([AlterReplicaLogDir(directory, topics)])
    cluster.log(f"the replica of {p} on node {node} moves to {directory}")
    try:
        answer = await cluster.operator.ask(
            Address(f"node-{node}", PORT), Request(ApiKey.ALTER_REPLICA_LOG_DIRS, request)
        )
    except (KlammError, UnsupportedVersion, OSError):
        cluster.tier.on_move(node, p, directory, is_accepted=False)
        raise
    error = ErrorCode(answer.results[0].partitions[0].error_code)
    if error not in _NOTHING_DONE:
        cluster.tier.on_move(node, p, directory, is_accepted=error is ErrorCode.NONE)
    if error:
        cluster.log(f"node {node} does not move its replica of {p}: {error.name}")


async def delete_records(cluster: OperatedCluster, draw: Draw) -> None:
    """The records of a partition are deleted before one of those that were acknowledged or read."""
    known = sorted(p for name in topics_of(cluster)[1:] for p in partitions_of(cluster, name))
    chosen: list[Any] = draw("partition", lambda rng: list(rng.choice(known)) if known else [])
    part = draw("part", lambda rng: rng.choice((rng.random(), 1.0)))
    if not chosen:
        return
    p = TopicPartition(*chosen)
    end = max(cluster.tier.committed.get(p, {}), default=-1) + 1
    offset = int(part * end)
    cluster.log(f"the records of {p} before {offset} are deleted")
    topics = [DeleteRecordsTopic(p.topic, [DeleteRecordsPartition(p.partition, offset)])]
    request = Request(ApiKey.DELETE_RECORDS, DeleteRecordsRequest(topics, _TIMEOUT_MS))
    leader = await Locator(cluster.operator).leader(p)
    cluster.tier.deleted_before[p] = max(offset, cluster.tier.deleted_before.get(p, 0))
    answer = await cluster.operator.ask(leader.address, request, _TIMEOUT_MS / 1000 + 1)
    result = answer.topics[0].partitions[0]
    if result.error_code:
        cluster.log(f"the records of {p} are not deleted: {ErrorCode(result.error_code).name}")
        return
    runs = {int(n): cluster.tier.runs.get(n, 0) for n in cluster.tier.isr(p)}
    deleted = RecordsDeleted(p, offset, asyncio.get_running_loop().time(), runs)
    cluster.tier.on_records_deleted(deleted)


def _flat(replica: tuple[TopicPartition, int]) -> tuple[str, int, int]:
    """Topic, partition and broker of a replica."""
    (topic, number), node = replica
    return topic, number, node
