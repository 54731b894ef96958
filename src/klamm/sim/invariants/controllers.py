"""What the acting controller holds, what a deposed one leaves behind, and how its state machines move.

The tables of moves are Kafka 3.9's, written down a second time, to compare.
"""

from typing import Final

from klamm.controller import events
from klamm.controller.states import ReplicaState
from klamm.controller.watches import EVENT_OF_CHILDREN, EVENT_OF_REQUEST
from klamm.model.errors import ErrorCode
from klamm.sim.history.history import History
from klamm.sim.history.trace import (
    EventBegan,
    EventEnded,
    HandlerWaits,
    PartitionMoved,
    ReplicaMoved,
    RequestSent,
    RequestUnanswered,
    UnexpectedError,
)
from klamm.sim.invariants.views import Cluster, acting
from klamm.zk import znodes

_HANDLER_LIMIT_S: Final = 10.0
"""Some hundred exchanges with ZooKeeper at simulated speed, and the wait for one lost connection."""
_MAX_PAUSE_S: Final = 16.0
_ROUNDING_S: Final = 1e-6


def controllers_have_no_unexpected_errors(history: History, event: UnexpectedError) -> str | None:
    """No controller has an unexpected error, even one from which it would recover by resigning.

    MemoryError does not count: it is no defect of the code.
    """
    if isinstance(event.error, MemoryError):
        return None
    return f"broker {event.broker}: {event.error!r} at {event.where}"


def resigned_controllers_send_no_requests(history: History, event: RequestSent) -> str | None:
    """A controller sends no control request after it has resigned."""
    epoch = event.message.controller_epoch
    if (event.sender, event.incarnation, epoch) in history.controllers.ended:
        return f"broker {event.sender} gave up epoch {epoch}, and sends {type(event.message).__name__} in it"
    return None


def waiting_requests_are_answered_on_expiry(history: History, event: RequestUnanswered) -> str | None:
    """When a controller's session expires, it answers every request that waits."""
    return f"broker {event.broker} was asked for {event.what} before its session expired, and has not answered"


def inactive_nodes_refuse_requests(history: History, event: EventEnded) -> str | None:
    """A node that is not controller answers requests with NOT_CONTROLLER, and every caller gets an answer."""
    requested = event.event
    if not isinstance(requested, events.Answered):
        return None
    if not requested.reply.done():
        return f"broker {event.broker} is done with {requested} and gave no answer"
    if event.term is None and not _says_not_controller(requested):
        return f"broker {event.broker} is not controller and answers {requested} with {requested.reply.result()}"
    return None


def _says_not_controller(requested: events.Answered[object]) -> bool:
    """Whether the answer to the request is NOT_CONTROLLER."""
    answer = requested.reply.result()
    if isinstance(requested, events.ControlledShutdown):
        return answer == requested.refusal(ErrorCode.NOT_CONTROLLER)
    error = getattr(answer, "error_code", getattr(answer, "error", None))
    return error in (None, ErrorCode.NOT_CONTROLLER)


def handlers_end_in_time(history: History, event: HandlerWaits) -> str | None:
    """No event is handled for longer than 10 s while the controller's process runs and ZooKeeper serves it."""
    if event.undisturbed_s <= _HANDLER_LIMIT_S:
        return None
    what = type(event.event).__name__
    return f"broker {event.broker} handles {what} for {event.undisturbed_s:.0f} s, and ZooKeeper serves it"


def watches_are_set(cluster: Cluster) -> str | None:
    """The active controller holds every watch that it needs; every node watches `/controller` and config changes."""
    active = {t.broker for t in acting(cluster)}
    for broker in cluster.running:
        data, children = cluster.watched_by(broker)
        wanted_data, wanted_children = {znodes.CONTROLLER}, {znodes.CONFIG_CHANGES}
        if broker.number in active:
            wanted_children |= EVENT_OF_CHILDREN.keys()
            wanted_data |= EVENT_OF_REQUEST.keys()
            wanted_data |= {znodes.broker_path(b) for b in cluster.history.registrations.current}
            wanted_data |= {znodes.topic_path(t) for t in cluster.history.topics.znodes}
        missing = (wanted_data - data) | (wanted_children - children)
        if missing:
            what = "the controller" if broker.number in active else "not controller"
            return f"broker {broker.number}, {what}, does not watch {sorted(missing)}"
    return None


