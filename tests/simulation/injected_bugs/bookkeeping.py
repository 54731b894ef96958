"""Injected bugs in what a controller keeps beside ZooKeeper: journal, indexes, metrics, mirrors, tasks."""

import contextlib
from collections.abc import Sequence
from typing import Any

from tests.simulation.injected_bugs.mutant import Patch, nothing

from klamm.controller import controller, events, mirror
from klamm.controller.channels import Channel
from klamm.controller.context import ControllerContext
from klamm.controller.decisions import elections
from klamm.controller.decisions.elections import Facts
from klamm.controller.decisions.features import FeatureAnswer
from klamm.controller.handlers import failover, reassignment, reassignment_requests
from klamm.controller.metrics import ControllerMetrics
from klamm.controller.standby import Standby
from klamm.controller.states import ReplicaState
from klamm.controller.term_context import TermContext
from klamm.controller.topic import Partition
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.telemetry.journal import Journal


def steps_not_journalled(patch: Patch) -> None:
    """The journal has no steps of reassignments."""
    patch.setattr(reassignment, "_journal", lambda *_: None)


def requests_not_journalled(patch: Patch) -> None:
    """The journal has every request but LeaderAndIsr."""
    journal = Channel._journal_request

    def journal_some(self: Channel, item: Any, api: Any, version: int) -> None:
        """The patched function, with the injected bug."""
        if api.name != "LEADER_AND_ISR":
            journal(self, item, api, version)

    patch.setattr(Channel, "_journal_request", journal_some)


def requested_deletions_not_journalled(patch: Patch) -> None:
    """The journal has no line about the deletions that were found to be requested."""
    found = Journal.found

    def find_others(self: Journal, cause: str, **facts: Any) -> None:
        """The patched function, with the injected bug."""
        if "to_be_deleted" not in facts:
            found(self, cause, **facts)

    patch.setattr(Journal, "found", find_others)


def rejected_replicas_not_named(patch: Patch) -> None:
    """The journal does not say which replicas an election passed over."""

    def nobody(facts: Facts, chosen: BrokerId | None, *, is_of_target: bool = False) -> tuple[tuple[int, str], ...]:
        """The patched function, with the injected bug."""
        return ()

    patch.setattr(elections, "rejected_candidates", nobody)


def refused_requests_not_journalled(patch: Patch) -> None:
    """The journal has no line about what was requested and refused."""
    patch.setattr(TermContext, "refuse_requested", nothing)


def waiting_moves_not_journalled(patch: Patch) -> None:
    """The journal does not say what a reassignment waits for."""
    journal = reassignment._journal

    def journal_some(
        term: TermContext, p: Partition, step: str, before: ReplicaAssignment, after: ReplicaAssignment
    ) -> None:
        """The patched function, with the injected bug."""
        if step != "waiting":
            journal(term, p, step, before, after)

    patch.setattr(reassignment, "_journal", journal_some)


def features_refused(patch: Patch) -> None:
    """Every change of features is refused."""

    async def refuse(term: TermContext, event: events.UpdateFeatures) -> None:
        """The patched function, with the injected bug."""
        event.answer(FeatureAnswer(ErrorCode.INVALID_REQUEST))

    patch.setitem(controller.HANDLERS, events.UpdateFeatures, refuse)


def sessions_of_mirrors_stay_open(patch: Patch) -> None:
    """A standby opens a session for each mirror, and closes none."""
    keep = Standby._keep_mirror

    async def keep_open(self: Standby) -> float:
        """The patched function, with the injected bug."""
        with contextlib.suppress(KlammError):
            kept.append(await self._ports.open_session())
        return await keep(self)

    kept: list[Any] = []
    patch.setattr(Standby, "_keep_mirror", keep_open)


def nothing_found_is_journalled(patch: Patch) -> None:
    """A new controller journals the reassignments that it resumes also where there are none."""
    resume = reassignment_requests.resume_reassignments

    async def resume_and_tell(term: TermContext) -> None:
        """The patched function, with the injected bug."""
        await resume(term)
        if not term.context.reassigning:
            term.journal.found(term.cause, reassigning={})

    patch.setattr(failover, "resume_reassignments", resume_and_tell)


def states_journalled_before_they_change(patch: Patch) -> None:
    """The journal has the state before a decision in place of the new one."""
    decide = Journal.leader_decision

    def decide_before(
        self: Journal,
        cause: str,
        kind: str,
        partition: Partition,
        before: LeaderAndIsr | None,
        after: LeaderAndIsr,
        *facts: Any,
        **more: Any,
    ) -> None:
        """The patched function, with the injected bug."""
        told = after if before is None else before._replace(partition_epoch=after.partition_epoch)
        decide(self, cause, kind, partition, before, told, *facts, **more)

    patch.setattr(Journal, "leader_decision", decide_before)


def moved_leaders_listed_twice(patch: Patch) -> None:
    """A partition whose leader changes stays among those that the former one leads."""
    put = ControllerContext.put_leadership

    def put_and_keep(self: ControllerContext, partition: Partition, leadership: LeaderAndIsr) -> None:
        """The patched function, with the injected bug."""
        before = partition.leadership
        put(self, partition, leadership)
        if before is not None and before.leader != leadership.leader:
            self.led_by[before.leader][partition] = None

    patch.setattr(ControllerContext, "put_leadership", put_and_keep)


def events_not_timed(patch: Patch) -> None:
    """The metrics do not count events."""
    patch.setattr(ControllerMetrics, "event_done", lambda *_: None)


def lowest_ids_keep_no_mirror(patch: Patch) -> None:
    """In larger clusters other nodes keep a mirror than those that are chosen."""

    def keeps(mode: object, broker: int, live: Sequence[int], only_controllers: Sequence[int] = ()) -> bool:
        """The patched function, with the injected bug."""
        return broker in sorted(live)[-2:]

    patch.setattr("klamm.sim.nodes.broker.keeps_mirror", keeps)


def standby_outlives_the_node(patch: Patch) -> None:
    """A controller that stops does not stop its standby."""
    patch.setattr(Standby, "stop", nothing)


def replicas_leave_without_a_leader(patch: Patch) -> None:
    """A reassignment removes replicas although no target replica leads."""

    def leads(term: TermContext, p: Partition) -> bool:
        """The patched function, with the injected bug."""
        return True

    patch.setattr(reassignment, "_has_staying_leader", leads)


def reassignments_not_listed(patch: Patch) -> None:
    """The list of reassignments is empty."""

    async def list_nothing(term: TermContext, event: events.ListPartitionReassignments) -> None:
        """The patched function, with the injected bug."""
        event.answer(events.ReassignmentList(ErrorCode.NONE))

    patch.setitem(controller.HANDLERS, events.ListPartitionReassignments, list_nothing)


def live_replicas_begin_ineligible(patch: Patch) -> None:
    """A new controller begins with all replicas as ineligible for deletion, those on live brokers, too."""
    for loads in (failover, mirror):
        patch.setattr(loads, "INITIAL_REPLICA_STATE", ReplicaState.DELETION_INELIGIBLE)


def completed_reassignments_not_sent(patch: Patch) -> None:
    """The brokers are not told of the target when a reassignment completes."""
    patch.setattr(ControllerContext, "is_last_sent_assignment", lambda *_: True)
