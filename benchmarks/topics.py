"""300 topics x 10 partitions with three replicas on three real nodes: created, all in sync; deleted, znodes gone.

    python -m benchmarks.topics [--topics 300] [--alone]

klamm beside Apache Kafka 3.9.1, one after the other, each on a ZooKeeper of its own; librdkafka asks in requests of 50.
Before each there is a rest: ext4 without a journal gives out no inode that was freed in the last 35 seconds, and looks
at every one of them for each file that is made, so whoever comes next would pay for what was deleted before.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from rich.console import Console
from rich.table import Table
from tests.support import apache_kafka
from tests.support.cluster import Cluster

from klamm.embedded.nodes import Command, klamm_node
from klamm.runtime.processes import ticks

PARTITIONS: Final = 10
COPIES: Final = 3
AT_ONCE: Final = 50
PATIENCE_S: Final = 600.0
QUIET_PERIOD_S: Final = 40.0
BUDGETS_S: Final = {"created, all in sync": 9.0, "deleted, znodes gone": 3.0}
HEADINGS: Final = ("klamm", "budget", "Apache Kafka", "ratio")


def measure(command: Command, count: int) -> dict[str, float]:
    """Step -> seconds, of one system."""
    names = [f"bench-{n:04}" for n in range(count)]
    time.sleep(QUIET_PERIOD_S)
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as directory:
        cluster = Cluster(Path(directory), COPIES, command=command)
        witness = KazooClient(cluster.zookeeper.connect_string)
        try:
            cluster.start()
            witness.start()
            created = timed(lambda: create(cluster, names))
            deleted = timed(lambda: delete(cluster, names, witness))
        finally:
            witness.stop()
            cluster.kill()
    return dict(zip(BUDGETS_S, (created, deleted), strict=True))


def patient_admin_client(cluster: Cluster) -> AdminClient:
    """A client with timeouts that are long enough for Apache Kafka to create fifty topics."""
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "socket.timeout.ms": 300_000, "log_level": 0})


def timed(act: Callable[[], None]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


def create(cluster: Cluster, names: Sequence[str]) -> None:
    admin = patient_admin_client(cluster)
    for start in range(0, len(names), AT_ONCE):
        topics = [
            NewTopic(n, num_partitions=PARTITIONS, replication_factor=COPIES) for n in names[start : start + AT_ONCE]
        ]
        for done in admin.create_topics(topics, request_timeout=PATIENCE_S, operation_timeout=PATIENCE_S).values():
            done.result()

    def in_sync() -> bool:
        found = cluster.metadata().topics
        partitions = [p for n in names if n in found for p in found[n].partitions.values()]
        whole = all(p.leader >= 0 and len(p.isrs) == COPIES for p in partitions)
        return whole and len(partitions) == len(names) * PARTITIONS

    cluster.wait_until("every partition in sync", in_sync, PATIENCE_S)


def delete(cluster: Cluster, names: Sequence[str], witness: KazooClient) -> None:
    admin = patient_admin_client(cluster)
    for start in range(0, len(names), AT_ONCE):
        asked = admin.delete_topics(list(names[start : start + AT_ONCE]), request_timeout=PATIENCE_S)
        for done in asked.values():
            done.result()
    for _ in ticks(PATIENCE_S, 0.05):
        if set(names).isdisjoint(witness.get_children("/brokers/topics")):
            return
    raise AssertionError(f"not all znodes were gone after {PATIENCE_S:g} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=300)
    parser.add_argument("--alone", action="store_true", help="without Apache Kafka")
    asked = parser.parse_args()
    console = Console(width=110)
    why = apache_kafka.why_missing()
    if why and not asked.alone:
        console.print(f"Apache Kafka is left out: {why}")
    ours = measure(klamm_node, asked.topics)
    theirs = {} if asked.alone or why else measure(apache_kafka.broker(apache_kafka.BROKER_JAVA), asked.topics)
    table = Table("step", title=f"{asked.topics} topics x {PARTITIONS}, {COPIES} replicas, three nodes (seconds)")
    for heading in HEADINGS:
        table.add_column(heading, justify="right")
    for step, budget in BUDGETS_S.items():
        took, peer = ours[step], theirs.get(step)
        kept = f"{budget:g} {'kept' if took <= budget else 'MISSED'}"
        table.add_row(step, f"{took:.1f}", kept, *(("", "") if peer is None else (f"{peer:.1f}", f"{peer / took:.1f}")))
    console.print(table)


if __name__ == "__main__":
    main()
