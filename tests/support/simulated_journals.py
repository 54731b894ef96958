"""Journals of simulated clusters, and what their ZooKeeper saw: the truth that tables of journals are held against."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from klamm.controller.settings import parse_ibp
from klamm.model.ids import TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.campaign import silence_logging
from klamm.sim.cluster import SimulatedCluster
from klamm.sim.loop import SimulatedLoop
from klamm.sim.scripts.options import Options
from klamm.sim.scripts.script import write_script

MAX_STEPS = 5_000_000

FIRST_WITH_ALTER_PARTITION = parse_ibp("2.7-IV2")

State = tuple[int, int, tuple[int, ...]]
"""Leader, leader epoch, ISR."""


@dataclass(frozen=True)
class SimulatedJournal:
    lines: Sequence[str]
    """Of all controllers, in the order in which they were flushed."""
    states: Mapping[TopicPartition, Sequence[Sequence[LeaderAndIsr]]]
    """Every version of each partition's state znode, for each topic of that name, in order."""
    leaders_write_isrs: bool
    """The protocol is so old that leaders change ISRs themselves."""
    cut_epochs: frozenset[int]
    """The controllers of which an event failed, that were killed in one, or lost their session: they do not know which
    of their last writes ZooKeeper took."""


def simulate(seed: int) -> SimulatedJournal:
    """Run the schedule of a seed. Its topics and causes get the seed as prefix, so that journals can be mixed."""
    script = write_script(Options.of(seed))
    loop = SimulatedLoop(script.options.seed, script.options.policy)
    cluster = SimulatedCluster(script, loop, records_story=True)
    configured = structlog.get_config()
    silence_logging()
    try:
        loop.run(cluster.run(), limit_s=1_000, max_steps=MAX_STEPS)
    finally:
        structlog.configure(**configured)
    states = cluster.history.states
    prefix = f"s{seed}."
    lines = [json.loads(line) for line in cluster.journal.decode().splitlines()]
    return SimulatedJournal(
        [json.dumps(_prefixed(line, prefix)) for line in lines],
        {
            TopicPartition(prefix + p.topic, p.partition): list(reversed(list(states.incarnations_of(p))))
            for p in dict.fromkeys([*states.of_deleted, *states.versions])
        },
        parse_ibp(script.options.protocol) < FIRST_WITH_ALTER_PARTITION,
        frozenset(_cut_epochs(lines, script.options.session_timeout_ms)),
    )


def _prefixed(line: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The line with other names of topics and causes."""
    named = dict(line)
    if isinstance(topic := named.get("topic"), str):
        named["topic"] = prefix + topic
    if isinstance(topics := named.get("deleted"), list):
        named["deleted"] = [prefix + str(topic) for topic in topics]
    if isinstance(partitions := named.get("partitions"), dict):
        named["partitions"] = {prefix + topic: numbers for topic, numbers in partitions.items()}
    if cause := str(named["cause"]):
        named["cause"] = f"{prefix.removesuffix('.')}-{cause}"
    return named


def _cut_epochs(lines: Iterable[Mapping[str, Any]], session_timeout_ms: int) -> Iterable[int]:
    """The epochs in which an event failed, outlasted the session, or has no end since its controller was killed."""
    open_events: dict[str, int] = {}
    for line in lines:
        if line["kind"] == "event":
            open_events[line["cause"]] = 0
        if line["cause"] in open_events:
            open_events[line["cause"]] = line["controller_epoch"]
        if line["kind"] in ("failed", "moved") or (line["kind"] == "done" and line["ms"] > session_timeout_ms):
            yield line["controller_epoch"]
        if line["kind"] == "done":
            open_events.pop(line["cause"], None)
    yield from open_events.values()


def unexplained(journal: SimulatedJournal, told: Mapping[TopicPartition, Sequence[State]]) -> list[str]:
    """What a timeline says of partitions and ZooKeeper does not know, and what ZooKeeper knows and it does not say.

    A state may be missing that a leader wrote itself, or that a controller wrote which was killed in that event.
    """
    problems = []
    for p in dict.fromkeys([*told, *journal.states]):
        stored = [state for life in journal.states.get(p, ()) for state in life]
        said = list(told.get(p, ()))
        for before, state in zip([None, *stored], stored, strict=False):
            if said and said[0] == _triple(state):
                said.pop(0)
            elif not _may_be_missing(journal, before, state):
                problems.append(f"{p}: the timeline lacks {state}")
        problems += [f"{p}: ZooKeeper never had {state} there" for state in said]
    return problems


def _triple(state: LeaderAndIsr) -> State:
    """Return what a timeline says of a state."""
    return int(state.leader), state.leader_epoch, tuple(int(b) for b in state.isr)


def _may_be_missing(journal: SimulatedJournal, before: LeaderAndIsr | None, state: LeaderAndIsr) -> bool:
    """Whether no controller could journal the state."""
    is_isr_only = before is not None and (before.leader, before.leader_epoch) == (state.leader, state.leader_epoch)
    if is_isr_only and (journal.leaders_write_isrs or (before is not None and before.isr == state.isr)):
        return True
    return state.controller_epoch in journal.cut_epochs
