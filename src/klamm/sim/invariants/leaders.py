"""Who leads a partition, and in which leader epoch. The rules of choice are written down here again, on purpose."""

import contextlib
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
from uuid import UUID

from klamm.controller import events
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderRecoveryState
from klamm.sim.history.broker_views import Answer, both, negated
from klamm.sim.history.history import History
from klamm.sim.history.trace import EventBegan, LeaderAndIsrApplied, RequestSent, StateWritten
from klamm.sim.nodes.control_messages import partition_states
from klamm.wire.messages import UpdateMetadataRequest
from klamm.zk.admin_znodes import decode_reassignment
from klamm.zk.znodes import MalformedZnode


def leader_epoch_is_monotone(history: History, event: StateWritten) -> str | None:
    """The leader epoch never falls, and a change of leader, also to none, raises it."""
    before, after = event.before, event.after
    if before is not None and after.leader_epoch < before.leader_epoch:
        return f"{event.partition}: leader epoch {before.leader_epoch} fell to {after.leader_epoch}"
    if before is not None and after.leader != before.leader and after.leader_epoch == before.leader_epoch:
        return f"{event.partition}: leader {before.leader} became {after.leader} within epoch {after.leader_epoch}"
    return None


def leader_epoch_rises_by_one(history: History, event: StateWritten) -> str | None:
    """A change by the controller raises the leader epoch by one; an ISR change by the leader does not raise it."""
    if event.before is not None and event.after.leader_epoch > event.before.leader_epoch + 1:
        return f"{event.partition}: leader epoch {event.before.leader_epoch} jumped to {event.after.leader_epoch}"
    return None


def one_leader_per_epoch(history: History, event: StateWritten | RequestSent) -> str | None:
    """No leader epoch has two leaders, neither in ZooKeeper nor in any control request."""
    for p, topic, leader, epoch in _leaders_named(history, event):
        known = history.replicas.leaders.get((p, topic, epoch), leader)
        if leader != known and leader >= 0 and not _is_old_metadata(history, event, p, leader, epoch):
            return f"{p}: leaders {known} and {leader} in leader epoch {epoch}"
    return None


def _is_old_metadata(
    history: History, event: StateWritten | RequestSent, p: TopicPartition, leader: int, epoch: int
) -> bool:
    """Whether this UpdateMetadata without topic ids is late and is about an earlier topic of that name."""
    if isinstance(event, StateWritten) or not isinstance(event.message, UpdateMetadataRequest):
        return False
    has_ids = any(topic_id for _, topic_id, _ in partition_states(event.message))
    return not has_ids and any(
        (of, at, led) == (p, epoch, leader) for (of, _, at), led in history.replicas.leaders.items()
    )


def _leaders_named(
    history: History, event: StateWritten | RequestSent
) -> Iterable[tuple[TopicPartition, UUID | int | None, int, int]]:
    """Yield (partition, incarnation of the topic, leader, leader epoch) for each state in the event."""
    incarnation_of = history.topics.incarnation_of
    if isinstance(event, StateWritten):
        p = event.partition
        yield p, incarnation_of(p.topic), event.after.leader, event.after.leader_epoch
    elif not history.requests.was_compared(event):
        for p, topic_id, state in partition_states(event.message):
            yield p, topic_id or incarnation_of(p.topic), state.leader, state.leader_epoch


def leader_and_isr_keeps_the_newest_epoch(history: History, event: LeaderAndIsrApplied) -> str | None:
    """No LeaderAndIsr takes a replica back to an earlier leader epoch."""
    for p, (before, after) in event.epochs.items():
        if after < before:
            return f"{p}: replica {event.broker} was in leader epoch {before}, and goes back to {after}"
    return None


def leader_is_in_sync(history: History, event: StateWritten) -> str | None:
    """The leader is a member of the ISR."""
    state = event.after
    if state.has_leader and state.leader not in state.isr:
        return f"{event.partition}: leader {state.leader} is not in ISR {state.isr}"
    return None


