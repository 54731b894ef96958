"""The pytest plugin and `Cluster` as their users have them: projects of their own, run by a pytest of their own."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from tests.support.ended_processes import all_gone

from klamm.cli.admin.offset_resets import ResetKind
from klamm.model.errors import UsageError
from klamm.model.ids import TopicPartition
from klamm.runtime.processes import ticks
from klamm.testing.cluster import Cluster
from klamm.testing.errors import RequestFailed

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "testing"
SHARED_BREAKS = """
import pytest


def test_a_breaks_the_shared_cluster_and_fails(klamm_cluster):
    klamm_cluster.node(2).kill()
    klamm_cluster.node(3).pause()
    klamm_cluster.zookeeper.pause()
    assert "kept" == "broken"


def test_b_finds_it_repaired(klamm_cluster, klamm_topic, klamm_group):
    assert klamm_cluster.is_whole
    assert klamm_cluster.partition_state(klamm_topic, 1).isr == klamm_cluster.partition_state(klamm_topic, 1).replicas
    assert klamm_group.describe().state == "Dead"
    assert klamm_topic != klamm_group.name
    assert {broker.rack for broker in klamm_cluster.describe().brokers.values()} == {"a", "b"}


@pytest.mark.klamm(brokers=1, overrides={"broker.rack": "c"})
@pytest.mark.klamm_topic(partitions=2, config={"retention.ms": "5000"})
def test_c_has_a_cluster_and_a_topic_as_its_markers_say(klamm_own_cluster, klamm_topic):
    described = klamm_own_cluster.describe()
    assert [broker.rack for broker in described.brokers.values()] == ["c"]
    assert len(described.topics[klamm_topic].partitions) == 2
"""
WAITS = """
import pathlib


def test_waits_until_killed(klamm_cluster):
    pathlib.Path("ready").touch()
    import time

    time.sleep(600)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An empty project, and an installation that declares what pyproject.toml declares to pytest."""
    installed = tmp_path / "installed" / "klamm_plugin-0.dist-info"
    installed.mkdir(parents=True)
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: klamm-plugin\nVersion: 0\n")
    lines = [f"{name} = {module}" for name, module in declared.items()]
    (installed / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]))
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


def run_pytest(project: Path, *arguments: str) -> "subprocess.Popen[str]":
    paths = [str(project.parent / "installed"), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            f"--basetemp={project.parent / 'temporary'}",
            *arguments,
        ],
        cwd=project,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def node_directories(project: Path) -> list[Path]:
    return list((project.parent / "temporary").rglob("node-*"))


def test_the_documented_pytest_example_passes_with_two_pytest_workers_and_removes_its_data(project: Path) -> None:
    shutil.copy(EXAMPLE / "test_orders.py", project / "test_orders.py")
    shutil.copy(EXAMPLE / "test_orders.py", project / "test_more_orders.py")
    (project / "pytest.ini").write_text("[pytest]\nklamm_overrides =\n    zookeeper.session.timeout.ms=2000\n")

    with run_pytest(project, "-n", "2") as run:
        output, _ = run.communicate(timeout=120)

    assert run.returncode == 0, output
    assert "2 passed" in output
    assert node_directories(project) == []


def test_the_documentation_page_on_testing_contains_the_pytest_example() -> None:
    assert (EXAMPLE / "test_orders.py").read_text() in (ROOT / "docs" / "testing.md").read_text()


def test_a_failed_test_reports_node_logs_and_the_shared_cluster_is_repaired_afterwards(project: Path) -> None:
    (project / "test_shared.py").write_text(SHARED_BREAKS)
    settings = [
        "[pytest]",
        "klamm_racks = a b",
        "klamm_overrides =",
        "    num.partitions=7",
        "addopts = --strict-markers",
    ]
    (project / "pytest.ini").write_text("\n".join(settings))

    with run_pytest(project) as run:
        output, _ = run.communicate(timeout=120)

    assert "1 failed, 2 passed" in output, output
    assert re.search(r"-+ log of node 2 \(ended with status -9\) -+\n.*level=info", output), output
    assert "log of ZooKeeper (running)" in output


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
def test_a_killed_pytest_run_leaves_no_node_or_zookeeper_process(project: Path) -> None:
    (project / "test_waits.py").write_text(WAITS)
    with run_pytest(project) as run:
        assert any((project / "ready").exists() for _ in ticks(60, 0.1))
        processes = psutil.Process(run.pid).children(recursive=True)
        assert len(processes) >= 4

        run.kill()

        assert any(all_gone(processes) for _ in ticks(20))


@pytest.fixture(scope="module")
def partitionable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes with proxies between them; short timeouts, so that a dead node is noticed soon."""
    overrides = {"zookeeper.session.timeout.ms": "2000", "offsets.topic.num.partitions": "1"}
    with Cluster(tmp_path_factory.mktemp("partitionable"), overrides=overrides, network_faults=True) as running:
        yield running


