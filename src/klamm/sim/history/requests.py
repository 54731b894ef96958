"""Control requests: what was queued, sent, accepted and answered, for each partition on each broker."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from klamm.controller.control_requests import LeaderAndIsrItem, StopReplicaItem, UpdateMetadataItem
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import NO_EPOCH
from klamm.sim.history.broker_views import BrokerViews
from klamm.sim.history.topics import TopicHistory
from klamm.sim.history.trace import (
    ControllerElected,
    EventEnded,
    RequestAnswered,
    RequestQueued,
    RequestReceived,
    RequestSent,
    StateWritten,
    TopicWritten,
)
from klamm.sim.nodes.control_messages import partition_states, stop_states
from klamm.wire.messages import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest

_STOP_REPLICA_WITH_EPOCHS: Final = 3


class Queued(NamedTuple):
    """A partition's state, or the stop of its replica, that waits in a broker's queue."""

    is_stop: bool
    leader_epoch: int
    partition_epoch: int
    """Of an end: 1 where it deletes."""

    def covers(self, stop: "Queued") -> bool:
        """Whether this StopReplica also has the effect of `stop`, so that `stop` need not be sent."""
        return self.is_stop and self.partition_epoch >= stop.partition_epoch


@dataclass(slots=True)
class RequestHistory:
    topics: TopicHistory
    views: BrokerViews
    waiting: dict[tuple[int, BrokerId, int, str, int], deque[Queued]] = field(default_factory=dict)
    """What was queued for a partition on a broker and not sent yet, oldest first; see `queue_of`."""
    last_sent: dict[tuple[int, BrokerId, int, str, int], Queued] = field(default_factory=dict)
    """What went out last of such a queue."""
    accepted: dict[tuple[BrokerId, int, int], set[str]] = field(default_factory=dict)
    """(broker, broker epoch, controller epoch) -> kinds of control requests it accepted."""
    announced_versions: dict[tuple[int, BrokerId, TopicPartition, UUID | None], int] = field(default_factory=dict)
    """(controller epoch, broker, partition, topic id) -> the newest version that metadata told of."""
    deleted: set[tuple[TopicPartition, BrokerId]] = field(default_factory=set)
    """Replicas of which a broker answered that it deleted them, since the topic came up."""
    deletion_answered_in: dict[tuple[TopicPartition, BrokerId], int] = field(default_factory=dict)
    """(partition, broker) -> the controller epoch in which the broker last answered that it deleted its replica."""
    applied_epochs: dict[tuple[BrokerId, int], int] = field(default_factory=dict)
    """(broker, incarnation) -> the highest controller epoch it followed."""
    told_as_new: set[tuple[TopicPartition, BrokerId]] = field(default_factory=set)
    """Replicas for which a LeaderAndIsr was queued, since they were assigned, that says that they are new."""
    newest_metadata: UpdateMetadataItem | None = None
    """What was queued last: brokers share it."""
    _last_metadata_sent: tuple[Any, int] = (None, 0)
    """The UpdateMetadata that went out last, and the newest zxid at that time."""
    unannounced: dict[BrokerId, dict[TopicPartition, int]] = field(default_factory=dict)
    """Broker -> partitions that it leads, or leads no more, by decisions of the acting controller that it was not yet
    told of, with the leader epoch. A broker that is stopped there need not know."""

    def on_elected(self, event: ControllerElected) -> None:
        """Forget which leaders have not been sent, since a new controller sends all of them."""
        self.unannounced.clear()

    def on_state_written(self, event: StateWritten) -> None:
        """Record that the old and the new leader must be sent this change."""
        if event.before is not None and event.before.leader != event.after.leader:
            for broker in (event.before.leader, event.after.leader):
                if broker >= 0:
                    self.unannounced.setdefault(broker, {})[event.partition] = event.after.leader_epoch

    def on_topic_written(self, event: TopicWritten) -> None:
        """Forget what was sent about replicas of a deleted topic, and about replicas that are new now."""
        before = event.before.partitions if event.before else {}
        after = event.after.partitions if event.after else {}
        if event.after is None:
            for broker, untold in self.unannounced.items():
                self.unannounced[broker] = {p: epoch for p, epoch in untold.items() if p.topic != event.topic}
        for number, now in after.items():
            was = before.get(number)
            for broker in now.replicas:
                if was is None or broker not in was.replicas:
                    self.deleted.discard((TopicPartition(event.topic, number), broker))
                    self.told_as_new.discard((TopicPartition(event.topic, number), broker))

    def on_event_ended(self, event: EventEnded) -> None:
        """Forget leader changes that must not be sent to brokers in controlled shutdown."""
        if event.term is not None:
            for broker in [b for b in self.unannounced if self.views.is_leaving(event.term, b) is not False]:
                self.unannounced.pop(broker)  # it hears of no election but those that its own departure brought about

    def on_queued(self, event: RequestQueued) -> None:
        """Record the request in the broker's queue, and which leader changes and new replicas it carries."""
        item = event.item
        to = event.term.epoch, event.target, event.target_epoch
        untold = self.unannounced.get(event.target, {})
        if isinstance(item, LeaderAndIsrItem):
            self.told_as_new.update((p.key, event.target) for p, state in item.states.items() if state.is_new)
            for p, state in item.states.items():
                queued = Queued(False, state.leader_epoch, state.partition_epoch)
                self.waiting.setdefault((*to, p.topic, p.partition), deque()).append(queued)
                if untold.get(p.key, 1 << 40) <= state.leader_epoch:
                    untold.pop(p.key)
        elif isinstance(item, UpdateMetadataItem):
            self.newest_metadata = item
        elif isinstance(item, StopReplicaItem):
            carries_epochs = event.term.settings.versions.stop_replica >= _STOP_REPLICA_WITH_EPOCHS
            for p, stop in item.stops.items():
                sent_epoch = stop.leader_epoch if carries_epochs else NO_EPOCH
                queued = Queued(True, sent_epoch, int(stop.delete_partition))
                self.waiting.setdefault((*to, p.topic, p.partition), deque()).append(queued)
                untold.pop(p.key, None)

    def on_sent(self, event: RequestSent) -> None:
        """Remove the request from the queue, with everything that was queued before."""
        if event.again:
            return
        message = event.message
        if isinstance(message, UpdateMetadataRequest):
            self._last_metadata_sent = message, self.topics.at.zxid
            for p, topic_id, state in partition_states(message):
                self.announced_versions[message.controller_epoch, event.target, p, topic_id] = state.zk_version
            return
        for p, sent in queued_of(message):
            waiting = self.waiting.get(queue_of(event, p), deque())
            place = place_of(waiting, sent)
            for _ in range(0 if place is None else place + 1):
                waiting.popleft()
            self.last_sent[queue_of(event, p)] = sent

    def was_compared(self, event: RequestSent) -> bool:
        """Whether this very content went out already, and ZooKeeper has not changed since.

        It is a repetition, or brokers share this UpdateMetadata: what depends on both alone needs no second look.
        """
        message, zxid = self._last_metadata_sent
        return event.again or (message is event.message and zxid == self.topics.at.zxid)

    def on_answered(self, event: RequestAnswered) -> None:
        """Record the replicas that the broker has deleted according to its StopReplica response."""
        if not isinstance(event.message, StopReplicaRequest) or event.response.error_code:
            return
        failed = {(e.topic_name, e.partition_index) for e in event.response.partition_errors if e.error_code}
        for stop in stop_states(event.message):
            if stop.delete and stop.partition not in failed:
                self.deleted.add((stop.partition, event.target))
                self.deletion_answered_in[stop.partition, event.target] = event.message.controller_epoch

    def on_received(self, event: RequestReceived) -> None:
        """Record the controller epoch that the broker accepted, and the kinds of requests accepted in it."""
        if event.refusal:
            return
        message = event.message
        self.applied_epochs[event.broker, event.incarnation] = message.controller_epoch
        contact = event.broker, message.broker_epoch, message.controller_epoch
        self.accepted.setdefault(contact, set()).add(type(message).__name__)


