"""Brokers: their registrations, and controlled shutdown."""

from klamm.controller.events import ControlledShutdown
from klamm.model.errors import ErrorCode
from klamm.sim.history.history import History
from klamm.sim.history.trace import EventEnded, RequestReceived, SessionReestablished, StateWritten
from klamm.sim.invariants.views import Cluster
from klamm.zk import znodes


def registrations_match_running_brokers(cluster: Cluster) -> str | None:
    """Every running broker is registered by its own session, with the broker epoch that it knows."""
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


def stopped_nodes_open_no_session(history: History, event: SessionReestablished) -> str | None:
    """A node that has shut down in order opens no further ZooKeeper session."""
    if (event.broker, event.incarnation) in history.registrations.stopped:
        return f"broker {event.broker}.{event.incarnation} has left, and has a new session"
    return None


def one_process_per_id(history: History, event: RequestReceived) -> str | None:
    """Once a process of a broker accepted a control request, no earlier process of that broker accepts one."""
    newest = history.registrations.newest_run.get(event.broker, 0)
    if not event.refusal and event.incarnation < newest:
        return f"broker {event.broker}.{event.incarnation} accepts a control request after {event.broker}.{newest} did"
    return None


def shutdown_waits_for_leaders(history: History, event: EventEnded) -> str | None:
    """ControlledShutdown succeeds only if the broker leads no partition that another live ISR member could lead."""
    requested, term, known = (
        event.event,
        event.term,
        history.isr_requests.judged_from.get((event.broker, event.incarnation)),
    )
    if not isinstance(requested, ControlledShutdown) or term is None or known is None:
        return None
    answer = requested.reply.result()
    if answer.error is not ErrorCode.NONE or history.controllers.epoch != term.epoch:
        return None
    held = {(p.topic, p.partition) for p in answer.remaining}
    able = {b for b, is_live in known.live.items() if is_live is True and b != requested.broker}
    for p, versions in history.states.versions.items():
        state = versions[-1]
        if state.leader != requested.broker or p in held or p.topic in history.topics.deletion_requests:
            continue
        others = {b for b in able.intersection(state.isr) if history.broker_views.is_online(term, p, b) is True}
        if others:
            return (
                f"broker {requested.broker} may shut down with {list(held)}, "
                f"and leads {p} in ISR {state.isr} with {others}"
            )
    return None


def shutdown_requests_match_the_registration(history: History, event: EventEnded) -> str | None:
    """No broker is shut down by a request of an earlier registration, or while it is not registered."""
    requested, known = event.event, history.isr_requests.judged_from.get((event.broker, event.incarnation))
    if not isinstance(requested, ControlledShutdown) or known is None:
        return None
    is_stale = all(epoch < 0 or -1 < requested.broker_epoch < epoch for epoch in known.sender_epochs)
    if is_stale and requested.reply.result().error is ErrorCode.NONE:
        return (
            f"broker {requested.broker}, epoch {requested.broker_epoch} of {sorted(known.sender_epochs)}, may shut down"
        )
    return None


def leaving_brokers_join_no_isr(history: History, event: StateWritten) -> str | None:
    """A broker in controlled shutdown enters no ISR and becomes no leader before it registers again.

    In an old protocol leaders write their ISRs, and do not know of the shutdown.
    """
    term, after = history.controllers.active, event.after
    before = event.before.isr if event.before else ()
    led = event.before.leader if event.before else None
    entered = [] if history.at.leaders_write_isrs else [b for b in after.isr if b not in before]
    leads_now = [after.leader] if after.has_leader and after.leader != led else []
    for broker in (*entered, *leads_now):
        if history.broker_views.is_leaving(term, broker) is True:
            what = "becomes leader" if broker in leads_now else f"enters ISR {after.isr}"
            return f"{event.partition}: broker {broker} is leaving and {what}"
    return None
