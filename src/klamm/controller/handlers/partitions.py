"""Bringing partitions online: first leaders for new ones, elections for the others.

Source: PartitionStateMachine.scala (3.9).
"""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from klamm.controller.context import Partition
from klamm.controller.decisions.elections import (
    ElectionPlan,
    Facts,
    Strategy,
    choose_initial,
    elect_offline,
    facts_of,
    plan_elections,
    without_live_isr,
)
from klamm.controller.overlap import overlapped
from klamm.controller.states import PartitionState
from klamm.controller.workbench import Workbench
from klamm.model.ids import BrokerId
from klamm.model.leader_and_isr import (
    INITIAL_LEADER_EPOCH,
    INITIAL_PARTITION_EPOCH,
    LeaderAndIsr,
)
from klamm.zk.fenced import chunks

ELECTION_CHUNK: Final = 500  # partitions decided between two awaits: holds the loop a few ms
SORT_CHUNK: Final = 5_000  # partitions looked at once

Staying: TypeAlias = Mapping[Partition, tuple[BrokerId, ...]]

UNCLEAN_CONFIG: Final = "unclean.leader.election.enable"


async def trigger_online(bench: Workbench, topic: str | None = None) -> int:
    """Try again for every partition that is New or Offline, of one topic or all; how many found a leader."""
    live = bench.context.live
    waiting: list[Partition] = []
    for state in (PartitionState.NEW, PartitionState.OFFLINE):
        async for chunk in bench.turns.over(list(bench.context.in_state[state]), SORT_CHUNK):
            asked = [p for p in chunk if (topic is None or p.topic == topic) and not bench.context.is_to_be_deleted(p)]
            hopeless = [p for p in asked if live.isdisjoint(p.replicas)]
            bench.refuse("election", dict.fromkeys(hopeless, "no replica is live"))
            waiting += [p for p in asked if not live.isdisjoint(p.replicas)] if hopeless else asked
    return await bring_online(bench, waiting, elect_offline)


async def bring_online(
    bench: Workbench,
    partitions: Collection[Partition],
    elect: Strategy,
    staying: Staying = MappingProxyType({}),
) -> int:
    """Leaders for all that can have one, and the requests that tell of them; how many were elected.

    Partitions that never had a leader get their first one; these do not count as elected. `staying`: the candidates
    where a reassignment that is not in memory yet leaves fewer of them.
    """
    new: list[Partition] = []
    led_before: list[Partition] = []
    async for chunk in bench.turns.over(partitions, SORT_CHUNK):
        new += (p for p in chunk if p.state is PartitionState.NEW)
        led_before += (p for p in chunk if p.state in (PartitionState.ONLINE, PartitionState.OFFLINE))
    await overlapped(_initialise(bench, chunk) for chunk in chunks(new, ELECTION_CHUNK))
    elected = sum(await overlapped(_elect(bench, c, elect, staying) for c in chunks(led_before, ELECTION_CHUNK)))
    await bench.send_requests()
    return elected


async def _elect(
    bench: Workbench, partitions: list[Partition], elect: Strategy, staying: Staying = MappingProxyType({})
) -> int:
    """Decide, write, apply; read and decide again for those whose znode moved under us, or that memory refuses."""
    strategy = elect.__name__.removeprefix("elect_").removeprefix("for_").replace("_", " ")
    elected = 0
    plan = ElectionPlan()
    read, from_memory = await bench.known_states(partitions)
    while True:
        await bench.turns.take_for(len(read.found))
        taken = already_written(plan.writes, read.found)
        bench.apply_elections(strategy, plan, taken)
        unclean, refused = await _unclean_topics(bench, read.found, elect)
        no_config = {p: refused[p.topic] for p in read.found if p.topic in refused}
        stored = {p: s for p, s in read.found.items() if p not in taken and p not in no_config}
        plan = plan_elections(bench.context, stored, elect, unclean, bench.settings.writes_recovery_state, staying)
        outcome = await bench.store.write_states(plan.writes)
        await bench.turns.take_for(len(outcome.written))
        bench.apply_elections(strategy, plan, outcome.written)
        doubtful, refused_now = (list(plan.refused), {}) if from_memory else ([], plan.refused)
        why_not = {p: plan.decided[p].rejected for p in refused_now if p in plan.decided}
        bench.refuse("election", read.unreadable | no_config | refused_now | outcome.failed, why_not)
        bench.conflicted("states", outcome.conflicted)
        elected += len(taken) + len(outcome.written)
        again = outcome.conflicted + doubtful
        if not again:
            return elected
        read, from_memory = await bench.store.read_states(again), False


