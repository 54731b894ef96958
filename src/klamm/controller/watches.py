"""The event for each fired watch. A watch carries no data: the handler of the event reads the znode."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from klamm.controller import events
from klamm.controller.events import Event
from klamm.model.ids import BrokerId, TopicPartition
from klamm.zk import znodes
from klamm.zk.watches import EventType, WatchEvent

EVENT_OF_CHILDREN: Final[Mapping[str, Callable[[], Event]]] = {
    znodes.BROKER_IDS: events.BrokerChange,
    znodes.TOPICS: events.TopicChange,
    znodes.DELETE_TOPICS: events.TopicDeletion,
    znodes.ISR_CHANGES: events.IsrChangeNotification,
    znodes.LOG_DIR_EVENTS: events.LogDirEventNotification,
}
"""Znodes whose children the active controller watches; a failover lists them first."""
EVENT_OF_REQUEST: Final[Mapping[str, Callable[[], Event]]] = {
    znodes.REASSIGN_PARTITIONS: events.ZkPartitionReassignment,
    znodes.PREFERRED_ELECTION: lambda: events.ReplicaLeaderElection(None, unclean=False),
}
"""Znodes that tools create with a request; the active controller watches them, and a failover reads them first."""
_RETRY_EVENT_OF_PATH: Final = {
    **EVENT_OF_REQUEST,
    **{path: EVENT_OF_CHILDREN[path] for path in (znodes.DELETE_TOPICS, znodes.ISR_CHANGES, znodes.LOG_DIR_EVENTS)},
}
"""Requests and notifications that are removed once they are handled."""
_RETRY_EVENT_OF_LIST: Final = {znodes.TOPICS: EVENT_OF_CHILDREN[znodes.TOPICS]}
"""Lists with children that could not be read; writes below them are not repeated by these events."""


def retry_events_for(refused: Iterable[str]) -> dict[events.RetryKey, Event]:
    """The events that repeat writes to these refused paths, by retry key."""
    kinds = {
        _RETRY_EVENT_OF_LIST.get(path)
        or _RETRY_EVENT_OF_PATH.get(path)
        or _RETRY_EVENT_OF_PATH.get(path.rpartition("/")[0]): None
        for path in refused
    }
    found = [events.ResumeAfterFailure() if kind is None else kind() for kind in kinds]
    return {event.retry_key: event for event in found}


def event_for(watch: WatchEvent) -> Event | None:
    """The event for a fired watch; None if the path does not concern the controller."""
    if watch.type is EventType.CHILDREN_CHANGED:
        make = EVENT_OF_CHILDREN.get(watch.path)
        return make() if make else None
    if watch.path == znodes.CONTROLLER:
        return events.Reelect() if watch.type is EventType.DELETED else events.ControllerChange()
    if (make := EVENT_OF_REQUEST.get(watch.path)) is not None:
        return make()
    parent, _, name = watch.path.rpartition("/")
    if parent == znodes.BROKER_IDS and watch.type is EventType.DATA_CHANGED and name.isdigit():
        return events.BrokerModifications(BrokerId(int(name)))
    if parent == znodes.TOPICS and watch.type in (EventType.DATA_CHANGED, EventType.DELETED):
        return events.PartitionModifications(name)
    if name == "state" and watch.type is EventType.DATA_CHANGED:
        topic, _, number = parent.removeprefix(f"{znodes.TOPICS}/").partition("/partitions/")
        return events.PartitionReassignmentIsrChange(TopicPartition(topic, int(number)))
    return None
