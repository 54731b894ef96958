"""What a controller can know of brokers: by ZooKeeper's history, requests and answers; not by what it remembers.

It reads the registrations when it begins, and whenever it handles a change of them; in between it may know any that was
there since. So each question has three answers: yes, no, and None where either may be what it knows.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from klamm.controller.decisions.features import supports
from klamm.controller.events import BrokerChange, ControlledShutdown, Event, LeaderAndIsrResponseReceived
from klamm.model.brokers import Broker
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.sim.history.controllers import ControllerHistory
from klamm.sim.history.registrations import RegistrationHistory
from klamm.sim.history.topics import TopicHistory
from klamm.sim.history.trace import ConnectionOpened, EventBegan, EventEnded, RequestSent, Term, TermBegan, TopicWritten
from klamm.zk.admin_znodes import decode_features
from klamm.zk.registrations import decode_registration
from klamm.zk.znodes import MalformedZnode

NOT_REGISTERED: Final = -1
_REFUSED: Final = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.STALE_CONTROLLER_EPOCH)

Answer = bool | None
_Failed = dict[tuple[BrokerId, int], dict[TopicPartition, Answer]]


@dataclass(slots=True)
class BrokerViews:
    """By controller epoch; of a winner that has not begun to act nothing is known."""

    controllers: ControllerHistory
    registrations: RegistrationHistory
    topics: TopicHistory
    read_since: dict[int, int] = field(default_factory=dict)
    """Which registrations a controller knows is at least as new as this zxid."""
    _read_until: dict[int, int] = field(default_factory=dict)
    """It has read them by then: the zxid at the end of failover, or of the last change of brokers."""
    _reading_since: dict[int, int] = field(default_factory=dict)
    """The same once the change of brokers that it handles is done."""
    _made_since: dict[tuple[BrokerId, int, BrokerId], int] = field(default_factory=dict)
    """(broker, incarnation, target) -> the same when the request was made for which it connects to the target."""
    _leaving: dict[int, dict[tuple[BrokerId, int], Answer]] = field(default_factory=dict)
    """(broker, broker epoch) -> whether its controlled shutdown has begun."""
    _failed: dict[int, _Failed] = field(default_factory=dict)
    """(broker, broker epoch) -> replicas of which it answered that their log directory failed."""

    _known_epochs: dict[tuple[BrokerId, int], tuple[int, set[int]]] = field(default_factory=dict)
    """(broker, since which zxid) -> its epochs, and the version of the registrations by which that was found out."""
    _known_brokers: dict[tuple[BrokerId, int], tuple[int, Sequence[Broker]]] = field(default_factory=dict)
    """The same, and what its registrations said."""

    # ---- questions

    def epochs(self, term: Term, broker: BrokerId, since: int | None = None) -> set[int]:
        """Broker epochs (NOT_REGISTERED for none) that the controller may have for the broker, at or since a zxid.

        There are several while a change has happened that the controller may or may not have read.
        """
        since = self.read_since.get(term.epoch, 0) if since is None else since
        version, known = self._known_epochs.get((broker, since), (-1, set()))
        if version != self.registrations.version:
            known = self.registrations.epochs_since(broker, since)
            if known != {NOT_REGISTERED} and self._may_be_unusable(broker, since):
                known.add(NOT_REGISTERED)
            self._known_epochs[broker, since] = self.registrations.version, known
        return known

    def is_registered(self, term: Term | None, broker: BrokerId, since: int | None = None) -> Answer:
        """Whether the controller has the broker as registered, at any time from the zxid `since` on.

        None where it may or may not know of a change.
        """
        if term is None:
            return None
        epochs = self.epochs(term, broker, since)
        if NOT_REGISTERED not in epochs:
            return True
        return False if _is_certain(epochs) else None

    def is_registered_throughout(self, term: Term | None, broker: BrokerId, since: int | None = None) -> bool:
        """Whether the broker kept one registration, as far as the controller can know: it did not restart or leave."""
        if term is None:
            return False
        epochs = self.epochs(term, broker, since)
        return len(epochs) == 1 and NOT_REGISTERED not in epochs

    def is_leaving(self, term: Term | None, broker: BrokerId) -> Answer:
        """Whether the controller has the broker in controlled shutdown; None where both is possible."""
        if term is None:
            return None
        known = self._leaving.get(term.epoch)
        if not known:
            return False
        return _agreed({known.get((broker, epoch), False) for epoch in self.epochs(term, broker)})

    def has_failed(self, term: Term | None, p: TopicPartition, broker: BrokerId) -> Answer:
        """Whether the controller knows that the log directory of the broker's replica failed.

        None where both is possible.
        """
        if term is None:
            return None
        known = self._failed.get(term.epoch)
        if not known:
            return False
        return _agreed({known.get((broker, epoch), {}).get(p, False) for epoch in self.epochs(term, broker)})

    def is_live(self, term: Term | None, broker: BrokerId) -> Answer:
        """Whether the controller has the broker as registered and not in controlled shutdown.

        None where both is possible.
        """
        return both(self.is_registered(term, broker), negated(self.is_leaving(term, broker)))

    def is_online(self, term: Term | None, p: TopicPartition, broker: BrokerId) -> Answer:
        """Whether the broker is live and its replica is on a working log directory; None where both is possible."""
        return both(self.is_live(term, broker), negated(self.has_failed(term, p, broker)))

    def was_registered_when_read(self, term: Term, broker: BrokerId) -> bool:
        """Whether the broker was registered all the time in which the controller last read the registrations."""
        since = self.read_since.get(term.epoch, 0)
        return -1 not in self.registrations.epochs_since(broker, since, self._read_until.get(term.epoch, since))

    def handled_since(self, term: Term, event: Event) -> int:
        """Return the zxid up to which the controller surely knows all changes of brokers at the end of this event.

        The event may itself be a change of brokers, which the controller has read.
        """
        known = self._reading_since if isinstance(event, BrokerChange) else self.read_since
        return known.get(term.epoch, 0)

    def made_since(self, term: Term, target: BrokerId) -> int:
        """Return the zxid up to which the controller surely knew all changes when it made the request that is sent now.

        The request may have been made before the connection to the broker was open.
        """
        now = self.read_since.get(term.epoch, 0)
        return self._made_since.get((term.broker, term.incarnation, target), now)

    def _may_be_unusable(self, broker: BrokerId, since: int) -> bool:
        """Whether the broker's registration was unreadable, or lacked a finalized feature, at this zxid or later."""
        levels = tuple(self.registrations.finalized_since(since))
        return any(_is_unusable(broker, data, levels) for data in self.registrations.contents_since(broker, since))

    def registered_since_election(self, term: Term, broker: BrokerId) -> Sequence[Broker]:
        """What its registration said at the controller's election and later, where that can be read."""
        key = broker, self.controllers.elected_at.get(term.epoch, 0)
        version, known = self._known_brokers.get(key, (-1, ()))
        if version != self.registrations.version:
            contents = (_read(broker, data) for data in self.registrations.contents_since(*key))
            known = [registered for registered in contents if registered is not None]
            self._known_brokers[key] = self.registrations.version, known
        return known

    # ---- what happens

    def on_term_began(self, event: TermBegan) -> None:
        """Record that this controller's knowledge of brokers is at least as new as its own election."""
        self.read_since[event.term.epoch] = self.controllers.elected_at.get(event.term.epoch, 0)

    def on_event_began(self, event: EventBegan) -> None:
        """Record what the controller may learn from this event: registrations, a shutdown, or failed directories."""
        if event.term is None:
            return
        epoch, what = event.term.epoch, event.event
        if isinstance(what, BrokerChange):
            self._reading_since[epoch] = event.seen_zxid
        elif isinstance(what, ControlledShutdown):
            known = self._leaving.setdefault(epoch, {})
            for run in self._runs(event.term, what):
                if not known.get(run, False):
                    known[run] = None
        elif isinstance(what, LeaderAndIsrResponseReceived):
            self._on_answers(event.term, what, is_done=False)

    def on_event_ended(self, event: EventEnded) -> None:
        """Record what the controller has learnt from this event, unless the event failed."""
        acting = self.controllers.active
        if acting is not None and acting.epoch not in self._read_until:
            self._read_until[acting.epoch] = self.controllers.at.zxid
        if event.term is None or event.has_failed or event.is_cut_short:
            return
        epoch, what = event.term.epoch, event.event
        if isinstance(what, BrokerChange):
            self.read_since[epoch] = self._reading_since.pop(epoch)
            self._read_until[epoch] = self.controllers.at.zxid
        elif isinstance(what, ControlledShutdown):
            known = self._leaving.setdefault(epoch, {})
            error = what.reply.result().error
            for run in self._runs(event.term, what):
                if error is ErrorCode.NONE and _is_certain(self.epochs(event.term, what.broker)):
                    known[run] = True
                elif error in _REFUSED and known.get(run) is None:
                    known.pop(run, None)
        elif isinstance(what, LeaderAndIsrResponseReceived):
            self._on_answers(event.term, what, is_done=True)

    def on_connection_opened(self, event: ConnectionOpened) -> None:
        """Record how old the controller's knowledge may be in requests over this new connection."""
        terms = self.controllers.acting({(event.sender, event.incarnation)})
        if terms:
            self._made_since.setdefault(event, self.read_since.get(terms[-1].epoch, 0))

    def on_sent(self, event: RequestSent) -> None:
        """Forget how old the knowledge in requests over this connection was, since the next one is made later."""
        self._made_since.pop((event.sender, event.incarnation, event.target), None)

    def on_topic_written(self, event: TopicWritten) -> None:
        """Forget the failed log directories of replicas that the topic does not have any more."""
        before = event.before.partitions if event.before else {}
        after = event.after.partitions if event.after else {}
        for number, was in before.items():
            left = after[number].replicas if number in after else ()
            for broker in was.replicas:
                if broker not in left:
                    self._forget(TopicPartition(event.topic, number), broker)

    def _forget(self, p: TopicPartition, broker: BrokerId) -> None:
        """Forget that the log directory of the broker's replica failed."""
        for failed in self._failed.values():
            for (of, _), partitions in failed.items():
                if of == broker:
                    partitions.pop(p, None)

    def _runs(self, term: Term, requested: ControlledShutdown) -> Collection[tuple[BrokerId, int]]:
        """The registrations (broker, epoch) of the broker that this ControlledShutdown may have shut down."""
        return [
            (requested.broker, e)
            for e in self.epochs(term, requested.broker)
            if requested.broker_epoch in (NOT_REGISTERED, e)
        ]

    def _on_answers(self, term: Term, answered: LeaderAndIsrResponseReceived, is_done: bool) -> None:
        """Record which log directories failed or work, from the error codes of a LeaderAndIsr response.

        KAFKA_STORAGE_ERROR means failed, NONE works; other codes say nothing.
        """
        if answered.response.error_code:
            return
        run = answered.broker, answered.broker_epoch
        for p, code in answers_by_partition(answered.response, self.topics.ids):
            failed = code == ErrorCode.KAFKA_STORAGE_ERROR
            if code not in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE):
                continue
            known = self._failed.setdefault(term.epoch, {}).setdefault(run, {})
            if known.get(p, False) is not failed:
                known[p] = failed if is_done else None