def already_written(
    attempted: Mapping[Partition, LeaderAndIsr], stored: Mapping[Partition, LeaderAndIsr]
) -> dict[Partition, LeaderAndIsr]:
    """Writes of ours that ZooKeeper took although the answer was lost, and the repetition refused."""
    return {
        p: stored[p]
        for p, wanted in attempted.items()
        if p in stored and stored[p] == wanted.at_partition_epoch(wanted.partition_epoch + 1)
    }


async def _unclean_topics(
    bench: Workbench, stored: Mapping[Partition, LeaderAndIsr], elect: Strategy
) -> tuple[frozenset[str], dict[str, str]]:
    """Topics that allow a leader from outside the ISR, asked only where it could matter; and those we cannot ask."""
    if elect is not elect_offline:
        return frozenset(), {}
    topics = sorted({p.topic for p in without_live_isr(bench.context, stored)})
    if not topics:
        return frozenset(), {}
    configs, unreadable = await bench.store.read_topic_configs(topics)
    default = "true" if bench.settings.unclean_leader_election else "false"
    allowed = {t for t, config in configs.items() if config.get(UNCLEAN_CONFIG, default).strip().lower() == "true"}
    return frozenset(allowed), unreadable


async def _initialise(bench: Workbench, partitions: list[Partition]) -> None:
    """A first leader for each that has a live replica; the others stay New."""
    context = bench.context
    facts = {p: facts_of(context, p, (), unclean=False) for p in partitions}
    states = {p: state for p, f in facts.items() if (state := _first_state(f, context.epoch)) is not None}
    leaderless = [p for p in partitions if p not in states]
    why_not = {p: tuple((int(b), "not live") for b in p.replicas) for p in leaderless}
    bench.refuse("first leader", dict.fromkeys(leaderless, "no live replica"), why_not)
    outcome = await bench.store.create_states(states, _topics_without_partitions(bench, states))
    bench.apply_created(outcome.written)
    bench.refuse("first leader", outcome.failed)
    if outcome.conflicted:
        await _adopt(bench, {p: states[p] for p in outcome.conflicted})


def _first_state(facts: Facts, controller_epoch: int) -> LeaderAndIsr | None:
    choice = choose_initial(facts)
    if choice is None:
        return None
    return LeaderAndIsr(choice.leader, INITIAL_LEADER_EPOCH, choice.isr, controller_epoch, INITIAL_PARTITION_EPOCH)


def _topics_without_partitions(bench: Workbench, states: Iterable[Partition]) -> list[str]:
    """Topics none of whose partitions has a state yet: their `partitions` znode is missing, too."""
    names = dict.fromkeys(p.topic for p in states)
    return [n for n in names if all(p.leadership is None for p in bench.context.topics[n].partitions.values())]


async def _adopt(bench: Workbench, wanted: dict[Partition, LeaderAndIsr]) -> None:
    """A state znode is there already: ours, where only the answer was lost; else an election goes on from it."""
    read = await bench.store.read_states(wanted)
    ours = {p: s for p, s in read.found.items() if s == wanted[p]}
    bench.apply_created(ours)
    bench.refuse("first leader", read.unreadable)
    foreign = [p for p in read.found if p not in ours]
    for p in foreign:
        bench.context.put_leadership(p, read.found[p])
    bench.context.move(foreign, PartitionState.OFFLINE)
    if foreign:
        await _elect(bench, foreign, elect_offline)
