"""Partition states that another client wrote into ZooKeeper: an operator, or a tool that edits state znodes.

A leader whose AlterPartition lost to such a write waits for a LeaderAndIsr with the newer state. Apache Kafka sends
none: the ISR stays as it is until the partition gets another leader, also where a member does not fetch any more.
"""

from collections.abc import Iterable

from klamm.controller.decisions.elections import elect_offline
from klamm.controller.decisions.plans import StatePlan
from klamm.controller.decisions.reassignment import plan_epochs
from klamm.controller.handlers.partitions import bring_online
from klamm.controller.handlers.state_changes import States, change_states
from klamm.controller.states import PartitionState
from klamm.controller.term_context import TermContext
from klamm.controller.topic import Partition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.zk.partition_states import StatesRead
from klamm.zk.znodes import state_path


async def adopt_foreign_states(term: TermContext, partitions: Iterable[Partition]) -> None:
    """Take the stored states of these partitions into memory, and send them to the replicas in a new leader epoch.

    Where the stored leader cannot lead, another one is elected. Partitions whose state could not be read or written
    stay in `foreign_states`, for the next call.
    """
    context = term.context
    context.foreign_states.update(dict.fromkeys(partitions))
    if not context.foreign_states:
        return
    read = await term.store.read_states(context.foreign_states)
    term.refuse("state", read.unreadable)
    for p in read.not_shown:
        term.store.writer.add_refused(state_path(p))
    found = {p: _not_before(p.leader_epoch, state) for p, state in read.found.items()}
    term.apply_read(found)
    led = {p: state for p, state in found.items() if _can_lead(term, p, state)}
    leaderless = [p for p in found if p not in led]
    context.move([p for p in leaderless if not context.is_to_be_deleted(p)], PartitionState.OFFLINE)
    raised = await _raise_epochs(term, led)
    for p in raised:
        term.batch.add_leader_and_isr(p.replicas, p, is_new=False)
    for p in list(context.foreign_states):
        if p not in read.not_shown and (p not in led or p in raised):
            del context.foreign_states[p]
    await bring_online(term, [p for p in leaderless if not context.is_to_be_deleted(p)], elect_offline)


def _not_before(leader_epoch: int, state: LeaderAndIsr) -> LeaderAndIsr:
    """Return the state with at least this leader epoch: brokers ignore requests with an earlier one than they had."""
    return state if state.leader_epoch >= leader_epoch else state._replace(leader_epoch=leader_epoch)


def _can_lead(term: TermContext, p: Partition, state: LeaderAndIsr) -> bool:
    """Whether the stored leader has a replica of the partition on a registered broker, in a working directory."""
    context, leader = term.context, state.leader
    is_there = leader in context.registered and p not in context.offline_dirs.get(leader, ())
    return is_there and leader in p.replicas and leader in state.isr


async def _raise_epochs(term: TermContext, stored: States) -> States:
    """Raise the leader epochs in ZooKeeper; returns the partitions that were written."""

    async def plan(states: States) -> StatePlan:
        """Return the stored states with a higher leader epoch, to write."""
        return plan_epochs(states, term.context.epoch)

    def apply(_: StatePlan, written: States) -> None:
        """Put the written leader epochs into the controller's memory."""
        term.apply_epochs(written, "foreign-state")

    return (await change_states(term, "leader epoch", StatesRead(dict(stored)), plan, apply)).reached