def test_a_leader_cut_off_by_a_network_partition_is_replaced_and_follows_after_healing(partitionable: Cluster) -> None:
    cluster = partitionable
    cluster.create_topic("led", 1, config={"min.insync.replicas": "2"})
    old = cluster.partition_state("led").leader
    other = next(node for node in cluster.nodes if node.broker_id != old)

    cluster.partition(old)
    assert not cluster.is_whole
    cluster.wait_until(
        "another node leads",
        lambda: cluster.describe(["led"], other).topics["led"].partitions[0].leader not in (-1, old),
    )
    assert cluster.describe(["led"], cluster.node(old)).topics["led"].partitions[0].leader == old  # it cannot know
    producer = Producer({"bootstrap.servers": other.address, "acks": "all", "log_level": 0})
    producer.produce("led", b"meanwhile")
    assert producer.flush(30) == 0
    cluster.join()

    cluster.wait_until_in_sync("led", 1, 3)
    assert cluster.is_whole
    assert cluster.partition_state("led").leader != old
    assert cluster.offsets("led") == {0: (0, 1)}
    assert any("led" in line for line in cluster.explain("led-0"))


def test_group_helpers_of_the_test_cluster_commit_read_reset_and_delete_offsets(partitionable: Cluster) -> None:
    cluster = partitionable
    cluster.create_topic("read", 2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number in range(10):
        producer.produce("read", b"x", partition=number % 2)
    assert producer.flush(30) == 0
    group = cluster.group("readers")
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group.name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe(["read"])
    assert len(consumer.consume(10, 60)) == 10
    consumer.commit(asynchronous=False)

    [member] = group.wait_until_stable(1).members
    group.wait_until_caught_up("read")
    both = [TopicPartition("read", 0), TopicPartition("read", 1)]
    assert sorted(member.partitions) == both
    assert (group.offsets(), group.lag()) == (dict.fromkeys(both, 5), dict.fromkeys(both, 0))
    with pytest.raises(RequestFailed, match="UNKNOWN_MEMBER_ID"):
        group.reset("read")

    consumer.close()
    group.wait_until_empty()
    assert group.reset("read") == dict.fromkeys(both, 0)
    assert group.reset("read", ResetKind.OFFSET, 3) == group.offsets() == dict.fromkeys(both, 3)
    assert group.lag() == dict.fromkeys(both, 2)
    group.delete()
    assert (group.describe().state, group.offsets()) == ("Dead", {})


async def test_the_test_cluster_can_be_used_in_asyncio_tests(partitionable: Cluster) -> None:
    cluster = partitionable
    await asyncio.to_thread(cluster.create_topic, "awaited", 1)
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all")
    await producer.start()
    leader = cluster.node(cluster.partition_state("awaited").leader)  # blocks the loop of the test, and works

    await asyncio.to_thread(leader.restart)
    await producer.send_and_wait("awaited", b"x")
    await producer.stop()

    await asyncio.to_thread(cluster.wait_until_in_sync, "awaited", 1, 3)
    assert cluster.offsets("awaited") == {0: (0, 1)}


def test_requests_refused_by_the_test_cluster_raise_an_error_with_kafkas_error_name(partitionable: Cluster) -> None:
    with pytest.raises(RequestFailed, match="INVALID_REPLICATION_FACTOR"):
        partitionable.create_topic("large", copies=9)
    with pytest.raises(RequestFailed, match="UNKNOWN_TOPIC_OR_PARTITION"):
        partitionable.delete_topic("nothing")
    for _ in range(3):  # the name is free at once
        partitionable.create_topic("short", 9)
        partitionable.delete_topic("short")
        assert "short" not in partitionable.describe().topics


def test_a_network_partition_of_a_test_cluster_started_without_network_faults_is_refused(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)

    with pytest.raises(UsageError, match="network_faults=True"):
        cluster.partition(1)
    with pytest.raises(UsageError, match="network_faults=True"):
        cluster.join()
    cluster.kill()


def test_a_node_that_the_test_cluster_does_not_have_is_refused_with_the_ids_that_it_has(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)

    with pytest.raises(UsageError, match="no node 0: the nodes of this cluster are 1 to 3"):
        cluster.node(0)
    cluster.kill()


def test_zookeeper_of_the_test_cluster_can_be_paused_and_restarted_like_a_node(partitionable: Cluster) -> None:
    cluster = partitionable
    cluster.create_topic("before", 1)

    cluster.zookeeper.pause()
    assert (cluster.is_whole, cluster.zookeeper.is_paused) == (False, True)
    cluster.zookeeper.resume()
    assert cluster.is_whole
    cluster.zookeeper.restart()

    cluster.create_topic("after", 1)
    assert {"before", "after"} <= cluster.describe().topics.keys()


def test_configs_of_topics_in_the_test_cluster_may_be_numbers_and_truth_values(partitionable: Cluster) -> None:
    partitionable.create_topic("numbers", 1, config={"min.insync.replicas": 2, "preallocate": True})

    assert "numbers" in partitionable.describe().topics


def test_a_test_cluster_without_nodes_is_refused() -> None:
    with pytest.raises(UsageError, match="brokers=0: a cluster needs at least one node"):
        Cluster(brokers=0)


def test_wait_until_of_the_test_cluster_fails_with_a_description_of_the_condition(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)

    with pytest.raises(AssertionError, match="gave up after 0 s of waiting until pigs fly"):
        cluster.wait_until("pigs fly", lambda: False, 0)
    cluster.kill()


def test_a_test_cluster_without_a_given_directory_removes_its_data_at_the_end() -> None:
    cluster = Cluster(brokers=1)
    assert Path(cluster.directory).is_dir()

    cluster.kill()

    assert not Path(cluster.directory).exists()