def elections_are_clean(history: History, event: StateWritten) -> str | None:
    """A new leader was in the ISR before, unless unclean elections are allowed, and is registered."""
    leader, term = event.after.leader, history.controllers.active
    if event.before is None or not event.after.has_leader or leader == event.before.leader:
        return None
    if leader not in event.before.isr and not _unclean_allowed(history, event.partition.topic):
        return f"{event.partition}: new leader {leader} was not in ISR {event.before.isr}"
    if history.broker_views.is_registered(term, leader) is False:
        return f"{event.partition}: new leader {leader} is not registered, as {term} must know"
    return None


def _unclean_allowed(history: History, topic: str) -> bool:
    """Whether unclean leader election is allowed for this topic."""
    term = history.controllers.active
    if term is None:
        return True
    run = term.broker, term.incarnation
    doing = history.controllers.handling.get(run)
    if doing is not None and isinstance(doing.event, events.ReplicaLeaderElection) and doing.event.unclean:
        return True
    if run in history.controllers.maybe_unclean and topic not in history.topics.unclean:
        return True
    # its ZooKeeper server may be behind: what it read there is what it has to go by
    configured = history.topics.unclean_since(topic, doing.seen_zxid if doing is not None else 0)
    return any(run in history.controllers.unclean_by_default if c is None else c for c in configured)


def unclean_leaders_are_alone_in_isr(history: History, event: StateWritten) -> str | None:
    """A leader from outside the ISR is the only member of the new ISR, and is marked as recovering."""
    before, after = event.before, event.after
    if before is None or not after.has_leader or after.leader in before.isr or after.leader == before.leader:
        return None
    writes_recovery = history.controllers.active is None or history.controllers.active.settings.writes_recovery_state
    if after.isr != (after.leader,) or (writes_recovery and after.recovery != LeaderRecoveryState.RECOVERING):
        return f"{event.partition}: unclean leader {after.leader} of ISR {before.isr} begins as {after}"
    return None


def recovering_leaders_are_alone_in_isr(history: History, event: StateWritten) -> str | None:
    """A recovering leader is the only ISR member, and does not become recovering again in its leader epoch."""
    before, after = event.before, event.after
    if after.recovery != LeaderRecoveryState.RECOVERING:
        return None
    if len(after.isr) > 1:
        return f"{event.partition}: recovering, with ISR {after.isr}"
    if before is not None and before.recovery != after.recovery and before.leader_epoch == after.leader_epoch:
        return f"{event.partition}: recovering again in leader epoch {after.leader_epoch}"
    return None


# ---- the choice


class _Candidates:
    """What an election may look at: the partition as it was, and brokers as ZooKeeper and their answers have them."""

    def __init__(self, history: History, event: StateWritten) -> None:
        self.replicas = event.replicas
        self.isr = event.before.isr if event.before else ()
        topic = history.topics.znodes.get(event.partition.topic)
        found = topic.partitions.get(event.partition.partition) if topic else None
        self.removing = found.removing if found else ()
        self._views, self._term, self._p = history.broker_views, history.controllers.active, event.partition
        self._topics = history.topics

    def live(self, broker: BrokerId) -> Answer:
        """Whether the replica is online, as the controller knows it, and its log is not an earlier topic's."""
        online = self._views.is_online(self._term, self._p, broker)
        if broker not in self.isr and self._topics.may_have_earlier_log(self._p, broker):
            return both(online, None)
        return online

    def registered(self, broker: BrokerId) -> Answer:
        """Whether the broker is registered and the replica's log directory works, as the controller knows it."""
        failed = self._views.has_failed(self._term, self._p, broker)
        return both(self._views.is_registered(self._term, broker), negated(failed))

    def leaving(self, broker: BrokerId) -> Answer:
        """Whether the broker is in controlled shutdown, as the controller knows it."""
        return self._views.is_leaving(self._term, broker)


class Made(NamedTuple):
    """What was chosen."""

    leader: BrokerId
    isr: tuple[BrokerId, ...]


