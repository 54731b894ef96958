"""The log of a run: a line with the time for each event. It is recorded only on request."""

from collections.abc import Iterable, Iterator

from klamm.sim.history import trace
from klamm.sim.history.trace import Event

_OMITTED_EVENTS = (
    trace.RegistrationWritten,
    trace.EventEnded,
    trace.PartitionMoved,
    trace.ReplicaMoved,
    trace.RequestQueued,
    trace.ConnectionOpened,
    trace.RequestAnswered,
    trace.ReplicaRolesChanged,
)
"""They would drown the rest."""


def lines(story: Iterable[tuple[float, str | Event]]) -> Iterator[str]:
    """The lines of the log of a run, as text."""
    for at_s, what in story:
        if isinstance(what, str):
            yield f"{at_s:9.3f}  {what}"
        elif not isinstance(what, _OMITTED_EVENTS):
            yield f"{at_s:9.3f}  {_describe_event(what)}"


def _describe_event(event: Event) -> str:
    """Return one event of the run as text."""
    if isinstance(event, trace.TransactionCommitted):
        bound = "" if event.fence is None else f", bound to epoch version {event.fence}"
        changes = ", ".join(f"{type(c).__name__.removesuffix('Change').lower()} {c.path}" for c in event.changes)
        return f"zxid {event.zxid} of session {event.session:x}{bound}: {changes}"
    if isinstance(event, trace.RequestSent):
        again = " again" if event.again else ""
        return f"node {event.sender} sends{again} to {event.target}: {_describe_request(event.message)}"
    if isinstance(event, trace.RequestReceived):
        return f"node {event.broker} gets {_describe_request(event.message)}, refusal {event.refusal.name}"
    if isinstance(event, trace.EventBegan):
        active = f"in {event.term}" if event.term else "inactive"
        return f"node {event.broker}, {active}, handles {type(event.event).__name__}, {len(event.waiting)} wait"
    if isinstance(event, trace.TermBegan | trace.TermEnded):
        return f"{type(event).__name__} {event.term}"
    if isinstance(event, trace.LeaderAndIsrApplied):
        return f"LeaderAndIsrApplied broker={event.broker}, incarnation={event.incarnation}, epochs={event.epochs}"
    return f"{type(event).__name__} " + ", ".join(f"{k}={v}" for k, v in event._asdict().items())


def _describe_request(message: object) -> str:
    """A control request as text: type, controller, epoch, partitions."""
    topics = getattr(message, "topic_states", None) or ()
    named = " ".join(f"{t.topic_name}{[s.partition_index for s in t.partition_states]}" for t in topics)
    sender, epoch = getattr(message, "controller_id", "?"), getattr(message, "controller_epoch", "?")
    return f"{type(message).__name__} of controller {sender} epoch {epoch}: {named}"
