"""A node whose disk is full: the cluster goes on, nothing promised is lost, and with room again the node comes back."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cluster import Cluster
from tests.support.records import check_each_record_once, make_records
from tests.support.witnesses import Confluent

from klamm.embedded.nodes import Command

TOPIC = "filling"
SMALL_MB = 8
RECORDS_PER_ROUND = 10_000
ROUNDS = 20
"""Enough to fill the small disk about twice."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The directory of node 1 as a file system of its own that is soon full."""
    directory = tmp_path / "cluster" / "node-1"
    directory.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_MB}m", "klamm-test", str(directory)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system of its own cannot be mounted here, so no full disk is tried")
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


def test_acknowledged_records_survive_a_full_disk_and_the_node_recovers(
    small_disk: Path, node_command: Command
) -> None:
    cluster = Cluster(small_disk.parent, command=node_command, overrides={"log.index.size.max.bytes": "65536"})
    try:
        cluster.start()
        cluster.create_topic(TOPIC, 1, 3, {"min.insync.replicas": "2"})
        records = make_records(RECORDS_PER_ROUND * ROUNDS)
        client = Confluent()

        for i in range(ROUNDS):
            client.send(
                cluster.bootstrap, TOPIC, records[i * RECORDS_PER_ROUND : (i + 1) * RECORDS_PER_ROUND], "none", True
            )

        free = os.statvfs(small_disk)
        assert free.f_bavail * free.f_frsize < 1 << 20, "the disk did not fill"
        subprocess.run(["mount", "-o", "remount,size=512m", str(small_disk)], check=True)
        cluster.nodes[0].stop()
        cluster.wait_until_forgotten(1)
        cluster.nodes[0].start()
        cluster.wait_until_in_sync(TOPIC, 1, 3)
        check_each_record_once(records, client.read(cluster.bootstrap, TOPIC, 1, len(records)))
    finally:
        cluster.kill()
