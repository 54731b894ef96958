"""Reassignments that are called off, or lose a node on their way, under load: nothing acknowledged is lost.

The throttle keeps them from ending before that.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.clients.test_reassignment_under_load import TOOL, plan_file, run
from tests.support import apache_kafka
from tests.support.cluster import SESSION_TIMEOUT_S, Cluster
from tests.support.workload import Workload

from klamm.embedded.nodes import Command, NodeProcess

PARTITIONS = 2
SLOW = 100_000
"""Bytes per second: below what the load brings, so that no new replica ever catches up."""
FAST = 200_000_000


@pytest.fixture(autouse=True)
def _kafka() -> None:
    if why := apache_kafka.why_missing():
        pytest.skip(why)


@pytest.fixture
def own_cluster(node_command: Command, tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster", command=node_command) as running:
        yield running


class Move:
    """The first replica of each partition stays, the other goes to the node that has none."""

    def __init__(self, cluster: Cluster, topic: str, directory: Path) -> None:
        cluster.create_topic(topic, PARTITIONS, 2)
        self.cluster = cluster
        self.load = Workload(cluster.bootstrap, topic, PARTITIONS, 1_000, 1_000)
        self.before = self.replicas()
        self.new = {p: 6 - sum(replicas) for p, replicas in self.before.items()}
        self.wanted = {p: (replicas[0], self.new[p]) for p, replicas in self.before.items()}
        self._plan = plan_file(directory / "plan.json", topic, self.wanted)

    def replicas(self) -> dict[int, tuple[int, ...]]:
        found = self.cluster.metadata().topics[self.load.topic].partitions
        return {p: tuple(found[p].replicas) for p in sorted(found)}

    def isrs(self) -> dict[int, set[int]]:
        found = self.cluster.metadata().topics[self.load.topic].partitions
        return {p: set(found[p].isrs) for p in found}

    def folder(self, partition: int) -> Path:
        """Of the new replica."""
        return Path(self.cluster.node(self.new[partition]).log_directory, f"{self.load.topic}-{partition}")

    def tool(self, *what: str) -> str:
        return run(self.cluster, TOOL, "--reassignment-json-file", self._plan, *what)

    def begin(self) -> None:
        """Until the new replicas are made; what there is by then is more than one answer of a leader holds."""
        self.load.start()
        self.wait_for_records(5_000)
        self.tool("--execute", "--throttle", str(SLOW))
        self.cluster.wait_until("the new replicas are there", lambda: all(self.folder(p).exists() for p in self.new))
        self.assert_under_way()

    def wait_for_records(self, count: int) -> None:
        until = len(self.load.acknowledged) + count
        self.cluster.wait_until(f"{count} more records", lambda: len(self.load.acknowledged) >= until, 60)

    def assert_under_way(self) -> None:
        """Assert that no new replica is in sync yet."""
        assert all(self.new[p] not in isr for p, isr in self.isrs().items())

    def judge(self) -> None:
        """Stop the load, and assert that no acknowledged record is lost."""
        self.load.stop()
        verdict = self.load.check()
        assert verdict.acknowledged > 0
        assert verdict.is_clean, verdict


def test_cancelling_a_reassignment_under_load_restores_the_original_replicas_and_isr(
    cluster: Cluster, tmp_path: Path
) -> None:
    move = Move(cluster, "called-off", tmp_path)
    move.begin()

    said = move.tool("--cancel")

    assert "Successfully cancelled partition reassignments" in said
    assert "Clearing topic-level throttles" in said
    assert "No partition reassignments found" in run(cluster, TOOL, "--list")
    cluster.wait_until("replicas are as before", lambda: move.replicas() == move.before)
    assert move.isrs() == {p: set(replicas) for p, replicas in move.before.items()}
    cluster.wait_until("nothing is left", lambda: not any(move.folder(p).exists() for p in move.new))
    move.wait_for_records(500)
    move.judge()


def test_a_reassignment_completes_although_nodes_are_killed_meanwhile(own_cluster: Cluster, tmp_path: Path) -> None:
    """The controller, and one that receives a replica; the reassignment waits, and ends when it may."""
    move = Move(own_cluster, "survivor", tmp_path)
    move.begin()

    def knows_topic(node: NodeProcess) -> bool:
        return move.load.topic in own_cluster.metadata(node).topics

    for victim in (own_cluster.controller_id, move.new[0]):
        node = own_cluster.node(victim)
        node.kill()
        own_cluster.wait_until_forgotten(victim)
        node.start()
        own_cluster.wait_until_complete(SESSION_TIMEOUT_S + 15)
        own_cluster.wait_until("it has heard of the topic", partial(knows_topic, node))
        move.assert_under_way()
        assert set(move.replicas()[0]) >= set(move.wanted[0])

    move.tool("--execute", "--additional", "--throttle", str(FAST))
    own_cluster.wait_until(
        "every partition is where it should be, and in sync",
        lambda: (
            move.replicas() == move.wanted and move.isrs() == {p: set(replicas) for p, replicas in move.wanted.items()}
        ),
        60,
    )
    assert "Clearing broker-level throttles" in move.tool("--verify")
    move.judge()
