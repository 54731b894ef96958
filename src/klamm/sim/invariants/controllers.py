"""What the acting controller holds, and what a deposed one leaves behind."""

import asyncio
from typing import Final

from klamm.controller import events
from klamm.controller.states import ControllerState
from klamm.model.errors import ErrorCode
from klamm.sim.history.history import History
from klamm.sim.history.trace import EventEnded, RequestSent, RequestUnanswered, TermBegan, TermEnded, UnexpectedError
from klamm.sim.invariants.epochs import leaders_write_isrs
from klamm.sim.invariants.views import Cluster
from klamm.sim.nodes.broker import StubBroker
from klamm.zk import znodes

_CHANNEL_TASK: Final = "controller-to-broker"


def no_mistakes_are_made(history: History, event: UnexpectedError) -> str | None:
    """No controller runs into an unexpected error, although it would recover by resigning.

    MemoryError does not count: it is no defect of the code.
    """
    if isinstance(event.error, MemoryError):
        return None
    return f"broker {event.broker}: {event.error!r} at {event.where}"


def the_resigned_send_nothing(history: History, event: RequestSent) -> str | None:
    """A controller sends no control request after it has resigned."""
    epoch = event.message.controller_epoch
    if (event.sender, event.incarnation, epoch) in history.controllers.ended:
        return f"broker {event.sender} gave up epoch {epoch}, and sends {type(event.message).__name__} in it"
    return None


def the_resigned_hold_nothing(history: History, event: TermEnded) -> str | None:
    """At the end of a term the controller has no broker channel and no waiting request."""
    term = event.term.internals
    if len(term.channels) or term.channels.waiting:
        return f"{event.term} ends with {len(term.channels)} channels, {term.channels.waiting} requests wait"
    return None


def terms_begin_with_nothing(history: History, event: TermBegan) -> str | None:
    """A new controller keeps nothing from earlier terms and reads everything again."""
    context = event.term.internals.context
    if context.topics or context.registered:
        return f"{event.term} begins with topics {list(context.topics)} and brokers {list(context.registered)}"
    return None


def nobody_is_forgotten(history: History, event: RequestUnanswered) -> str | None:
    """Every request that waits for a controller is answered when its session expires."""
    return f"broker {event.broker} was asked for {event.what} before its session expired, and has not answered"


def the_inactive_refuse(history: History, event: EventEnded) -> str | None:
    """A node that is not controller refuses requests as NOT_CONTROLLER, and every caller gets an answer."""
    asked = event.event
    if not isinstance(asked, events.Answered):
        return None
    if not asked.reply.done():
        return f"broker {event.broker} is done with {asked} and gave no answer"
    if event.term is None and not _says_not_controller(asked):
        return f"broker {event.broker} is not controller and answers {asked} with {asked.reply.result()}"
    return None


def _says_not_controller(asked: events.Answered[object]) -> bool:
    answer = asked.reply.result()
    if isinstance(asked, events.ControlledShutdown):
        return answer == asked.refusal(ErrorCode.NOT_CONTROLLER)
    error = getattr(answer, "error_code", getattr(answer, "error", None))
    return error in (None, ErrorCode.NOT_CONTROLLER)


def the_inactive_are_inert(cluster: Cluster) -> str | None:
    """A node that is not controller has no term, no channel task and no queued event."""
    tasks = [t.get_name() for t in asyncio.all_tasks() if _CHANNEL_TASK in t.get_name() and not t.done()]
    for broker in cluster.running:
        if broker.controller.is_active:
            continue
        host = f"node-{broker.number}.{broker.incarnation}/"
        if left := [name for name in tasks if name.startswith(host)]:
            return f"broker {broker.number} is not controller, and has {sorted(left)}"
    return None


