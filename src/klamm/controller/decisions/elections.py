"""Which replica leads a partition next. Source: Election.scala, PartitionStateMachine.scala (3.9)."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from klamm.controller.context import ControllerContext
from klamm.controller.decisions.plans import Reasons, StatePlan
from klamm.controller.topic import Partition
from klamm.model.ids import BrokerId, shared_ids
from klamm.model.leader_and_isr import LeaderAndIsr, LeaderRecoveryState

NOT_LIVE: Final = "not live"
EARLIER_LOG: Final = "its log of an earlier topic of that name is not deleted yet"
"""Reasons against a replica, for the journal."""


class Facts(NamedTuple):
    """What a leader election depends on, for one partition."""

    replicas: tuple[BrokerId, ...]  # assignment order; the first is preferred
    isr: tuple[BrokerId, ...]
    live: frozenset[BrokerId]  # registered, not shutting down, log directory online, no log of an earlier topic
    unclean_allowed: bool = False
    shutting_down: frozenset[BrokerId] = frozenset()  # registered, on their way out
    target: tuple[BrokerId, ...] = ()  # where a reassignment leads; empty without one
    outdated: frozenset[BrokerId] = frozenset()  # a log of an earlier topic of that name may be there


class Choice(NamedTuple):
    """An elected leader with its ISR; `recipients` get a LeaderAndIsr."""

    leader: BrokerId
    isr: tuple[BrokerId, ...]
    unclean: bool = False  # the leader came from outside the ISR: records may be lost
    recipients: tuple[BrokerId, ...] = ()  # brokers that get a LeaderAndIsr


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to elect a leader, with the name that the journal uses."""

    name: str
    elect: Callable[[Facts], Choice | None]
    may_be_unclean: bool = False
    """Whether a replica outside the ISR may lead if the topic's config allows it."""
    is_of_target: bool = False
    """Whether only replicas of the target may lead, where a reassignment has one."""

    def __call__(self, facts: Facts) -> Choice | None:
        return self.elect(facts)


def _strategy(
    name: str, may_be_unclean: bool = False, is_of_target: bool = False
) -> Callable[[Callable[[Facts], Choice | None]], Strategy]:
    """A decorator that makes a `Strategy` of an election function."""
    return lambda elect: Strategy(name, elect, may_be_unclean, is_of_target)


@_strategy("offline", may_be_unclean=True)
def elect_offline(facts: Facts) -> Choice | None:
    """The first live in-sync replica; if there is none and unclean elections are allowed, the first live replica."""
    live = tuple(b for b in facts.replicas if b in facts.live)
    in_sync = next((b for b in live if b in facts.isr), None)
    if in_sync is not None:
        return Choice(in_sync, tuple(b for b in facts.isr if b in live), recipients=live)
    if live and facts.unclean_allowed and not facts.live.intersection(facts.isr):
        return Choice(live[0], (live[0],), unclean=True, recipients=live)
    return None


@_strategy("unclean")
def elect_unclean(facts: Facts) -> Choice | None:
    """Choose a leader as `elect_offline` does with unclean elections allowed, whatever the topic's config says."""
    return elect_offline(facts._replace(unclean_allowed=True))


@_strategy("preferred")
def elect_preferred(facts: Facts) -> Choice | None:
    """The first replica of the assignment, if it is live and in sync; else None."""
    preferred = facts.replicas[:1]
    if preferred and preferred[0] in facts.live and preferred[0] in facts.isr:
        return Choice(preferred[0], facts.isr, recipients=facts.replicas)
    return None


@_strategy("reassignment", is_of_target=True)
def elect_for_reassignment(facts: Facts) -> Choice | None:
    """The first target replica that is live and in sync."""
    target = facts.target or facts.replicas
    chosen = next((b for b in target if b in facts.live and b in facts.isr), None)
    return None if chosen is None else Choice(chosen, facts.isr, recipients=target)


@_strategy("override", is_of_target=True)
def elect_for_override(facts: Facts) -> Choice | None:
    """Choose a leader as `elect_for_reassignment` does, when a reassignment replaces one in progress.

    LeaderAndIsr also goes to the replicas that are removed, because one of them may lead.
    """
    choice = elect_for_reassignment(facts)
    return None if choice is None else choice._replace(recipients=facts.replicas)


@_strategy("controlled shutdown")
def elect_for_controlled_shutdown(facts: Facts) -> Choice | None:
    """The first in-sync replica that is not shutting down; the ISR loses the replicas that are.

    The old leader is told as well, so that it becomes a follower.
    """
    present = tuple(b for b in facts.replicas if b in facts.live or b in facts.shutting_down)
    chosen = next((b for b in present if b in facts.isr and b not in facts.shutting_down), None)
    if chosen is None:
        return None
    return Choice(chosen, tuple(b for b in facts.isr if b not in facts.shutting_down), recipients=present)