def queue_of(event: RequestSent, p: TopicPartition) -> tuple[int, BrokerId, int, str, int]:
    """The key of the queue for a partition: (controller epoch, broker, broker epoch, topic, partition).

    Each registration of a broker has a queue of its own.
    """
    return event.message.controller_epoch, event.target, event.message.broker_epoch, p.topic, p.partition


def place_of(waiting: Iterable[Queued], sent: Queued) -> int | None:
    """The position of the sent item in the queue; None if it was not queued.

    Several queued StopReplica may have been merged into the one that was sent.
    """
    stops: list[Queued] = []
    for place, queued in enumerate(waiting):
        if queued == sent:
            return place
        if not queued.is_stop:
            continue
        stops.append(queued)
        forced = (s.leader_epoch for s in stops if s.partition_epoch and s.leader_epoch < 0)
        if sent == Queued(True, next(forced, queued.leader_epoch), max(s.partition_epoch for s in stops)):
            return place
    return None


def queued_of(message: Any) -> Iterator[tuple[TopicPartition, Queued]]:
    """The item that must have been queued for each partition of a LeaderAndIsr or StopReplica."""
    if isinstance(message, LeaderAndIsrRequest):
        for p, _, state in partition_states(message):
            yield p, Queued(False, state.leader_epoch, state.partition_epoch)
    for stop in stop_states(message):
        yield stop.partition, Queued(True, stop.leader_epoch, int(stop.delete))
