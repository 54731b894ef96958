"""The few rules about what a controller remembers: that it is empty, equals ZooKeeper, or waits for nothing.

Nobody outside can see whether a controller that has nothing to do would do the right thing next, or what a resigned one
still holds: so these look into its memory, and only `contexts.py` does it, too. What is written, sent and answered is
judged by ZooKeeper's history alone. A test (`tests/unit/sim/test_invariants_table.py`) keeps it so.
"""

import asyncio
from typing import Final

from klamm.controller.states import ControllerState
from klamm.sim.history.history import History
from klamm.sim.history.trace import NodeStopped, TermBegan, TermEnded
from klamm.sim.invariants.views import Cluster
from klamm.sim.nodes.broker import StubBroker

_CHANNEL_TASK: Final = "controller-to-broker"


def resigned_controllers_keep_no_state(history: History, event: TermEnded) -> str | None:
    """At the end of a term the controller has no broker channel, no waiting request and no timer."""
    term = event.memory
    if len(term.channels) or term.channels.waiting or len(term.timers):
        left = f"{len(term.channels)} channels, {term.channels.waiting} requests, {len(term.timers)} timers"
        return f"{event.term} ends with {left}"
    return None


def terms_begin_without_earlier_state(history: History, event: TermBegan) -> str | None:
    """A new controller keeps nothing from earlier terms and reads everything again."""
    context = event.memory.context
    if context.topics or context.registered:
        return f"{event.term} begins with topics {list(context.topics)} and brokers {list(context.registered)}"
    return None


def inactive_controllers_do_nothing(cluster: Cluster) -> str | None:
    """A node that is not controller has no term, no channel task and no queued event."""
    tasks = [t.get_name() for t in asyncio.all_tasks() if _CHANNEL_TASK in t.get_name() and not t.done()]
    for broker in cluster.running:
        if broker.controller.term is not None:
            continue
        host = f"node-{broker.number}.{broker.incarnation}/"
        if left := [name for name in tasks if name.startswith(host)]:
            return f"broker {broker.number} is not controller, and has {sorted(left)}"
    return None


def stopped_nodes_leave_no_task(history: History, event: NodeStopped) -> str | None:
    """A node that has shut down in order has no task of its controller left."""
    host = f"node-{event.broker}.{event.incarnation}/controller"
    left = sorted(t.get_name() for t in asyncio.all_tasks() if t.get_name().startswith(host) and not t.done())
    return f"broker {event.broker} has stopped, and {left} run" if left else None


def memory_equals_zookeeper(cluster: Cluster) -> str | None:
    """The controller's memory of topics, partitions and brokers equals the znodes.

    The controller epoch of a partition state may differ: a state that need not change is remembered, and sent, with the
    new controller's epoch.
    """
    for broker in cluster.running:
        if broker.controller.term is not None and (wrong := _difference_from_zookeeper(cluster, broker)):
            return wrong
    return None


def _difference_from_zookeeper(cluster: Cluster, broker: StubBroker) -> str | None:
    """What differs between the controller's memory and the znodes; None if nothing does."""
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
        if partition is not None and context.is_to_be_deleted(partition) and history.at.leaders_write_isrs:
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


def no_event_waits(cluster: Cluster) -> str | None:
    """Every event queue is empty, and no controller is handling an event."""
    for broker in cluster.running:
        if broker.controller.queue_size or broker.controller.state is not ControllerState.IDLE:
            return f"broker {broker.number} is at {broker.controller.state.name}, {broker.controller.queue_size} wait"
    return None


def every_request_was_delivered(cluster: Cluster) -> str | None:
    """No control request to a live broker is still queued."""
    for broker in cluster.running:
        term = broker.controller.term
        if term is not None and term.channels.waiting:
            return f"{term.channels.waiting} control requests to broker {broker.number} wait"
    return None