def memory_equals_zookeeper(cluster: Cluster) -> str | None:
    """What the controller remembers of topics, partitions and brokers is what the znodes say.

    All but the epoch of the controller that decided: what need not change is remembered, and told, under the new one's.
    """
    for broker in cluster.running:
        if broker.controller.term is not None and (wrong := _difference_from_zookeeper(cluster, broker)):
            return wrong
    return None


def _difference_from_zookeeper(cluster: Cluster, broker: StubBroker) -> str | None:
    """Where the controller's memory differs from the znodes; None if nowhere."""
    term, history = broker.controller.term, cluster.history
    assert term is not None
    context = term.context
    for name, topic in history.topics.znodes.items():
        known = context.topics.get(name)
        if known is None or topic.id not in (None, known.id):  # somebody may have written the znode without its id
            return f"{name}: the controller knows {known and known.id}, its id is {topic.id}"
        remembered = {n: p.assignment for n, p in known.partitions.items()}
        if remembered != topic.partitions:
            return f"{name}: the controller remembers {remembered}, ZooKeeper has {topic.partitions}"
    if extra := [name for name in context.topics if name not in history.topics.znodes]:
        return f"the controller remembers {extra}, which are gone"
    for p, versions in history.states.versions.items():
        partition = context.partition(p.topic, p.partition)
        state = partition.leadership if partition else None
        if partition is not None and context.is_to_be_deleted(partition) and leaders_write_isrs(history):
            continue  # its leader wrote, died before it said so, and nobody reads what is only to be deleted
        if state is None or state._replace(controller_epoch=versions[-1].controller_epoch) != versions[-1]:
            return f"{p}: the controller remembers {state}, ZooKeeper has {versions[-1]}"
    epochs = {b.id: b.epoch for b in context.registered.values()}
    there = {
        b: epoch for b, (epoch, _) in history.registrations.current.items() if b in {r.number for r in cluster.running}
    }
    if epochs != there:
        return f"the controller believes that {epochs} are registered, it is {there}"
    return None


def watches_are_set(cluster: Cluster) -> str | None:
    """The active controller holds every watch that it needs; every other node watches `/controller`."""
    for broker in cluster.running:
        data, children = cluster.watched_by(broker)
        wanted_data, wanted_children = {znodes.CONTROLLER}, set[str]()
        if broker.controller.is_active:
            wanted_children = {znodes.BROKER_IDS, znodes.TOPICS, znodes.DELETE_TOPICS}
            wanted_children |= {znodes.ISR_CHANGES, znodes.LOG_DIR_EVENTS}
            wanted_data |= {znodes.REASSIGN_PARTITIONS, znodes.PREFERRED_ELECTION}
            wanted_data |= {znodes.broker_path(b) for b in cluster.history.registrations.current}
            wanted_data |= {znodes.topic_path(t) for t in cluster.history.topics.znodes}
        missing = (wanted_data - data) | (wanted_children - children)
        if missing:
            what = "the controller" if broker.controller.is_active else "not controller"
            return f"broker {broker.number}, {what}, does not watch {sorted(missing)}"
    return None


def notifications_are_taken_away(cluster: Cluster) -> str | None:
    """No notification of a failed log directory or of an ISR change is left."""
    for parent in (znodes.LOG_DIR_EVENTS, znodes.ISR_CHANGES):
        node = cluster.tree.get(parent)
        if node is not None and node.children:
            return f"{parent} still has {list(node.children)}"
    return None


def no_event_waits(cluster: Cluster) -> str | None:
    """Every event queue is empty, and no controller is handling an event."""
    for broker in cluster.running:
        if broker.controller.queue_size or broker.controller.state is not ControllerState.IDLE:
            return f"broker {broker.number} is at {broker.controller.state.name}, {broker.controller.queue_size} wait"
    return None


def every_request_was_delivered(cluster: Cluster) -> str | None:
    """No control request waits for a live broker."""
    for broker in cluster.running:
        term = broker.controller.term
        if term is not None and term.channels.waiting:
            return f"{term.channels.waiting} orders of broker {broker.number} wait"
    return None
