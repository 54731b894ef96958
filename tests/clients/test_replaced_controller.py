"""A controller that does not know yet that it has been replaced changes nothing: ZooKeeper refuses its writes.

It resigns then, so that a controller is elected in a new epoch, whoever changed `/controller_epoch`.
"""

import json

import pytest
from kazoo.client import KazooClient
from tests.clients.test_interruptions import PARTITIONS, TOPIC, own_cluster
from tests.support.cluster import Cluster
from tests.support.kazoo_clients import kazoo_client

from klamm.embedded.nodes import Command, klamm_node
from klamm.runtime.disk import RealDisk
from klamm.telemetry.journal_reader import Entry, read_journals

__all__ = ["own_cluster"]


def states(client: KazooClient) -> list[bytes]:
    """What ZooKeeper holds about each partition."""
    paths = [f"/brokers/topics/{TOPIC}/partitions/{p}/state" for p in range(PARTITIONS)]
    return [client.get(path)[0] for path in paths]


def journal(cluster: Cluster) -> list[Entry]:
    return list(read_journals(RealDisk(), [node.journal_directory for node in cluster.nodes]))


def test_zookeeper_writes_of_a_replaced_controller_are_refused(own_cluster: Cluster, node_command: Command) -> None:
    if node_command is not klamm_node:
        pytest.skip("only klamm keeps a journal")
    zombie = own_cluster.controller_id
    other = next(n for n in own_cluster.nodes if n.broker_id != zombie)
    with kazoo_client(own_cluster.zookeeper.connect_string) as client:
        epoch = int(client.get("/controller_epoch")[0])
        client.set("/controller_epoch", b"%d" % (epoch + 1))  # what a new controller does first

        before = states(client)

        other.stop()  # asks the old controller to move its leaders: it resigns, and another term begins

        own_cluster.wait_until_complete()
        assert all(json.loads(state)["controller_epoch"] > epoch + 1 for state in states(client) if state not in before)
        other.start()
        own_cluster.wait_until_complete()
        own_cluster.wait_until_in_sync(TOPIC, PARTITIONS, 3)
    old = [e for e in journal(own_cluster) if e.controller_epoch == epoch]
    refused = [e.facts["why"] for e in old if e.kind == "moved"]
    assert refused, "the journal tells of the refused writes"
    assert "/controller_epoch is no longer at version" in refused[0]
    assert old[-1].kind == "resigned"
