"""Apache Kafka's brokers under our controller, and ours under Apache Kafka's; the controller changes during work.

One cluster for all of it, in this order: node 100 is klamm's, nodes 1-3 are Apache Kafka's, a producer never stops.
`make mixed-cluster` plays longer, at two protocol versions.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import apache_kafka
from tests.support.cluster import Cluster
from tests.support.mixed_cluster import KAFKA, KLAMM, MixedCluster
from tests.support.mixed_verbs import THREE, HalfDone, LeftBehind, Operator
from tests.support.mixed_world import operated
from tests.support.tool_talk import run_all_tools

from klamm.embedded.nodes import Command, klamm_node


@pytest.fixture(scope="module", autouse=True)
def _kafka() -> None:
    if why := apache_kafka.why_missing():
        pytest.skip(why)


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    with operated(tmp_path_factory.mktemp("mixed"), "3.9") as running:
        yield running


@pytest.fixture(scope="module")
def mixed(operator: Operator) -> MixedCluster:
    return operator.cluster


def test_apache_kafka_brokers_work_under_klamms_controller(operator: Operator, mixed: MixedCluster) -> None:
    assert mixed.controller_id == KLAMM
    began, moved = {0: (1, 2), 1: (2, 3)}, {0: (3, 1), 1: (1, 2)}
    operator.create("orders", began, "retention.ms=3600000")
    operator.produce("orders", began)
    operator.start_moving("orders", moved)
    operator.wait_until_moved("orders", moved)
    operator.elect_preferred("orders", moved)
    operator.grow("orders", {**moved, 2: (2, 3)})
    operator.produce("orders", [2], 10)
    operator.delete("orders")
    operator.load_is_right()


def test_controlled_shutdown_of_an_apache_kafka_broker_succeeds_under_klamms_controller(
    operator: Operator, mixed: MixedCluster
) -> None:
    mixed.stop_node(2)
    assert "Controlled shutdown request returned successfully" in Path(mixed.node(2).output_path).read_text()
    mixed.start_node(2)
    operator.load_is_right()
    operator.elect_preferred(operator.load.topic, THREE)


def test_an_apache_kafka_controller_completes_a_reassignment_and_a_deletion_begun_by_klamm(
    operator: Operator, mixed: MixedCluster
) -> None:
    work = HalfDone(operator, "handed-back")
    work.begin()
    mixed.stop_node(KLAMM)
    assert mixed.wait_for_controller(KAFKA) in KAFKA
    work.is_half_done()
    work.end()
    operator.load_is_right()


def test_a_klamm_broker_leads_and_follows_under_apache_kafkas_controller(
    operator: Operator, mixed: MixedCluster
) -> None:
    assert mixed.controller_id in KAFKA
    mixed.start_node(KLAMM)
    assignment = {0: (KLAMM, 1), 1: (2, KLAMM)}
    operator.create("shared", assignment)
    operator.produce("shared", assignment)
    mixed.kill_node(KLAMM)
    operator.produce("shared", assignment)
    mixed.start_node(KLAMM)
    mixed.wait_until_right("shared", assignment)
    operator.elect_preferred("shared", assignment)
    operator.delete("shared")


def test_a_klamm_controller_completes_a_reassignment_and_a_deletion_begun_by_apache_kafka(
    operator: Operator, mixed: MixedCluster
) -> None:
    work = HalfDone(operator, "taken-over")
    work.begin()
    mixed.reelect(KLAMM)
    work.is_half_done()
    work.end()
    operator.load_is_right()


def test_a_new_klamm_controller_completes_reassignments_and_deletions_pending_in_zookeeper(
    operator: Operator, mixed: MixedCluster
) -> None:
    mixed.move_controller(set(KAFKA))
    holder = mixed.controller_id
    work = LeftBehind(operator, "unseen", *(b for b in KAFKA if b != holder))
    work.begin()
    mixed.become_controller_unseen(KLAMM, work.znodes)
    work.is_ended()
    mixed.wait_until_forgotten(holder)
    mixed.start_node(holder)
    operator.load_is_right()


def test_kafkas_tools_print_the_same_for_a_klamm_cluster_as_for_apache_kafka(
    operator: Operator, mixed: MixedCluster, cluster: Cluster, node_command: Command
) -> None:
    if node_command is not klamm_node:
        pytest.skip("both would be Apache Kafka's")
    mixed.stop_node(KLAMM)
    mixed.wait_for_controller(KAFKA)
    theirs = run_all_tools(operator.tools, mixed, KAFKA)
    ours = run_all_tools(operator.tools, cluster, (1, 2, 3))
    assert ours == theirs


def test_a_mixed_cluster_loses_no_record_and_its_apache_kafka_brokers_log_no_error(
    operator: Operator, mixed: MixedCluster
) -> None:
    operator.load.stop()
    verdict = operator.load.check()
    assert verdict.acknowledged > 0
    assert verdict.is_clean, verdict
    assert not operator.load.failures
    assert {i: mixed.complaints(i) for i in KAFKA} == {i: [] for i in KAFKA}
