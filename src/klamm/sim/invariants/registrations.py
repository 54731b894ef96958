"""Brokers as ZooKeeper knows them."""

from klamm.sim.history.history import History
from klamm.sim.history.trace import RequestReceived, SessionReestablished
from klamm.sim.invariants.views import Cluster
from klamm.zk import znodes


def registrations_are_true(cluster: Cluster) -> str | None:
    """Every running broker is registered by its own session, under the broker epoch that it knows."""
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


def who_left_stays_away(history: History, event: SessionReestablished) -> str | None:
    """A node that has shut down in order opens no further ZooKeeper session."""
    if (event.broker, event.incarnation) in history.registrations.stopped:
        return f"broker {event.broker}.{event.incarnation} has left, and has a new session"
    return None


def one_process_per_id(history: History, event: RequestReceived) -> str | None:
    """Once a later process of a broker accepted a control request, no earlier process accepts one."""
    newest = history.registrations.newest_run.get(event.broker, 0)
    if not event.refusal and event.incarnation < newest:
        return f"broker {event.broker}.{event.incarnation} takes an order after {event.broker}.{newest} did"
    return None
