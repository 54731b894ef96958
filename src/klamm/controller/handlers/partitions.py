"""Bringing partitions online: first leaders for new partitions, elections for the others.

Source: PartitionStateMachine.scala (3.9).
"""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from klamm.controller.decisions.elections import (
    ElectionPlan,
    Facts,
    Strategy,
    choose_initial,
    elect_offline,
    facts_of,
    plan_elections,
    rejected_candidates,
    without_live_isr,
)
from klamm.controller.handlers.state_changes import States, change_known_states
from klamm.controller.states import PartitionState
from klamm.controller.steps import READ_PARTITIONS, REQUEST_PARTITIONS, WRITE_PARTITIONS, gather_limited
from klamm.controller.term_context import TermContext
from klamm.controller.topic import Partition
from klamm.model.ids import BrokerId
from klamm.model.leader_and_isr import (
    INITIAL_LEADER_EPOCH,
    INITIAL_PARTITION_EPOCH,
    LeaderAndIsr,
)
from klamm.model.topic_names import INTERNAL_TOPICS
from klamm.zk.fenced import chunks

Staying: TypeAlias = Mapping[Partition, tuple[BrokerId, ...]]
"""By partition, the replicas that a new assignment keeps."""

UNCLEAN_CONFIG: Final = "unclean.leader.election.enable"


async def trigger_online(term: TermContext, topic: str | None = None) -> int:
    """Elect leaders for all New and Offline partitions, of one topic or all; returns how many were elected."""
    return await bring_online(term, await electable_partitions(term, topic), elect_offline)


async def electable_partitions(term: TermContext, topic: str | None = None) -> list[Partition]:
    """The New and Offline partitions with a live replica, of one topic or all; those without one are journalled.

    Internal topics come first: all groups and transactions with a coordinator there wait for it.
    """
    live = term.context.live
    urgent: list[Partition] = []
    waiting: list[Partition] = []
    for state in (PartitionState.NEW, PartitionState.OFFLINE):
        async for chunk in term.slices.over(list(term.context.in_state[state]), READ_PARTITIONS):
            asked = [p for p in chunk if (topic is None or p.topic == topic) and not term.context.is_to_be_deleted(p)]
            without_live_replica = [p for p in asked if live.isdisjoint(p.replicas)]
            term.refuse("election", dict.fromkeys(without_live_replica, "no replica is live"))
            electable = [p for p in asked if not live.isdisjoint(p.replicas)] if without_live_replica else asked
            urgent += [p for p in electable if p.topic in INTERNAL_TOPICS]
            waiting += [p for p in electable if p.topic not in INTERNAL_TOPICS]
    return urgent + waiting


async def bring_online(
    term: TermContext,
    partitions: Collection[Partition],
    elect: Strategy,
    staying: Staying = MappingProxyType({}),
) -> int:
    """Elect leaders, write the states and send the requests; returns how many were elected.

    Requests are sent while later partitions are elected, first for a few partitions, so that most have a leader long
    before the last one. Where the batch has requests already, all are sent together: the states in them are to be the
    elected ones. New partitions get their first leader, and are not counted. `staying` limits the candidates where a
    reassignment is not in memory yet.
    """
    new: list[Partition] = []
    led_before: list[Partition] = []
    async for chunk in term.slices.over(partitions):
        new += (p for p in chunk if p.state is PartitionState.NEW)
        led_before += (p for p in chunk if p.state in (PartitionState.ONLINE, PartitionState.OFFLINE))
    await gather_limited(_initialise(term, chunk) for chunk in chunks(new, WRITE_PARTITIONS))
    send_at = WRITE_PARTITIONS if term.batch.is_empty else None

    async def elect_and_send(chunk: list[Partition]) -> int:
        """Elect leaders; send the requests once there are enough of them."""
        nonlocal send_at
        elected = await _elect(term, chunk, elect, staying)
        if send_at is not None and term.batch.partition_count >= send_at:
            send_at = REQUEST_PARTITIONS
            await term.send_requests()
        return elected

    elected = sum(await gather_limited(elect_and_send(chunk) for chunk in chunks(led_before, WRITE_PARTITIONS)))
    await term.send_requests()
    return elected


