"""`klamm node stop`: the risk is said before anything is done, and then the node is gone, or is not."""

import json

import pytest
from tests.support.cluster import Cluster

from klamm.embedded.nodes import Command, klamm_node
from klamm.runtime.processes import python, run


@pytest.fixture(autouse=True)
def _klamm(node_command: Command) -> None:
    if node_command is not klamm_node:
        pytest.skip("only klamm's nodes leave their process id")


def stop(cluster: Cluster, broker: int, *options: str) -> tuple[int, str]:
    return run([python(), "-m", "klamm", "node", "stop", cluster.node(broker).properties_path, *options], 60)


def test_klamm_node_stop_is_refused_without_force_while_partitions_would_lose_availability(cluster: Cluster) -> None:
    cluster.create_topic("alone", 3, 1)
    cluster.create_topic("strict", 1, 3, {"min.insync.replicas": "3"})

    status, said = stop(cluster, 3, "--check", "--json")
    verdict = json.loads(said)

    assert status == 1
    assert verdict["safe"] is False
    assert {"alone"} <= {risk["topic"] for risk in verdict["leaderless"]}
    assert {"strict"} <= {risk["topic"] for risk in verdict["below_min_isr"]}

    status, said = stop(cluster, 3)
    assert status == 1
    assert "it is the only replica" in said
    assert "--force" in said
    assert cluster.node(3).is_running

    status, said = stop(cluster, 3, "--force")
    assert status == 0, said
    assert not cluster.node(3).is_running
    assert "nothing to stop" in stop(cluster, 3)[1]

    cluster.node(3).start()
    cluster.node(3).wait_until_listening()
    cluster.wait_until_complete()
    for topic, count, copies in (("alone", 3, 1), ("strict", 1, 3)):
        cluster.wait_until_in_sync(topic, count, copies)
