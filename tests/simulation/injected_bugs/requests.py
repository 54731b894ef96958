"""Fields of control requests: wrong, swapped, left out or stale."""

from typing import Any

from tests.simulation.injected_bugs.mutant import Patch

from klamm.controller import request_batch
from klamm.controller.decisions.pending_deletions import PendingDeletionPlan, plan_pending_deletions
from klamm.controller.handlers import pending_deletions


def stops_delete(patch: Patch) -> None:
    """Every StopReplica deletes."""
    add = request_batch.RequestBatch.add_stop_replica

    def deleting(self: Any, brokers: Any, partition: Any, delete: bool) -> None:
        add(self, brokers, partition, True)

    patch.setattr(request_batch.RequestBatch, "add_stop_replica", deleting)


def namesakes_deleted_unasked(patch: Patch) -> None:
    """What a broker may hold of a deleted topic is deleted also where a later topic has the name."""

    def without_asking(context: Any, broker: Any) -> PendingDeletionPlan:
        plan = plan_pending_deletions(context, broker)
        return PendingDeletionPlan([*plan.stop, *plan.ask], [], plan.void)

    patch.setattr(pending_deletions, "plan_pending_deletions", without_asking)


def voided_records_deleted(patch: Patch) -> None:
    """A replica that came back to its broker is deleted for an earlier record that it was to go."""

    def with_void(context: Any, broker: Any) -> PendingDeletionPlan:
        plan = plan_pending_deletions(context, broker)
        return PendingDeletionPlan([*plan.stop, *(p for _, p in plan.void)], plan.ask, [])

    patch.setattr(pending_deletions, "plan_pending_deletions", with_void)