def is_first(leader: BrokerId, candidates: Iterable[BrokerId], fits: Callable[[BrokerId], Answer]) -> bool:
    """Whether the leader is, or may be, the first candidate that meets the condition `fits`."""
    for broker in candidates:
        if broker == leader:
            return fits(broker) is not False
        if fits(broker) is True:
            return False
    return False


def is_kept(isr: tuple[BrokerId, ...], members: Iterable[BrokerId], stays: Callable[[BrokerId], Answer]) -> bool:
    """Whether the ISR consists, or may consist, of the members that meet the condition `stays`, in order."""
    possible = [b for b in members if stays(b) is not False]
    certain = {b for b in possible if stays(b) is True}
    return list(isr) == [b for b in possible if b in isr] and certain <= set(isr)


def _is_offline_choice(c: _Candidates, made: Made) -> bool:
    """Whether the choice follows the rule for a dead leader: the first live ISR member; dead members leave."""
    return is_first(made.leader, (b for b in c.replicas if b in c.isr), c.live) and is_kept(made.isr, c.isr, c.live)


def _is_unclean_choice(c: _Candidates, made: Made) -> bool:
    """Whether the choice follows the rule for unclean elections: the first live replica, if no live one is in sync."""
    if any(c.live(b) is True for b in c.replicas if b in c.isr):
        return False
    return is_first(made.leader, c.replicas, c.live) and made.isr == (made.leader,)


def _is_reassigned_choice(c: _Candidates, made: Made) -> bool:
    """Whether the choice follows the rule for a removed leader: the first live in-sync target; the ISR stays."""
    staying = (b for b in c.replicas if b not in c.removing and b in c.isr)
    return is_first(made.leader, staying, c.live) and made.isr == c.isr


def _is_preferred_choice(c: _Candidates, made: Made) -> bool:
    """Whether the choice follows the rule for preferred leaders: the first replica, if it is live and in sync."""
    first = c.replicas[0]
    return made == (first, c.isr) and c.live(first) is not False and first in c.isr


def _is_choice_for_shutdown(c: _Candidates, made: Made) -> bool:
    """Whether the choice follows the rule for a controlled shutdown.

    The first registered in-sync replica that is not shutting down leads; those shutting down leave the ISR.
    """

    def fits(broker: BrokerId) -> Answer:
        """Whether the broker may lead: it is registered and not shutting down."""
        return both(c.registered(broker), negated(c.leaving(broker)))

    def stays(broker: BrokerId) -> Answer:
        """Whether the broker stays in the ISR: it is not shutting down."""
        return negated(c.leaving(broker))

    members = (b for b in c.replicas if b in c.isr)
    return is_first(made.leader, members, fits) and is_kept(made.isr, c.isr, stays)


Rule = Callable[[_Candidates, Made], bool]
_BY_EVENT: Final[dict[type[events.Event], tuple[Rule, ...]]] = {
    events.ControlledShutdown: (_is_choice_for_shutdown,),
    events.ReplicaLeaderElection: (_is_preferred_choice,),
    events.AutoPreferredReplicaLeaderElection: (_is_preferred_choice,),
    events.ApiPartitionReassignment: (_is_reassigned_choice,),
    events.ZkPartitionReassignment: (_is_reassigned_choice,),
    events.PartitionReassignmentIsrChange: (_is_reassigned_choice,),
    events.AlterPartitionReceived: (_is_reassigned_choice,),
    events.IsrChangeNotification: (_is_reassigned_choice,),
    events.BrokerChange: (_is_offline_choice, _is_reassigned_choice),
    events.TopicChange: (_is_offline_choice,),
    events.PartitionModifications: (_is_offline_choice,),
    events.LeaderAndIsrResponseReceived: (_is_offline_choice,),
    events.UncleanLeaderElectionEnable: (_is_offline_choice,),
    events.TopicUncleanLeaderElectionEnable: (_is_offline_choice,),
}
_IN_FAILOVER: Final[tuple[Rule, ...]] = (_is_offline_choice, _is_reassigned_choice, _is_preferred_choice)


