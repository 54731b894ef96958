"""Injected bugs of failover."""

from collections.abc import Iterable
from typing import Any

from tests.simulation.injected_bugs.mutant import Patch, nothing

from klamm.controller import request_batch
from klamm.controller.handlers import (
    failover,
)
from klamm.controller.term_context import TermContext
from klamm.sim.nodes.replicas import Replicas
from klamm.zk.znodes import REASSIGN_PARTITIONS


def states_not_loaded(patch: Patch) -> None:
    """Failover does not read the partitions' states."""
    patch.setattr(failover, "_read_states", nothing)


def offline_replicas_stay_in_isrs_at_failover(patch: Patch) -> None:
    """Failover does not move replicas on dead brokers to offline, so they stay in ISRs."""
    patch.setattr(failover, "replicas_offline", nothing)


def offline_replicas_stay_in_isrs(patch: Patch) -> None:
    """As `offline_replicas_stay_in_isrs_at_failover`, and leaders do not remove dead followers from ISRs either."""
    offline_replicas_stay_in_isrs_at_failover(patch)
    wanted = Replicas._next_isr

    def grow_only(self: Replicas, p: Any, replica: Any, *facts: Any) -> Any:
        """The patched function, with the injected bug."""
        isr_ = wanted(self, p, replica, *facts)
        return None if isr_ is not None and len(isr_) < len(replica.isr) else isr_

    patch.setattr(Replicas, "_next_isr", grow_only)


def leader_and_isr_before_metadata(patch: Patch) -> None:
    """A broker gets no list of brokers before its first LeaderAndIsr."""
    add = request_batch.RequestBatch.add_metadata

    def only_with_partitions(self: Any, brokers: Any, partitions: Iterable[Any]) -> None:
        """The patched function, with the injected bug."""
        if told := list(partitions):
            add(self, brokers, told)

    patch.setattr(request_batch.RequestBatch, "add_metadata", only_with_partitions)


def deletions_forgotten_in_failover(patch: Patch) -> None:
    """Failover does not resume deletions."""

    async def none(term: TermContext) -> list[str]:
        """The patched function, with the injected bug."""
        await term.store.topic_deletion.list_requests()
        return []

    patch.setattr(failover, "queue_deletions", none)


def reassignments_forgotten_in_failover(patch: Patch) -> None:
    """Failover resumes no reassignments; the watch on the znode of the old tools stays."""

    async def none(term: TermContext) -> None:
        """The patched function, with the injected bug."""
        await term.store.tool_requests.read(REASSIGN_PARTITIONS)

    patch.setattr(failover, "resume_reassignments", none)