def answers_by_partition(response: Any, names: Mapping[Any, str]) -> list[tuple[TopicPartition, int]]:
    """The error code of each partition in a LeaderAndIsr response of any version."""
    found = [(TopicPartition(e.topic_name, e.partition_index), e.error_code) for e in response.partition_errors]
    for topic in response.topics:
        if (name := names.get(topic.topic_id)) is not None:
            found += [(TopicPartition(name, e.partition_index), e.error_code) for e in topic.partition_errors]
    return found


@lru_cache(maxsize=1024)
def _read(broker: BrokerId, data: bytes | None) -> Broker | None:
    """Decode the content of a registration; None where there is none or it cannot be decoded."""
    try:
        return decode_registration(broker, data, 0).broker
    except MalformedZnode:
        return None


@lru_cache(maxsize=1024)
def _is_unusable(broker: BrokerId, data: bytes | None, levels: tuple[bytes | None, ...]) -> bool:
    """Whether a controller ignores a broker with this registration, under one of these contents of `/feature`."""
    try:
        features = decode_registration(broker, data, 0).features
    except MalformedZnode:
        return True
    return any(not supports(features, _finalized(content)) for content in levels)


def _finalized(content: bytes | None) -> Mapping[str, int]:
    """The finalized feature levels in the content of `/feature`; empty where it cannot be decoded."""
    try:
        return decode_features(content).levels
    except MalformedZnode:
        return {}


def _is_certain(epochs: Collection[int]) -> bool:
    """Whether there is only one broker epoch that the controller can have."""
    return len(epochs) == 1


def _agreed(answers: Collection[Answer]) -> Answer:
    """The answer that all have in common; None where they differ."""
    return next(iter(answers)) if len(answers) == 1 else None


def both(one: Answer, other: Answer) -> Answer:
    """Whether both are true; None where that is not known."""
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def negated(answer: Answer) -> Answer:
    """The opposite of the answer; None stays None."""
    return None if answer is None else not answer
