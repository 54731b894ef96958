"""What stands at the head of a control request: whose it is, for which run of a broker, and which brokers live."""

from klamm.model.ids import BrokerId
from klamm.sim.history.history import History
from klamm.sim.history.trace import RequestSent
from klamm.wire.messages import UpdateMetadataRequest


def broker_lists_are_as_read(history: History, event: RequestSent) -> str | None:
    """UpdateMetadata lists the registered brokers: all of them, and nobody else, as far as the controller can know."""
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


def requests_name_the_run_of_their_broker(history: History, event: RequestSent) -> str | None:
    """A control request carries the epoch under which its broker is registered, as far as the controller can know."""
    term = history.controllers.terms.get(event.message.controller_epoch)
    if event.again or term is None or event.message.broker_epoch < 0:
        return None
    views = history.broker_views
    if event.message.broker_epoch not in (
        known := views.epochs(term, event.target, views.made_since(term, event.target))
    ):
        return f"{term} sends {event.message.broker_epoch} as epoch of broker {event.target}, which has {known}"
    return None
