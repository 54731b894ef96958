"""Brokers that leave in order."""

from klamm.controller.events import ControlledShutdown
from klamm.model.errors import ErrorCode
from klamm.sim.history.history import History
from klamm.sim.history.trace import EventEnded, StateWritten
from klamm.sim.invariants.epochs import leaders_write_isrs


def shutdown_waits_for_leaders(history: History, event: EventEnded) -> str | None:
    """A broker is not told that it may go while it leads a partition that another live in-sync replica could lead."""
    asked, known = event.event, event.known
    if not isinstance(asked, ControlledShutdown) or known is None or event.term is None:
        return None
    answer = asked.reply.result()
    if answer.error is not ErrorCode.NONE or history.controllers.epoch != event.term.epoch:
        return None
    held = {(p.topic, p.partition) for p in answer.remaining}
    able = known.live - {asked.broker}
    context = event.term.internals.context
    for p, versions in history.states.versions.items():
        state = versions[-1]
        if state.leader != asked.broker or p in held or p.topic in history.topics.deletion_requests:
            continue
        partition = context.partition(*p)
        others = {b for b in able.intersection(state.isr) if partition not in context.offline_dirs.get(b, {})}
        if others and partition is not None:
            return f"broker {asked.broker} may go with {list(held)}, and leads {p} in ISR {state.isr} with {others}"
    return None


def shutdown_is_asked_by_this_run(history: History, event: EventEnded) -> str | None:
    """Nobody is taken out for an earlier run of its broker."""
    asked, known = event.event, event.known
    if not isinstance(asked, ControlledShutdown) or known is None:
        return None
    registered = known.registered.get(asked.broker)
    is_stale = registered is None or -1 < asked.broker_epoch < registered
    if is_stale and asked.reply.result().error is ErrorCode.NONE:
        return f"broker {asked.broker}, epoch {asked.broker_epoch} of {known.registered}, is let go"
    return None


def the_leaving_stay_out(history: History, event: StateWritten) -> str | None:
    """A broker that is leaving enters no ISR and leads nothing new before it registers again.

    A leader of an old protocol, which writes its ISR itself, knows nothing of that.
    """
    term = history.controllers.active
    if term is None:
        return None
    may_enter = leaders_write_isrs(history)
    before = event.before.isr if event.before else ()
    led = event.before.leader if event.before else None
    for broker, (epoch, controller_epoch) in history.registrations.leaving.items():
        if controller_epoch != history.controllers.epoch:
            continue
        known = term.internals.context.registered.get(broker)
        if known is None or known.epoch != epoch:
            continue
        if broker in event.after.isr and broker not in before and not may_enter:
            return f"{event.partition}: broker {broker} is leaving and enters ISR {event.after.isr}"
        if event.after.leader == broker != led:
            return f"{event.partition}: broker {broker} is leaving and becomes leader"
    return None