async def _elect(
    term: TermContext, partitions: list[Partition], elect: Strategy, staying: Staying = MappingProxyType({})
) -> int:
    """Elect leaders, write the states and queue the requests; returns how many were elected."""

    async def plan(stored: States) -> ElectionPlan:
        """Elect a leader for each partition from its stored state.

        Partitions whose topic config cannot be read are undecidable.
        """
        unclean, unreadable = await _unclean_topics(term, stored, elect)
        undecidable = {p: unreadable[p.topic] for p in stored if p.topic in unreadable}
        decidable = {p: s for p, s in stored.items() if p not in undecidable}
        tracks_recovery = term.settings.writes_recovery_state
        decided = plan_elections(term.context, decidable, elect, unclean, tracks_recovery, staying)
        decided.undecidable = undecidable
        return decided

    def apply(decided: ElectionPlan, written: States) -> None:
        """Put the written leaders into the controller's memory."""
        term.apply_elections(elect.name, decided, written)

    return len((await change_known_states(term, "election", partitions, plan, apply)).reached)


async def _unclean_topics(
    term: TermContext, stored: Mapping[Partition, LeaderAndIsr], elect: Strategy
) -> tuple[frozenset[str], dict[str, str]]:
    """The topics whose config allows unclean elections, and the topics whose config cannot be read, with the reason.

    Only topics with a partition without a live ISR member are looked up.
    """
    if not elect.may_be_unclean:
        return frozenset(), {}
    topics = sorted({p.topic for p in without_live_isr(term.context, stored)})
    if not topics:
        return frozenset(), {}
    configs, unreadable = await term.store.read_topic_configs(topics)
    default = "true" if term.settings.unclean_leader_election else "false"
    allowed = {t for t, config in configs.items() if config.get(UNCLEAN_CONFIG, default).strip().lower() == "true"}
    return frozenset(allowed), unreadable


async def _initialise(term: TermContext, partitions: list[Partition]) -> None:
    """Create the state of new partitions that have a live replica; the others stay New."""
    context = term.context
    facts = {p: facts_of(context, p, (), unclean=False) for p in partitions}
    states = {p: state for p, f in facts.items() if (state := _first_state(f, context.epoch)) is not None}
    leaderless = [p for p in partitions if p not in states]
    why_not = {p: rejected_candidates(facts[p], None) for p in leaderless}
    term.refuse("first leader", dict.fromkeys(leaderless, "no live replica"), why_not)
    outcome = await term.store.create_states(states, _topics_without_partitions(term, states))
    term.apply_created(outcome.written)
    if doubtful := [*outcome.conflicted, *outcome.failed]:
        await _adopt(term, {p: states[p] for p in doubtful}, outcome.failed)


def _first_state(facts: Facts, controller_epoch: int) -> LeaderAndIsr | None:
    """The first state of a new partition, or None if none of its replicas is alive."""
    choice = choose_initial(facts)
    if choice is None:
        return None
    return LeaderAndIsr(choice.leader, INITIAL_LEADER_EPOCH, choice.isr, controller_epoch, INITIAL_PARTITION_EPOCH)


def _topics_without_partitions(term: TermContext, states: Iterable[Partition]) -> list[str]:
    """Topics without any partition state: their `partitions` znode has to be created, too."""
    names = dict.fromkeys(p.topic for p in states)
    return [n for n in names if all(p.leadership is None for p in term.context.topics[n].partitions.values())]


async def _adopt(term: TermContext, wanted: Mapping[Partition, LeaderAndIsr], refused: Mapping[Partition, str]) -> None:
    """Handle partitions whose state znode exists already when their first state is to be written, or may exist.

    A znode that equals `wanted` is our own write, whose answer was lost. From any other state an election follows.
    `refused` has the reasons of writes that ZooKeeper refused, perhaps after it had applied them without an answer.
    """
    read = await term.store.read_states(wanted)
    ours = {p: s for p, s in read.found.items() if s == wanted[p]}
    term.apply_created(ours)
    term.refuse("first leader", {p: refused.get(p, why) for p, why in read.unreadable.items()})
    foreign = [p for p in read.found if p not in ours]
    term.apply_read({p: read.found[p] for p in foreign})
    term.context.move(foreign, PartitionState.OFFLINE)
    if foreign:
        await _elect(term, foreign, elect_offline)
