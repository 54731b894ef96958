"""A node that is killed is gone at once, long before its ZooKeeper session would expire; a silent node is not."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from kazoo.client import KazooClient
from tests.support.cluster import Cluster
from tests.support.kazoo_clients import kazoo_client

from klamm.cli.commands.explain import run_explain
from klamm.embedded.nodes import Command, NodeProcess, klamm_node
from klamm.explain.sources import Sources
from klamm.runtime.processes import ticks

SESSION_TIMEOUT_S = 60
WELL_BEFORE_S = 30


@pytest.fixture
def slow_to_expire(node_command: Command, tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes whose ZooKeeper sessions outlive each test."""
    if node_command is not klamm_node:
        pytest.skip("Apache Kafka's brokers have no crash guard")
    overrides = {"zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_S * 1000)}
    with Cluster(directory=tmp_path, overrides=overrides) as running:
        yield running


@pytest.fixture
def znodes(slow_to_expire: Cluster) -> Iterator[KazooClient]:
    with kazoo_client(slow_to_expire.zookeeper.connect_string) as client:
        yield client


def guard_of(node: NodeProcess) -> psutil.Process | None:
    """The guard of the node's process; None where it has none, or where it ended in this moment."""
    assert node.child is not None
    for child in psutil.Process(node.child.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # also a zombie that the node has not waited for yet
            if "guard_process.py" in " ".join(child.cmdline()):
                return child
    return None


def wait_until_unregistered(cluster: Cluster, znodes: KazooClient, broker: int) -> None:
    path = f"/brokers/ids/{broker}"
    cluster.wait_until(f"{path} is gone", lambda: znodes.exists(path) is None, WELL_BEFORE_S)


def test_a_killed_node_is_deregistered_before_its_session_timeout_and_explain_names_the_signal(
    slow_to_expire: Cluster, znodes: KazooClient, capsys: pytest.CaptureFixture[str]
) -> None:
    slow_to_expire.create_topic("orders", 6, 3)
    controller = int(slow_to_expire.metadata().controller_id)
    follower = slow_to_expire.node(next(n.broker_id for n in slow_to_expire.nodes if n.broker_id != controller))

    follower.kill()
    slow_to_expire.wait_until_forgotten(follower.broker_id, WELL_BEFORE_S)
    slow_to_expire.node(controller).kill()
    slow_to_expire.wait_until_forgotten(controller, WELL_BEFORE_S)

    assert b'"signal":9' in znodes.get(f"/klamm/process_ends/{follower.broker_id}")[0]
    journals = [node.journal_directory for node in slow_to_expire.nodes]
    for dead in (follower.broker_id, controller):
        assert run_explain(["broker", str(dead)], Sources("nowhere", journals)) == 0
        assert "is gone (its process ended (signal 9); its crash guard reported it)" in capsys.readouterr().out


def test_a_paused_node_stays_registered_while_a_killed_node_is_deregistered(
    slow_to_expire: Cluster, znodes: KazooClient
) -> None:
    silent, killed, _ = slow_to_expire.nodes
    silent.pause()
    killed.kill()
    wait_until_unregistered(slow_to_expire, znodes, killed.broker_id)

    assert znodes.exists(f"/brokers/ids/{silent.broker_id}") is not None
    silent.resume()


def test_a_killed_crash_guard_is_replaced_and_its_replacement_reports_a_node_crash(
    slow_to_expire: Cluster, znodes: KazooClient
) -> None:
    node = slow_to_expire.node(2)
    first = guard_of(node)
    assert first is not None
    first.kill()
    slow_to_expire.wait_until(
        "node 2 has another guard", lambda: (now := guard_of(node)) is not None and now.pid != first.pid
    )

    node.kill()

    wait_until_unregistered(slow_to_expire, znodes, 2)


def test_a_clean_node_stop_ends_the_crash_guard_and_leaves_no_crash_record(
    slow_to_expire: Cluster, znodes: KazooClient
) -> None:
    node = slow_to_expire.node(3)
    guard = guard_of(node)
    assert guard is not None

    node.stop()

    assert any(not guard.is_running() for _ in ticks(WELL_BEFORE_S))
    assert znodes.exists("/klamm/process_ends/3") is None


def test_a_killed_node_without_a_crash_guard_is_deregistered_only_after_its_session_timeout(
    node_command: Command, tmp_path: Path
) -> None:
    if node_command is not klamm_node:
        pytest.skip("Apache Kafka's brokers have no crash guard")
    with Cluster(directory=tmp_path, overrides={"klamm.crash.guard": "false"}) as cluster:
        node = cluster.node(1)
        assert guard_of(node) is None
        node.kill()
        cluster.wait_until_forgotten(1)
