"""Plan which replicas move where: a cluster in arrays and what to bring about in, a plan with its steps out.

Plans put no two replicas of a partition on one broker, move to brokers that may receive only, and never leave racks
less spread out, except where the racks of drained brokers do not count. They change partitions that keep a replica on a
dead broker only where this is required: such a reassignment ends when the broker is back. They are repeatable.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import Enum, auto
from typing import Final

import numpy as np

from klamm.plan.arrays import NO_REPLICA, Bools, Floats, Ints, PlanInput
from klamm.plan.draft import Draft, Plan, Step, Why
from klamm.plan.evening import even_out_leaders, even_out_replicas
from klamm.plan.placing import check_brokers_suffice, drain, drop_surplus, raise_factor, spread_over_racks

TOLERANCE: Final = 0.05
"""Loads may differ from a broker's share by this part of it."""


class Extent(Enum):
    """How much a plan changes."""

    REQUIRED = auto()
    """Only what draining brokers and the wanted replication factors require, and the leaders of what changes."""
    BALANCE = auto()
    """Also what spreads replicas over more racks, and evens out loads and leaders."""
    LEADERS = auto()
    """Only the order of replicas: nothing is copied."""


def make_plan(given: PlanInput, extent: Extent = Extent.BALANCE, tolerance: float = TOLERANCE) -> Plan:
    """The plan. Raises UsageError where a replica has no place."""
    draft = Draft(given)
    draft.plan.excess = draft.excess()
    if extent is not Extent.LEADERS:
        check_brokers_suffice(given)
        drop_surplus(draft)
        drain(draft)
        raise_factor(draft)
    leaders_may_change = given.movable & (draft.replicas[:, 0] != given.replicas[:, 0])
    if extent is not Extent.REQUIRED:
        draft.given = replace(given, movable=given.movable & ~with_dead_replicas(given, draft.replicas))
        leaders_may_change = draft.given.movable
    if extent is Extent.BALANCE:
        spread_over_racks(draft)
        even_out_replicas(draft, tolerance)
    even_out_leaders(draft, tolerance, leaders_may_change)
    return draft.plan


def with_dead_replicas(given: PlanInput, replicas: Ints) -> Bools:
    """[P] whether a partition with these replicas has one on a dead broker: its reassignment could not end now."""
    return np.asarray(np.append(~given.alive, False)[replicas].any(axis=1))


def reasons(plan: Plan, given: PlanInput) -> Iterator[tuple[int, str]]:
    """Each change of a partition with its reason in words, in the order in which they were decided."""
    for step in plan.steps:
        rows = zip(step.partitions.tolist(), step.old.tolist(), step.new.tolist(), strict=True)
        for number, (partition, old, new) in enumerate(rows):
            yield partition, _reason(plan, given, step, number, old, new, int(given.wanted[partition]))


def _reason(plan: Plan, given: PlanInput, step: Step, number: int, old: int, new: int, factor: int) -> str:
    """The reason of one change."""
    before, after = (given.ids[b] if b != NO_REPLICA else NO_REPLICA for b in (old, new))
    if old == NO_REPLICA:
        return f"+ {after}: the replication factor is {factor}"
    if new == NO_REPLICA:
        drained = "the broker is drained, and " if step.why is Why.DRAINED else ""
        return f"- {before}: {drained}the replication factor is {factor}"
    match step.why:
        case Why.DRAINED:
            return f"{before} -> {after}: broker {before} is drained"
        case Why.RACK:
            assert step.same_rack is not None
            there, here = (int(of[number]) for of in step.same_rack)
            racks = [given.rack_names[given.racks[b]] for b in (old, new)]
            return (
                f"{before} -> {after}: rack {racks[0]} has {there} other{'s' * (there > 1)}, rack {racks[1]} has {here}"
            )
        case Why.LEADERS:
            return f"leader {after}: of its share of leaders {_compared(given.leader_text, plan.excess_led, old, new)}"
        case _:
            return (
                f"{before} -> {after}: of its share of the load {_compared(given.broker_text, plan.excess, old, new)}"
            )


def _compared(text: Callable[[int], str], excess: Floats, old: int, new: int) -> str:
    """How much two brokers have in comparison with their shares: `broker 1 has 112 %, broker 2 has 3 %`."""
    return ", ".join(f"{text(b)} has {100 * (1 + excess[b]):.0f} %" for b in (old, new))