def notifications_are_deleted(cluster: Cluster) -> str | None:
    """The controller deletes notifications of failed log directories and ISR changes once it has handled them."""
    for parent in (znodes.LOG_DIR_EVENTS, znodes.ISR_CHANGES):
        node = cluster.tree.get(parent)
        if node is not None and node.children:
            return f"{parent} still has {list(node.children)}"
    return None


def _parse_transitions(text: str) -> frozenset[tuple[str, str]]:
    """Pairs of states from a text such as `New>Online Online>Offline`."""
    pairs = (move.split(">") for move in text.split())
    return frozenset((before, after) for before, after in pairs)


_PARTITION_MOVES: Final = _parse_transitions(
    """NonExistent>New New>Online New>Offline Online>Online Online>Offline Offline>Online Offline>Offline
    Offline>NonExistent"""
)
_REPLICA_MOVES: Final = _parse_transitions(
    """NonExistent>New New>Online New>Offline Online>Online Online>Offline Offline>Online Offline>Offline
    DeletionIneligible>Online DeletionIneligible>Offline Offline>DeletionStarted Offline>DeletionIneligible
    DeletionStarted>DeletionSuccessful DeletionStarted>DeletionIneligible DeletionSuccessful>NonExistent"""
)


def partitions_move_legally(history: History, event: PartitionMoved) -> str | None:
    """Every change of a partition's state is allowed by Kafka's partition state machine."""
    move = event.before.removesuffix("Partition"), event.after.removesuffix("Partition")
    return None if move in _PARTITION_MOVES else f"{event.partition}: {' to '.join(move)} in {event.term}"


def replicas_move_legally(history: History, event: ReplicaMoved) -> str | None:
    """Every change of a replica's state is allowed by Kafka's replica state machine."""
    move = _short_state_name(event.before), _short_state_name(event.after)
    return None if move in _REPLICA_MOVES else f"{event.partition} on {event.broker}: {' to '.join(move)}"


def live_replicas_begin_online(history: History, event: ReplicaMoved) -> str | None:
    """No replica goes from DeletionIneligible to Online on a broker that was registered at the election, and since.

    A new controller begins with its live replicas as Online (`initializeReplicaState`); no deletion ends there. Except
    where a reassignment completes that adds the replica (step B1): the topic's deletion waits for it, and the replica's
    log directory may have failed meanwhile.
    """
    if event.before is not ReplicaState.DELETION_INELIGIBLE or event.after is not ReplicaState.ONLINE:
        return None
    topic = history.topics.znodes.get(event.partition.topic)
    assigned = topic.partitions.get(event.partition.partition) if topic is not None else None
    if assigned is not None and event.broker in assigned.adding:
        return None
    since = history.controllers.elected_at.get(event.term.epoch, 0)
    if not history.broker_views.is_registered_throughout(event.term, event.broker, since):
        return None
    return f"{event.partition} on {event.broker}: DeletionIneligible to Online in {event.term}"


def _short_state_name(state: str) -> str:
    """The state's name without the word `Replica`."""
    return state.removesuffix("Replica").removeprefix("Replica")


def retries_pause_longer_each_time(history: History, event: EventBegan) -> str | None:
    """An event that failed is handled again after a second, and after twice the pause each time that it fails again.

    The pause ends with 16 s. A pause may be longer: the process may be paused, or busy.
    """
    failure = history.retries.failures.get((event.broker, event.incarnation), {}).get(event.event.retry_key)
    if failure is None or failure.event is not event.event:
        return None
    least_s, paused_s = min(2.0 ** (failure.times - 1), _MAX_PAUSE_S), history.at.now_s - failure.at_s
    if paused_s >= least_s - _ROUNDING_S:
        return None
    return (
        f"broker {event.broker} handles {event.event} again {paused_s:.3f} s after failure {failure.times}, not after"
        f" {least_s:g} s"
    )
