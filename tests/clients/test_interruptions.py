"""Nodes are killed, stopped and frozen under load: nothing acknowledged is lost, doubled or out of order.

A short campaign; `make real-faults` runs the long one.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cluster import SESSION_TIMEOUT_S, Cluster
from tests.support.faults import FaultCampaign
from tests.support.workload import Workload

from klamm.embedded.nodes import Command, klamm_node

TOPIC = "interrupted"
PARTITIONS = 4


@pytest.fixture
def own_cluster(node_command: Command, tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes that a test may break."""
    with Cluster(tmp_path / "cluster", command=node_command) as running:
        running.create_topic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2"})
        yield running


@pytest.fixture
def campaign(own_cluster: Cluster, node_command: Command) -> Iterator[FaultCampaign]:
    """Load on the cluster; at the end it is judged."""
    workload = Workload(own_cluster.bootstrap, TOPIC, PARTITIONS)
    workload.start()
    yield FaultCampaign(own_cluster, workload, restart_at_once=node_command is klamm_node)
    workload.stop()
    verdict = workload.check()
    assert verdict.acknowledged > 0
    assert verdict.is_clean, verdict
    assert not workload.failures


def test_killing_the_controllers_node_loses_no_acknowledged_record(campaign: FaultCampaign) -> None:
    campaign.kill(campaign.choose_node(controller=True))


def test_killing_a_node_other_than_the_controller_loses_no_acknowledged_record(
    campaign: FaultCampaign,
) -> None:
    campaign.kill(campaign.choose_node(controller=False))


def test_a_rolling_restart_loses_no_acknowledged_record(campaign: FaultCampaign) -> None:
    for node in campaign.cluster.nodes:
        campaign.stop(node)


def test_a_zookeeper_outage_loses_no_acknowledged_record(campaign: FaultCampaign) -> None:
    campaign.stop_zookeeper(3)


def test_a_new_controller_is_elected_when_the_controller_is_paused_beyond_its_session_timeout(
    campaign: FaultCampaign,
) -> None:
    frozen = campaign.choose_node(controller=True)

    campaign.freeze(frozen, SESSION_TIMEOUT_S + 3)

    assert campaign.cluster.controller_id != frozen.broker_id


def test_a_node_whose_broker_registration_znode_is_deleted_registers_again(
    campaign: FaultCampaign, node_command: Command
) -> None:
    if node_command is not klamm_node:
        pytest.skip("a broker of Apache Kafka does not notice")
    for node in campaign.cluster.nodes:
        campaign.unregister(node)

    assert campaign.cluster.controller_id > 0
