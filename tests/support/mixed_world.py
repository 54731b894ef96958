"""A mixed cluster with its load and an operator at work, in one `with`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.kafka_tools import kafka_tools
from tests.support.mixed_cluster import KLAMM, MixedCluster
from tests.support.mixed_verbs import THREE, Operator
from tests.support.workload import Workload

RATE = 30
TOPIC = "load"


@contextmanager
def operated(directory: Path, protocol: str, *, second_directory: int | None = None) -> Iterator[Operator]:
    """A mixed cluster with klamm's controller, three Apache Kafka brokers, a constant load, and an operator."""
    cluster = MixedCluster(directory, protocol)
    if second_directory is not None:
        cluster.add_log_directory(second_directory)
    try:
        cluster.start_first(KLAMM)
        cluster.start_others()
        # groups meet at brokers that serve them, so this topic must not get replicas on node 100
        cluster.create("__consumer_offsets", {p: THREE[p] for p in range(3)}, {"cleanup.policy": "compact"})
        cluster.create(TOPIC, THREE, {"min.insync.replicas": "2"})
        load = Workload(cluster.bootstrap, TOPIC, len(THREE), RATE)
        load.start()
        yield Operator(cluster, kafka_tools(), load, directory)
    finally:
        cluster.kill()