def choose_initial(facts: Facts) -> Choice | None:
    """The first live replica, with all live replicas as ISR: for a partition that never had a leader."""
    live = tuple(b for b in facts.replicas if b in facts.live)
    return Choice(live[0], live, recipients=live) if live else None


def rejected_candidates(
    facts: Facts, chosen: BrokerId | None, *, is_of_target: bool = False
) -> tuple[tuple[int, str], ...]:
    """The candidates that come before the chosen one (all, if there is none), each with the reason against it.

    They are the replicas, or with `is_of_target` those of a reassignment's target: as the strategy goes through them.
    """
    reasons = []
    for broker in (facts.target if is_of_target else ()) or facts.replicas:
        if broker == chosen:
            break
        reasons.append((int(broker), _why_not_elected(facts, broker)))
    return tuple(reasons)


def _why_not_elected(facts: Facts, broker: BrokerId) -> str:
    """The reason why this replica was not elected, for the journal."""
    if broker in facts.shutting_down:
        return "shutting down"
    if broker in facts.outdated:
        return EARLIER_LOG
    if broker not in facts.live:
        return NOT_LIVE
    return "not in the ISR" if broker not in facts.isr else "not the preferred replica"


class Decided(NamedTuple):
    """The result of one election, with the candidates that were passed over."""

    choice: Choice | None
    rejected: tuple[tuple[int, str], ...]


@dataclass(slots=True)
class ElectionPlan(StatePlan):
    """The partition states to write, with the decision behind each."""

    decided: dict[Partition, Decided] = field(default_factory=dict)
    """The decision per partition; partitions that a newer controller wrote have none."""

    def reasons(self, partitions: Iterable[Partition]) -> dict[Partition, Reasons]:
        """The candidates that were passed over, by partition."""
        return {p: self.decided[p].rejected for p in partitions if p in self.decided}


def facts_of(
    context: ControllerContext,
    partition: Partition,
    isr: tuple[BrokerId, ...],
    unclean: bool,
    staying: tuple[BrokerId, ...] = (),
) -> Facts:
    """The facts of a partition's election; `staying` are the replicas kept by a new assignment not yet in memory."""
    assignment = partition.assignment
    target = staying or (assignment.target if assignment.removing else ())
    live, leaving = context.live_for(partition), context.leaving_for(partition)
    outdated = context.brokers_with_earlier_log(partition, isr) if context.pending_by_topic else frozenset()
    return Facts(assignment.replicas, isr, live - outdated if outdated else live, unclean, leaving, target, outdated)


def plan_elections(
    context: ControllerContext,
    stored: Mapping[Partition, LeaderAndIsr],
    elect: Strategy,
    unclean_topics: frozenset[str] = frozenset(),
    tracks_recovery: bool = True,
    staying: Mapping[Partition, tuple[BrokerId, ...]] = MappingProxyType({}),
) -> ElectionPlan:
    """Choose a leader for each of these stored partition states.

    A partition without an eligible replica is listed in `refused`, and does not affect the others.
    """
    plan = ElectionPlan()
    known: dict[Hashable, Decided] = {}  # thousands of partitions share a few sets of facts
    has_own_facts = bool(context.offline_dirs or staying)
    outdated_topics = context.pending_by_topic
    for p, now in stored.items():
        if now.controller_epoch > context.epoch:
            plan.refused[p] = f"a newer controller (epoch {now.controller_epoch}) wrote the state znode"
            continue
        unclean = p.topic in unclean_topics
        alike = p.assignment, now.isr, unclean, p if has_own_facts or p.topic in outdated_topics else None
        decided = known.get(alike)
        if decided is None:
            decided = known[alike] = _decide(facts_of(context, p, now.isr, unclean, staying.get(p, ())), elect)
        plan.decided[p] = decided
        choice = decided.choice
        if choice is None:
            plan.refused[p] = "no replica is eligible to be leader"
            continue
        recovering = LeaderRecoveryState.RECOVERING if choice.unclean and tracks_recovery else None
        plan.writes[p] = now.with_leader(choice.leader, choice.isr, context.epoch, recovering)
    return plan


def _decide(facts: Facts, elect: Strategy) -> Decided:
    """Run one election, and explain the candidates that were passed over."""
    choice = elect(facts)
    chosen = choice.leader if choice is not None else None
    rejected = rejected_candidates(facts, chosen, is_of_target=elect.is_of_target)
    return Decided(choice and choice._replace(isr=shared_ids(choice.isr)), rejected)


def without_live_isr(context: ControllerContext, stored: Mapping[Partition, LeaderAndIsr]) -> list[Partition]:
    """The partitions that have no live ISR member, for which only an unclean election could find a leader."""
    if context.offline_dirs:
        return [p for p, now in stored.items() if context.live_for(p).isdisjoint(now.isr)]
    gone = {isr for isr in {now.isr for now in stored.values()} if context.live.isdisjoint(isr)}
    return [p for p, now in stored.items() if now.isr in gone] if gone else []
