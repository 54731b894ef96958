"""Brokers as ZooKeeper knows them."""

from klamm.sim.invariants.seen import Cluster
from klamm.zk import znodes


def registrations_are_true(cluster: Cluster) -> str | None:
    """Every running broker is registered by its own session, under the epoch that it believes."""
    for broker in cluster.running:
        node = cluster.tree.get(znodes.broker_path(broker.number))
        if node is None:
            return f"broker {broker.number} runs and is not registered"
        session = broker.sessions.store.client.session_id
        if (node.owner, node.czxid) != (session, broker.broker_epoch):
            return (
                f"broker {broker.number} believes in epoch {broker.broker_epoch} of session {session:x}, registered is"
                f" {node.czxid} of {node.owner:x}"
            )
    return None
