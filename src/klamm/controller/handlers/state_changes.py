"""The one way to change partition states: decide, write with a fence, apply what ZooKeeper accepted.

A write that lost a race is read and decided again; other refused writes are not repeated, but read: ZooKeeper may have
applied an earlier attempt. Source: PartitionStateMachine.scala, ReplicaStateMachine.scala (3.9), which repeat this loop
for elections and for removals from the ISR.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from klamm.controller.decisions.plans import StatePlan
from klamm.controller.term_context import TermContext
from klamm.controller.topic import Partition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.zk.controller_store import StatesWritten
from klamm.zk.partition_states import StatesRead
from klamm.zk.znodes import state_path

States: TypeAlias = Mapping[Partition, LeaderAndIsr]
PlanT = TypeVar("PlanT", bound=StatePlan)


@dataclass(slots=True)
class StatesChanged:
    """The outcome of a change of partition states."""

    reached: dict[Partition, LeaderAndIsr] = field(default_factory=dict)
    """Partitions whose state znode is as decided, whether written now or before."""
    failed: dict[Partition, str] = field(default_factory=dict)
    """Partitions whose write ZooKeeper refused, other than for a race, with the reason."""


async def change_known_states(
    term: TermContext,
    kind: str,
    partitions: Collection[Partition],
    plan: Callable[[States], Awaitable[PlanT]],
    apply: Callable[[PlanT, States], None],
) -> StatesChanged:
    """Change partition states with `plan` and `apply`, starting from memory if only the controller writes states.

    Where brokers write them too, the states are read from ZooKeeper first. `kind` names the change in the journal.
    """
    read, is_from_memory = await term.known_states(partitions)
    return await change_states(term, kind, read, plan, apply, is_from_memory)


async def change_states(
    term: TermContext,
    kind: str,
    read: StatesRead[Partition],
    plan: Callable[[States], Awaitable[PlanT]],
    apply: Callable[[PlanT, States], None],
    is_from_memory: bool = False,
) -> StatesChanged:
    """Decide with `plan`, write the states, apply what ZooKeeper accepted; repeat for states that changed meanwhile.

    `plan` changes nothing; `apply` updates memory and queues requests. A write that ZooKeeper applied although its
    answer was lost counts as written. Partitions refused on the state in memory are read from ZooKeeper and decided
    once more. `kind` names the change in the journal. Raises ControllerMoved, ZkError.
    """
    changed = StatesChanged()
    decided: PlanT | None = None
    while True:
        await term.slices.checkpoint(len(read.found))
        taken = already_written(decided.writes, read.found) if decided is not None else {}
        if decided is not None:
            apply(decided, taken)
        decided = await plan({p: s for p, s in read.found.items() if p not in taken})
        outcome = await term.store.write_states(decided.writes)
        await term.slices.checkpoint(len(outcome.written))
        apply(decided, outcome.written)
        if outcome.failed:
            apply(decided, earlier := await _written_before_refusal(term, decided.writes, outcome))
            taken |= earlier
        _note_foreign_states(term, decided.unchanged)
        term.apply_read(decided.unchanged)
        doubtful, refused = (decided.refused, {}) if is_from_memory else ({}, decided.refused)
        why_not = read.unreadable | decided.undecidable | refused | outcome.failed
        term.refuse(kind, why_not, decided.reasons(refused))
        term.conflicted("states", outcome.conflicted)
        changed.reached |= taken | decided.unchanged | outcome.written
        changed.failed |= outcome.failed
        again = [*outcome.conflicted, *doubtful]
        if not again:
            return changed
        read, is_from_memory = await term.store.read_states(again), False


def _note_foreign_states(term: TermContext, read: States) -> None:
    """Note states that another client wrote in the present leader epoch: their leaders are told of them later.

    A leader with an older partition epoch cannot change the ISR. Where leaders write states, they know them.
    """
    if not term.owns_partition_state:
        return
    for p, state in read.items():
        known = p.leadership
        if known is None or known.leader_epoch != state.leader_epoch or known.partition_epoch == state.partition_epoch:
            continue
        term.context.foreign_states[p] = None
        term.store.writer.add_refused(state_path(p))


async def _written_before_refusal(term: TermContext, attempted: States, outcome: StatesWritten[Partition]) -> States:
    """Read the states whose write was refused; those that ZooKeeper had applied before are no longer failures.

    The connection may break after a write, and the client repeats it: of the two answers only the refusal arrives.
    """
    stored = (await term.store.read_states(outcome.failed)).found
    earlier = already_written({p: attempted[p] for p in outcome.failed}, stored)
    for p in earlier:
        del outcome.failed[p]
    return earlier


def already_written(attempted: States, stored: States) -> dict[Partition, LeaderAndIsr]:
    """Our own writes that ZooKeeper applied although the answer was lost; their repetition was refused."""
    return {
        p: stored[p]
        for p, wanted in attempted.items()
        if p in stored and stored[p] == wanted.at_partition_epoch(wanted.partition_epoch + 1)
    }
