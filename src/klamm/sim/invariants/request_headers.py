"""What stands at the head of a control request: whose it is, for which run of a broker, and which brokers live."""

from typing import Any

from klamm.model.brokers import Broker
from klamm.model.ids import BrokerId
from klamm.model.leader_and_isr import LEADER_DURING_DELETE
from klamm.sim.history.history import History
from klamm.sim.history.trace import RequestSent, Term
from klamm.sim.nodes.control_messages import partition_states
from klamm.wire.messages import LeaderAndIsrRequest, UpdateMetadataRequest


def broker_lists_match_registrations(history: History, event: RequestSent) -> str | None:
    """UpdateMetadata lists exactly the registered brokers, as far as the controller can know."""
    term = history.controllers.terms.get(event.message.controller_epoch)
    if event.again or term is None or not isinstance(event.message, UpdateMetadataRequest):
        return None
    views, listed = history.broker_views, {BrokerId(b.id) for b in event.message.live_brokers}
    since = views.made_since(term, event.target)
    for broker in listed | history.registrations.changes.keys():
        is_registered = views.is_registered(term, broker, since)
        if is_registered is not None and is_registered is not (broker in listed):
            lists = "lists" if broker in listed else "leaves out"
            return (
                f"{term} {lists} broker {broker}, whose epochs since it read were {views.epochs(term, broker, since)}"
            )
    return None


def requests_carry_the_broker_epoch(history: History, event: RequestSent) -> str | None:
    """A control request has the broker epoch of its receiver's registration, as far as the controller can know."""
    term = history.controllers.terms.get(event.message.controller_epoch)
    if event.again or term is None or event.message.broker_epoch < 0:
        return None
    views = history.broker_views
    if event.message.broker_epoch not in (
        known := views.epochs(term, event.target, views.made_since(term, event.target))
    ):
        return f"{term} sends {event.message.broker_epoch} as epoch of broker {event.target}, which has {known}"
    return None


def listed_endpoints_match_registrations(history: History, event: RequestSent) -> str | None:
    """Endpoints and racks in UpdateMetadata, and the leaders in LeaderAndIsr, are those of the registrations."""
    term = history.controllers.terms.get(event.message.controller_epoch)
    if history.requests.was_compared(event) or term is None:
        return None
    if isinstance(event.message, UpdateMetadataRequest):
        listed = [(BrokerId(b.id), _metadata_of(b)) for b in event.message.live_brokers]
        wanted = _as_in_metadata
    elif isinstance(event.message, LeaderAndIsrRequest):
        listed = [(BrokerId(b.broker_id), (b.host_name, b.port)) for b in event.message.live_leaders]
        wanted = _as_in_leader_and_isr
    else:
        return None
    for broker, address in listed:
        registered = [wanted(b, term) for b in history.broker_views.registered_since_election(term, broker)]
        if address not in registered:
            return (
                f"{term} sends broker {event.target} the address {address} of {broker}, but registered is {registered}"
            )
    return None


def _metadata_of(listed: Any) -> Any:
    """Endpoints and rack of a broker that UpdateMetadata lists, in a form to compare."""
    if not listed.endpoints:
        return listed.v0_host, listed.v0_port
    return {(e.host, e.port, e.listener, e.security_protocol) for e in listed.endpoints}, listed.rack


def _as_in_metadata(broker: Broker, term: Term) -> Any:
    """Endpoints and rack of a registered broker as UpdateMetadata of this term has them."""
    if term.settings.versions.update_metadata == 0:
        return next((e.host, e.port) for e in broker.endpoints)
    return {(e.host, e.port, e.listener, int(e.security_protocol)) for e in broker.endpoints}, broker.rack


def _as_in_leader_and_isr(broker: Broker, term: Term) -> Any:
    """Host and port of a registered broker as LeaderAndIsr has them; None without that listener."""
    endpoint = broker.endpoint(term.settings.inter_broker_listener)
    return (endpoint.host, endpoint.port) if endpoint is not None else None


def leaders_are_listed(history: History, event: RequestSent) -> str | None:
    """LeaderAndIsr lists the address of every registered leader in it, from which followers fetch."""
    term = history.controllers.terms.get(event.message.controller_epoch)
    if event.again or term is None or not isinstance(event.message, LeaderAndIsrRequest):
        return None
    listed = {b.broker_id for b in event.message.live_leaders}
    elected_at = history.controllers.elected_at.get(term.epoch, 0)
    for leader in {state.leader for _, _, state in partition_states(event.message)} - listed:
        if leader >= 0 and history.broker_views.is_registered_throughout(term, leader, elected_at):
            return f"{term} names leader {leader} to broker {event.target}, and does not list it in {sorted(listed)}"
    return None


def topic_ids_are_sent(history: History, event: RequestSent) -> str | None:
    """Control requests have the id of each topic that has one, if their version has a field for it."""
    term = history.controllers.terms.get(event.message.controller_epoch)
    if history.requests.was_compared(event) or term is None or term.epoch != history.controllers.epoch:
        return None
    if not term.settings.requests_carry_topic_ids:
        return None
    for p, topic_id, state in partition_states(event.message):
        topic = history.topics.znodes.get(p.topic)
        if topic is None or topic.id is None or state.leader == LEADER_DURING_DELETE:
            continue
        if topic_id is None and topic.czxid <= history.controllers.elected_at.get(term.epoch, 0):
            return f"{p}: broker {event.target} is sent no topic id, it is {topic.id}"
    return None
