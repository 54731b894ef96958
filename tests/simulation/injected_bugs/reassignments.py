"""Injected bugs of reassignments."""

from typing import Any

from tests.simulation.injected_bugs.mutant import Patch, nothing

from klamm.controller import controller, events
from klamm.controller.handlers import (
    brokers,
    failover,
    isr,
    reassignment,
    reassignment_requests,
)
from klamm.controller.handlers.reassignment_requests import resume_reassignments
from klamm.controller.term_context import TermContext
from klamm.zk.operations import Delete
from klamm.zk.znodes import REASSIGN_PARTITIONS


def memory_before_znode(patch: Patch) -> None:
    """A reassignment changes the controller's memory before it is written to ZooKeeper."""
    update = reassignment._update_assignments

    async def memory_first(term: TermContext, wanted: Any) -> Any:
        """The patched function, with the injected bug."""
        for p, assignment in wanted.items():
            term.context.put_assignment(p, assignment)
        return await update(term, wanted)

    patch.setattr(reassignment, "_update_assignments", memory_first)


def request_removed_at_once(patch: Patch) -> None:
    """The reassignment request of the old tools is removed when it is accepted, not when it is complete."""
    handle = reassignment_requests.on_zk_reassignment

    async def remove_first(term: TermContext, event: Any) -> None:
        """The patched function, with the injected bug."""
        await handle(term, event)
        await term.store.write([Delete(REASSIGN_PARTITIONS)])

    patch.setattr(reassignment_requests, "on_zk_reassignment", remove_first)
    patch.setitem(controller.HANDLERS, events.ZkPartitionReassignment, remove_first)


def unknown_entries_stay(patch: Patch) -> None:
    """Impossible entries stay in the reassignment request of the old tools."""
    patch.setattr(reassignment_requests, "remove_entries", nothing)


def bumped_epoch_not_remembered(patch: Patch) -> None:
    """The controller does not remember a leader epoch that it incremented in ZooKeeper."""
    patch.setattr(TermContext, "apply_epochs", lambda self, written, kind: None)


def leader_dropped_by_override(patch: Patch) -> None:
    """An override may remove the leader from the replicas without a new election."""

    async def no_move(term: TermContext, wanted: Any) -> dict[Any, str]:
        """The patched function, with the injected bug."""
        return {}

    patch.setattr(reassignment, "_move_leaders_first", no_move)


def replicas_removed_before_target_is_in_sync(patch: Patch) -> None:
    """A reassignment drops old replicas before all new replicas are in sync."""
    patch.setattr(reassignment, "awaited", lambda assignment, isr: ())


def no_pending_deletion_for_removed_replicas(patch: Patch) -> None:
    """Replicas to be deleted after a reassignment are not recorded as pending deletions."""

    async def all_well(term: TermContext, replicas: Any) -> dict[Any, str]:
        """The patched function, with the injected bug."""
        return {}

    patch.setattr(reassignment, "schedule_deletion_of_moved", all_well)


def reassignments_not_resumed_by_brokers(patch: Patch) -> None:
    """Reassignments do not continue when a broker registers."""
    patch.setattr(brokers, "advance_reassignments", nothing)


def reassignments_not_advanced_by_isr_changes(patch: Patch) -> None:
    """Reassignments do not continue when an ISR changes."""
    patch.setattr(isr, "complete_if_in_sync", nothing)


def reassignments_to_dead_brokers_dropped(patch: Patch) -> None:
    """Failover resumes only reassignments whose new replicas are all alive."""
    resume = resume_reassignments

    async def of_the_living(term: TermContext) -> None:
        """The patched function, with the injected bug."""
        for p in list(term.context.reassigning):
            if not term.context.live.issuperset(p.assignment.adding):
                term.context.reassigning.pop(p)
        await resume(term)

    patch.setattr(failover, "resume_reassignments", of_the_living)
