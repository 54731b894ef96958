"""The one way in which partition states change: decide, write fenced, apply what ZooKeeper took.

What lost a race is read and decided again, the rest is refused. Source: PartitionStateMachine.scala,
ReplicaStateMachine.scala (3.9), which repeat the same loop for elections and for removals from the ISR.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from klamm.controller.context import Partition
from klamm.controller.decisions.state_plan import StatePlan
from klamm.controller.term_context import TermContext
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.zk.controller_store import StatesRead

States: TypeAlias = Mapping[Partition, LeaderAndIsr]
PlanT = TypeVar("PlanT", bound=StatePlan)


@dataclass(slots=True)
class StatesChanged:
    reached: dict[Partition, LeaderAndIsr] = field(default_factory=dict)
    """Partitions whose znode is as decided: written now, or so already."""
    failed: dict[Partition, str] = field(default_factory=dict)
    """Writes that ZooKeeper refused for another reason than a race."""


async def change_known_states(
    term: TermContext,
    kind: str,
    partitions: Collection[Partition],
    plan: Callable[[States], Awaitable[PlanT]],
    apply: Callable[[PlanT, States], None],
) -> StatesChanged:
    """Decide on memory first, where only the controller writes states; on the znodes elsewhere."""
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
    """`plan` decides and changes nothing; `apply` enters into memory what ZooKeeper took, and says whom to tell.

    A write that ZooKeeper took although its answer was lost counts as written; its repetition was refused. What memory
    refuses is read and decided once more. `kind` names the change in the journal. Raises ControllerMoved, ZkError.
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
        for p, state in decided.unchanged.items():
            term.context.put_leadership(p, state)
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


def already_written(attempted: States, stored: States) -> dict[Partition, LeaderAndIsr]:
    """Writes of ours that ZooKeeper took although the answer was lost, and the repetition refused."""
    return {
        p: stored[p]
        for p, wanted in attempted.items()
        if p in stored and stored[p] == wanted.at_partition_epoch(wanted.partition_epoch + 1)
    }
