"""Controller epochs: who may act in one, what they may write, and whom brokers follow."""

from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.model.leader_and_isr import LeaderRecoveryState
from klamm.sim.history.history import History
from klamm.sim.history.trace import ControllerElected, RequestReceived, RequestSent, TransactionCommitted
from klamm.sim.zookeeper.tree import Change, CreateChange, DeleteChange, SetChange
from klamm.zk import znodes


def senders_won_the_epoch_they_carry(history: History, event: RequestSent) -> str | None:
    """A control request carries a controller epoch that this process of the sender won."""
    epoch = event.message.controller_epoch
    term = history.controllers.terms.get(epoch)
    if term is None or (term.broker, term.incarnation) != (event.sender, event.incarnation):
        return f"broker {event.sender}.{event.incarnation} sends control requests in epoch {epoch}, which is {term}'s"
    if event.message.controller_id != event.sender:
        return f"broker {event.sender} sends control requests in the name of {event.message.controller_id}"
    return None


def received_requests_name_an_elected_sender(history: History, event: RequestReceived) -> str | None:
    """A control request that a broker receives names a sender that won the controller epoch in it."""
    sender, epoch = event.message.controller_id, event.message.controller_epoch
    winner = history.controllers.winners.get(epoch, (None, 0))[0]
    if sender != winner:
        return f"broker {sender} sends control requests in epoch {epoch}, which broker {winner} won"
    return None


def epoch_counts_elections(history: History, event: ControllerElected) -> str | None:
    """The controller epoch rises by one with each election, and at no other time."""
    if event.epoch != event.before + 1 or event.broker is None:
        return f"controller epoch {event.before} became {event.epoch}, elected was {event.broker}"
    return None


def elections_raise_the_epoch(history: History, event: TransactionCommitted) -> str | None:
    """`/controller` is only created together with a new controller epoch, which begins at 0 and is never deleted."""
    paths = {type(c): c for c in event.changes if c.path == znodes.CONTROLLER_EPOCH}
    begun = paths.get(CreateChange)
    if isinstance(begun, CreateChange) and znodes.decode_controller_epoch(begun.data) != 0:
        return f"{znodes.CONTROLLER_EPOCH} begins with {begun.data!r}"
    if DeleteChange in paths:
        return f"{znodes.CONTROLLER_EPOCH} is deleted"
    elected = any(isinstance(c, CreateChange) and c.path == znodes.CONTROLLER for c in event.changes)
    if elected and SetChange not in paths:
        return f"session {event.session:x} becomes controller without a new epoch"
    return None


def fenced_writes(history: History, event: TransactionCommitted) -> str | None:
    """The controller's znodes are written only by the session of the newest epoch, with a check of that epoch."""
    if event.session not in history.controllers.sessions:
        return None  # an operator may write what he likes
    owned = next((c for c in event.changes if _is_the_controllers(history, c)), None)
    if owned is None:
        return None
    winner = history.controllers.winners.get(history.controllers.epoch)
    if winner is None or event.session != winner[1] or event.fence is None or event.fence < 0:
        bound = "bound to no epoch" if event.fence is None or event.fence < 0 else f"bound to version {event.fence}"
        return f"{owned.path} is written by session {event.session:x}, {bound}, while {winner} holds the epoch"
    return None


def _is_the_controllers(history: History, change: Change) -> bool:
    """Whether only the controller may make this change.

    Brokers and operators create and enlarge topics, write configs and requests, all without the epoch check.
    """
    path, is_deletion = change.path, isinstance(change, DeleteChange)
    parts = path.split("/")[1:]
    if path.startswith(znodes.TOPICS + "/"):
        if len(parts) > 3 or is_deletion:
            return not history.at.leaders_write_isrs or not _changes_an_isr_alone(history, change)
        return isinstance(change, SetChange) and not _only_grows(history, parts[2], change.data)
    if parts[0] == "admin" and len(parts) > 1 and path != znodes.DELETE_TOPICS:
        return is_deletion or isinstance(change, SetChange)
    if parts[0] in ("isr_change_notification", "log_dir_event_notification") and len(parts) > 1:
        return is_deletion
    return is_deletion and parts[:2] == ["config", "topics"]


def _changes_an_isr_alone(history: History, change: Change) -> bool:
    """Whether the change writes a partition state in which only the ISR differs, and the leader has recovered."""
    parts = change.path.split("/")
    if not isinstance(change, SetChange) or parts[-1] != "state":
        return False
    p = TopicPartition(parts[3], int(parts[5]))
    before = history.states.versions[p][-1]
    after = znodes.decode_state(p, change.data, before.partition_epoch)
    return after in (
        before._replace(isr=after.isr),
        before._replace(isr=after.isr, recovery=LeaderRecoveryState.RECOVERED),
    )


def _only_grows(history: History, topic: str, data: bytes | None) -> bool:
    """Whether the change of a topic's znode only adds partitions."""
    known = history.topics.znodes.get(topic)
    if known is None:
        return False
    try:
        after = znodes.decode_topic(topic, data)
    except znodes.MalformedZnode:
        return False
    return after.topic_id == known.id and all(after.partitions.get(n) == a for n, a in known.partitions.items())


def brokers_refuse_old_controllers(history: History, event: RequestReceived) -> str | None:
    """A broker refuses a control request of a controller older than one it accepted, with STALE_CONTROLLER_EPOCH."""
    highest = history.requests.applied_epochs.get((event.broker, event.incarnation), 0)
    refusals = (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH)
    if event.message.controller_epoch < highest and event.refusal not in refusals:
        return f"broker {event.broker} answers {event.refusal.name} to epoch {event.message.controller_epoch}"
    return None


def accepted_controller_epochs_are_monotone(history: History, event: RequestReceived) -> str | None:
    """A broker accepts no control request of a controller older than one whose request it accepted."""
    highest = history.requests.applied_epochs.get((event.broker, event.incarnation), 0)
    if not event.refusal and event.message.controller_epoch < highest:
        return f"broker {event.broker} follows epoch {event.message.controller_epoch} after {highest}"
    return None


def brokers_refuse_requests_for_earlier_registrations(history: History, event: RequestReceived) -> str | None:
    """A broker refuses a control request that was meant for an earlier registration of it."""
    meant_for = event.message.broker_epoch
    if not event.refusal and 0 <= meant_for < event.broker_epoch:
        return f"broker {event.broker}, registered as {event.broker_epoch}, accepts a control request for {meant_for}"
    return None
