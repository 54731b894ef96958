"""Brokers as ZooKeeper knows them."""

from collections.abc import Mapping

from klamm.controller.decisions.features import supports
from klamm.controller.events import BrokerChange
from klamm.model.ids import BrokerId
from klamm.sim.history.history import History
from klamm.sim.history.trace import EventEnded, RequestReceived, SessionReestablished
from klamm.sim.invariants.views import Cluster
from klamm.zk import znodes
from klamm.zk.registrations import decode_registration
from klamm.zk.znodes import MalformedZnode


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


def brokers_are_as_read_now(history: History, event: EventEnded) -> str | None:
    """Whom the controller takes for registered after a change of brokers was so when it looked, and not only before.

    It may do without a broker whose registration nobody can read, or that lacks what is finalized.
    """
    term, before = event.term, event.known
    if not isinstance(event.event, BrokerChange) or term is None or history.controllers.has_ended(term):
        return None
    if event.is_cut_short or not term.internals.store.client.is_alive:
        return None  # it could read nothing any more
    believed = {b.id: b.epoch for b in term.internals.context.registered.values()}
    for broker in believed.keys() | before.registered.keys():
        epoch = believed.get(broker, -1)
        if epoch == -1 and is_unusable_since(history, broker, before.zxid, term.internals.context.finalized):
            continue
        if epoch not in (there := _epochs_since(history, broker, before.zxid)):
            return f"{term} believes in {epoch} of broker {broker}, since zxid {before.zxid} it was {there}"
    return None


def _epochs_since(history: History, broker: BrokerId, zxid: int) -> list[int]:
    """Its broker epochs from then on; -1 where it was not registered."""
    seen = history.registrations.changes[broker]
    then = next((epoch for at, epoch in reversed(seen) if at <= zxid), -1)
    return [then, *(epoch for at, epoch in seen if at > zxid)]


def is_unusable_since(history: History, broker: BrokerId, zxid: int, finalized: Mapping[str, int]) -> bool:
    """Whether its registration was such that a controller leaves it out, then or later."""
    told = history.registrations.contents[broker]
    then = max((at for at in told if at <= zxid), default=0)
    for at, data in told.items():
        if at >= then:
            try:
                if not supports(decode_registration(broker, data, at).features, finalized):
                    return True
            except MalformedZnode:
                return True
    return False
