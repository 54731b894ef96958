"""`klamm replicas verify` as a function: what differs between the replicas of a cluster."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from klamm.audit.replicas.partitions import PartitionReplicas, fetched_partitions, stored_partitions
from klamm.audit.replicas.verification import verify_partition
from klamm.client.blocking import BlockingClient, BlockingSettings
from klamm.model.cluster import parse_addresses
from klamm.runtime.blocking import RealBlockingWorld
from klamm.runtime.disk import RealDisk

TIMEOUT_S = 30.0


class Verification(NamedTuple):
    """How many offsets were compared, and each difference, or replica that could not be read, as text."""

    partitions: int
    offsets: int
    problems: list[str]

    def __str__(self) -> str:
        return f"{self.offsets} offsets of {self.partitions} partitions compared"


def verify_running(bootstrap: str, topics: Sequence[str] = ()) -> Verification:
    """Compare the replicas of a running cluster by Fetch; all topics, or these."""
    settings = BlockingSettings("tests", TIMEOUT_S, TIMEOUT_S)
    with BlockingClient(RealBlockingWorld(), parse_addresses(bootstrap), settings) as client:
        return _verify(fetched_partitions(client, topics, TIMEOUT_S))


def verify_stored(log_dirs: Sequence[str]) -> Verification:
    """Compare the replicas in the log directories of stopped brokers."""
    return _verify(stored_partitions(RealDisk(), log_dirs, ()))


def _verify(partitions: Iterable[PartitionReplicas]) -> Verification:
    """Compare the replicas of all these partitions."""
    count, offsets, problems = 0, 0, []
    for found in partitions:
        result = verify_partition(found.partition, found.replicas)
        count += 1
        offsets += result.end - result.start
        problems += [f"{d.partition} at {d.offset}, {', '.join(d.replicas)}: {d.problem}" for d in result.divergences]
        problems += [f"{found.partition} not compared: {text}" for text in (*found.missing, *result.unavailable)]
    return Verification(count, offsets, problems)
