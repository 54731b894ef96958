"""kcat 1.7 unmodified: produces with keys and headers, lists metadata, reads from offsets and times, shares a topic."""

import json
import subprocess
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.support.cluster import Cluster
from tests.support.foreign_clients import ClientProcess
from tests.support.kcat import kcat, why_missing

TIMEOUT_S = 60
PARTITIONS = 3
FORMAT = "%p %o %T %k %h %s\n"


@pytest.fixture(scope="module", autouse=True)
def fetched() -> None:
    """Skip the tests where there is no kcat."""
    if why := why_missing():
        pytest.skip(why)


def run_kcat(cluster: Cluster, *words: str, text: str = "") -> str:
    """What kcat prints."""
    done = subprocess.run(
        [kcat().program, "-b", cluster.bootstrap, *words],
        env=kcat().environment,
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
    cluster.create_topic(own_name, PARTITIONS)
    return own_name


def produce(cluster: Cluster, topic: str) -> None:
    """Three records into each partition, with acks=all and idempotence."""
    for partition in range(PARTITIONS):
        lines = "".join(f"key-{n}:value-{n}\n" for n in range(3))
        run_kcat(cluster, "-P", "-t", topic, "-p", str(partition), "-K", ":", "-H", "h=x", "-z", "zstd",
             "-X", "enable.idempotence=true", text=lines)  # fmt: skip


def test_kcat_reads_its_own_records_from_a_given_offset_the_log_end_or_a_timestamp(
    cluster: Cluster, topic: str
) -> None:
    produce(cluster, topic)
    read = ("-C", "-q", "-e", "-t", topic, "-p", "1")

    everything = [line.split() for line in run_kcat(cluster, *read, "-o", "beginning", "-f", FORMAT).splitlines()]
    assert [(p, o, k, h, s) for p, o, _, k, h, s in everything] == [
        ("1", str(n), f"key-{n}", "h=x", f"value-{n}") for n in range(3)
    ]
    assert run_kcat(cluster, *read, "-o", "2", "-f", "%o\n") == "2\n"
    assert run_kcat(cluster, *read, "-o", "-2", "-f", "%o\n") == "1\n2\n"
    assert run_kcat(cluster, *read, "-o", f"s@{everything[0][2]}", "-f", "%o\n") == "0\n1\n2\n"
    found = json.loads(run_kcat(cluster, *read, "-o", "0", "-c", "1", "-J"))
    assert (found["topic"], found["partition"], found["offset"], found["key"]) == (topic, 1, 0, "key-0")
    assert run_kcat(cluster, "-Q", "-t", f"{topic}:0:-1").strip().endswith("offset 3")


def test_kcat_produces_its_input_in_one_transaction(cluster: Cluster, topic: str) -> None:
    run_kcat(cluster, "-P", "-t", topic, "-p", "0", "-X", f"transactional.id={topic}", text="1\n2\n")

    read = ("-C", "-q", "-e", "-t", topic, "-p", "0", "-o", "beginning", "-f", "%s\n")
    assert run_kcat(cluster, *read, "-X", "isolation.level=read_committed") == "1\n2\n"
    assert cluster.offsets(topic)[0] == (0, 3), "two records and the marker of the commit"


def test_kcat_lists_klamms_brokers_and_partitions(cluster: Cluster, topic: str) -> None:
    listed: Any = json.loads(run_kcat(cluster, "-L", "-J", "-t", topic))

    assert {broker["name"] for broker in listed["brokers"]} == {node.address for node in cluster.nodes}
    [described] = listed["topics"]
    assert {p["partition"]: [r["id"] for r in p["replicas"]] for p in described["partitions"]} == {
        number: list(p.replicas) for number, p in cluster.describe([topic]).topics[topic].partitions.items()
    }


def test_two_remaining_kcat_members_take_over_the_partitions_of_a_killed_third_member(
    cluster: Cluster, topic: str, tmp_path: Path, client_rounds: int
) -> None:
    if client_rounds == 1:
        pytest.skip("`make prove` runs it; confluent-kafka uses the groups of librdkafka in each run")
    produce(cluster, topic)
    words = [kcat().program, "-b", cluster.bootstrap, "-u", "-q", "-J", "-X", "auto.offset.reset=earliest",
             "-X", "session.timeout.ms=6000", "-X", "auto.commit.interval.ms=200", "-G", topic, topic]  # fmt: skip
    members: list[ClientProcess] = []
    group = cluster.group(topic)

    def start_until_three() -> list[int]:
        """Start members until there are three; how many partitions each has once the group is stable."""
        while len(members) < 3:
            members.append(ClientProcess(tmp_path, str(uuid4()), words, kcat().environment))
        return sorted(len(m.partitions) for m in group.wait_until_stable(3).members)

    try:
        for _ in range(client_rounds):
            assert start_until_three() == [1, 1, 1]
            group.wait_until_caught_up(topic)
            members.pop(0).kill()
            produce(cluster, topic)
            left = group.wait_until_stable(2).members
            assert sorted(len(m.partitions) for m in left) == [1, 2]
            group.wait_until_caught_up(topic)
    finally:
        for member in members:
            member.kill()
    values = [json.loads(line) for path in tmp_path.glob("*.jsonl") for line in path.read_text().splitlines()]
    read = {(found["partition"], found["offset"]) for found in values}
    assert read == {(p, o) for p, (_, end) in cluster.offsets(topic).items() for o in range(end)}