def _rule_for_override(history: History, event: StateWritten, doing: EventBegan) -> Rule:
    """The rule when a new reassignment drops the leader: a replica that stays leads first (KAFKA-14808)."""
    p, asked = event.partition, doing.event
    topic = history.topics.znodes.get(p.topic)
    found = topic.partitions.get(p.partition) if topic else None
    target: Iterable[BrokerId] | None = None
    if isinstance(asked, events.ApiPartitionReassignment):
        target = asked.targets.get(p)
    else:
        with contextlib.suppress(MalformedZnode):
            target = decode_reassignment(history.assignments.requested).get(p)
    origin = found.origin if found else ()
    to_come = tuple(dict.fromkeys((*(target or ()), *origin)))

    def rule(c: _Candidates, made: Made) -> bool:
        """Whether the first live in-sync replica that stays leads, with an unchanged ISR."""
        return is_first(made.leader, (b for b in to_come if b in c.isr), c.live) and made.isr == c.isr

    return rule


def leaders_are_chosen_by_the_rule(history: History, event: StateWritten) -> str | None:
    """The first live in-sync replica of the assignment leads, with the ISR that the kind of election leaves."""
    before, after, term = event.before, event.after, history.controllers.active
    if before is None or term is None or not after.has_leader or after.leader == before.leader:
        return None
    doing = history.controllers.handling.get((term.broker, term.incarnation))
    rules = _BY_EVENT.get(type(doing.event), _IN_FAILOVER) if doing is not None else _IN_FAILOVER
    if doing is not None and _is_reassigned_choice in rules:
        rules = (*rules, _rule_for_override(history, event, doing))
    if _unclean_allowed(history, event.partition.topic):
        rules = (*rules, _is_unclean_choice)
    if doing is not None and isinstance(doing.event, events.ReplicaLeaderElection) and doing.event.unclean:
        rules = (_is_offline_choice, _is_unclean_choice)
    candidates, made = _Candidates(history, event), Made(after.leader, after.isr)
    if not any(rule(candidates, made) for rule in rules):
        about = type(doing.event).__name__ if doing else "nothing"
        live = {b: candidates.live(b) for b in event.replicas}
        return f"{event.partition}: {before} became {after} while {term} was handling {about}; of replicas {live} live"
    return None


def new_partitions_begin_at_epoch_zero(history: History, event: StateWritten) -> str | None:
    """A new partition has its first live replica as leader in leader epoch 0, and all live replicas as ISR."""
    if event.before is not None:
        return None
    state, candidates = event.after, _Candidates(history, event)
    if (
        state.leader_epoch != 0
        or state.leader != state.isr[0]
        or not is_kept(state.isr, event.replicas, candidates.live)
    ):
        live = {b: candidates.live(b) for b in event.replicas}
        return f"{event.partition}: begins as {state} with replicas of which {live} live"
    return None


def preferred_elections_choose_the_first_replica(history: History, event: StateWritten) -> str | None:
    """An election of preferred leaders chooses the first replica, and only where it is in sync."""
    before, after, term = event.before, event.after, history.controllers.active
    if before is None or term is None or not after.has_leader or after.leader == before.leader:
        return None
    doing = history.controllers.handling.get((term.broker, term.incarnation))
    if doing is None:
        return None
    asked = doing.event
    if isinstance(asked, events.ReplicaLeaderElection) and asked.unclean:
        return None
    if not isinstance(asked, events.ReplicaLeaderElection | events.AutoPreferredReplicaLeaderElection):
        return None
    if after.leader != event.replicas[0] or after.leader not in before.isr:
        return f"{event.partition}: of {event.replicas}, ISR {before.isr}, {after.leader} is elected as preferred"
    return None


def failed_logs_do_not_lead(history: History, event: StateWritten) -> str | None:
    """A replica whose log directory failed, according to its broker's response, is not elected."""
    leader, term = event.after.leader, history.controllers.active
    if term is None or not event.after.has_leader or (event.before and event.before.leader == leader):
        return None
    if history.broker_views.has_failed(term, event.partition, leader) is True:
        return f"{event.partition}: {leader} is elected, whose log directory failed"
    return None
