"""Kafka's own tools move partitions and leaders of a cluster under load: nothing acknowledged is lost."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from tests.support import apache_kafka
from tests.support.cluster import Cluster
from tests.support.kafka_tools import kafka_tools
from tests.support.workload import Workload

from klamm.runtime.processes import ticks

PARTITIONS = 4
RATE = 200
TOOL = "kafka-reassign-partitions"
ELECTION = "kafka-leader-election"


@pytest.fixture(autouse=True)
def _kafka() -> None:
    if why := apache_kafka.why_missing():
        pytest.skip(why)


@pytest.fixture
def load(cluster: Cluster) -> Iterator[Workload]:
    """On a topic with two replicas; at the end it is judged."""
    cluster.create_topic("moved", PARTITIONS, 2)
    workload = Workload(cluster.bootstrap, "moved", PARTITIONS, RATE)
    workload.start()
    yield workload
    workload.stop()
    verdict = workload.check()
    assert verdict.acknowledged > 0
    assert verdict.is_clean, verdict


def run(cluster: Cluster, tool: str, *arguments: str) -> str:
    return kafka_tools().run(cluster.bootstrap, tool, *arguments)


def plan_file(path: Path, topic: str, replicas: Mapping[int, Sequence[int]]) -> str:
    listed = [{"topic": topic, "partition": p, "replicas": list(r)} for p, r in replicas.items()]
    path.write_text(json.dumps({"version": 1, "partitions": listed}))
    return str(path)


def test_a_reassignment_by_kafkas_tool_under_load_completes_without_record_loss(
    cluster: Cluster, load: Workload, tmp_path: Path
) -> None:
    wanted = {0: (3, 1), 1: (2, 3), 2: (1, 2), 3: (3, 2)}
    plan = plan_file(tmp_path / "plan.json", load.topic, wanted)

    said = run(cluster, TOOL, "--reassignment-json-file", plan, "--execute", "--throttle", "50000000")
    assert "Successfully started partition reassignments" in said
    for _ in ticks(60, 1):
        said = run(cluster, TOOL, "--reassignment-json-file", plan, "--verify")
        if said.count("is completed") == PARTITIONS:
            break

    assert said.count("is completed") == PARTITIONS, said
    assert "Clearing topic-level throttles" in said
    assert "No partition reassignments found" in run(cluster, TOOL, "--list")
    found = cluster.metadata().topics[load.topic].partitions
    assert {p: tuple(found[p].replicas) for p in found} == wanted

    for partition, replicas in wanted.items():
        [gone] = {1, 2, 3} - set(replicas)
        assert not Path(cluster.node(gone).log_directory, f"{load.topic}-{partition}").exists()

    said = run(cluster, ELECTION, "--election-type", "preferred", "--all-topic-partitions")
    assert "Error" not in said, said
    cluster.wait_until(
        "the preferred replicas lead",
        lambda: all(p.leader == wanted[n][0] for n, p in cluster.metadata().topics[load.topic].partitions.items()),
    )
