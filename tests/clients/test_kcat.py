"""kcat 1.7 unmodified: produces with keys and headers, lists metadata, reads from offsets and times, shares a topic."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster import Cluster
from tests.support.foreign_clients import ClientProcess

TIMEOUT_S = 60
FORMAT = "%p %o %T %k %h %s\n"
PROGRAM = shutil.which("kcat") or shutil.which("kafkacat")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="kcat is not installed")


def kcat(cluster: Cluster, *words: str, text: str = "") -> str:
    done = subprocess.run(
        [str(PROGRAM), "-b", cluster.bootstrap, *words],
        input=text,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def topic(cluster: Cluster, own_name: str) -> str:
    cluster.create_topic(own_name, 2)
    return own_name


def produce(cluster: Cluster, topic: str) -> None:
    """Three records into each partition, with acks=all and idempotence."""
    for partition in (0, 1):
        lines = "".join(f"key-{n}:value-{n}\n" for n in range(3))
        kcat(cluster, "-P", "-t", topic, "-p", str(partition), "-K", ":", "-H", "h=x", "-z", "zstd",
             "-X", "enable.idempotence=true", text=lines)  # fmt: skip


def test_kcat_reads_its_own_records_from_a_given_offset_the_log_end_or_a_timestamp(
    cluster: Cluster, topic: str
) -> None:
    produce(cluster, topic)
    read = ("-C", "-q", "-e", "-t", topic, "-p", "1")

    everything = [line.split() for line in kcat(cluster, *read, "-o", "beginning", "-f", FORMAT).splitlines()]
    assert [(p, o, k, h, s) for p, o, _, k, h, s in everything] == [
        ("1", str(n), f"key-{n}", "h=x", f"value-{n}") for n in range(3)
    ]
    assert kcat(cluster, *read, "-o", "2", "-f", "%o\n") == "2\n"
    assert kcat(cluster, *read, "-o", "-2", "-f", "%o\n") == "1\n2\n"
    assert kcat(cluster, *read, "-o", f"s@{everything[0][2]}", "-f", "%o\n") == "0\n1\n2\n"
    found = json.loads(kcat(cluster, *read, "-o", "0", "-c", "1", "-J"))
    assert (found["topic"], found["partition"], found["offset"], found["key"]) == (topic, 1, 0, "key-0")
    assert kcat(cluster, "-Q", "-t", f"{topic}:0:-1").strip().endswith("offset 3")


def test_kcat_lists_klamms_brokers_and_partitions(cluster: Cluster, topic: str) -> None:
    listed: Any = json.loads(kcat(cluster, "-L", "-J", "-t", topic))

    assert {broker["name"] for broker in listed["brokers"]} == {node.address for node in cluster.nodes}
    [described] = listed["topics"]
    assert {p["partition"]: [r["id"] for r in p["replicas"]] for p in described["partitions"]} == {
        number: list(p.replicas) for number, p in cluster.describe([topic]).topics[topic].partitions.items()
    }


def test_kcat_group_members_share_a_topic_and_take_over_from_a_killed_member(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    produce(cluster, topic)
    words = [str(PROGRAM), "-b", cluster.bootstrap, "-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000",
             "-X", "auto.commit.interval.ms=200", "-u", "-q", "-J", "-G", topic, topic]  # fmt: skip
    members = [ClientProcess(tmp_path, f"member-{number}", words) for number in range(2)]
    group = cluster.group(topic)
    try:
        owned = [m.partitions for m in group.wait_until_stable(2).members]
        assert sorted(len(partitions) for partitions in owned) == [1, 1]
        group.wait_until_caught_up(topic)
        members[0].kill()
        produce(cluster, topic)
        [left] = group.wait_until_stable(1).members
        assert len(left.partitions) == 2
        group.wait_until_caught_up(topic)
    finally:
        for member in members:
            member.kill()
