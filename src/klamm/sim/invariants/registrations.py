"""Brokers as ZooKeeper knows them."""

from klamm.sim.history import History
from klamm.sim.invariants.seen import Cluster
from klamm.sim.trace import OrderReceived
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


def one_process_per_id(history: History, event: OrderReceived) -> str | None:
    """Once a later run of a broker took an order, no earlier run takes one."""
    newest = history.newest_run.get(event.broker, 0)
    if not event.refusal and event.incarnation < newest:
        return f"broker {event.broker}.{event.incarnation} takes an order after {event.broker}.{newest} did"
    return None
