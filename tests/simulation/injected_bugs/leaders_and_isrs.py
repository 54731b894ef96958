"""Injected bugs of leaders and ISRs."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.simulation.injected_bugs.mutant import Patch

from klamm.controller import controller, request_batch
from klamm.controller.decisions import alter_partition, plans
from klamm.controller.decisions.elections import elect_offline
from klamm.controller.events import ControlledShutdown
from klamm.controller.handlers import (
    isr,
    partitions,
    reassignment,
    replicas,
    state_changes,
    topics,
)
from klamm.controller.term_context import TermContext
from klamm.model.errors import ErrorCode
from klamm.model.ids import NO_BROKER


def isr_emptied(patch: Patch) -> None:
    """The last member may leave the ISR."""
    plan = plans.plan_isr_removal

    def to_the_last(broker: Any, stored: Any, epoch: int) -> Any:
        """The patched function, with the injected bug."""
        made = plan(broker, stored, epoch)
        made.writes.update({p: s._replace(isr=tuple(b for b in s.isr if b != broker)) for p, s in made.writes.items()})
        return made

    patch.setattr(replicas, "plan_isr_removal", to_the_last)


def dead_leaders_stay(patch: Patch) -> None:
    """A dead broker remains leader."""
    plan = plans.plan_isr_removal

    def leader_kept(broker: Any, stored: Any, epoch: int) -> Any:
        """The patched function, with the injected bug."""
        made = plan(broker, stored, epoch)
        made.writes.update(
            {p: s._replace(leader=stored[p].leader) for p, s in made.writes.items() if s.leader == NO_BROKER}
        )
        return made

    patch.setattr(replicas, "plan_isr_removal", leader_kept)


def own_lost_write_not_recognised(patch: Patch) -> None:
    """A state write whose answer was lost is not recognised as the controller's own."""
    patch.setattr(state_changes, "already_written", lambda attempted, stored: {})


def own_lost_isr_change_not_recognised(patch: Patch) -> None:
    """An ISR change whose answer was lost is not recognised as the controller's own."""
    write = isr._write

    async def unrecognised(term: TermContext, asked: Any) -> Any:
        """The patched function, with the injected bug."""
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(state_changes, "already_written", lambda attempted, stored: {})
            return await write(term, asked)

    patch.setattr(isr, "_write", unrecognised)


def own_lost_creation_not_recognised(patch: Patch) -> None:
    """A partition creation whose answer was lost is not recognised as the controller's own."""

    async def stay_new(term: TermContext, wanted: Any, refused: Any) -> None:
        """The patched function, with the injected bug."""
        return

    patch.setattr(partitions, "_adopt", stay_new)


def outdated_leaders_may_add_removed_replicas(patch: Patch) -> None:
    """AlterPartition is accepted from stale leader epochs, and may add replicas that were removed."""
    refused = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INELIGIBLE_REPLICA)
    _accept_isr_changes(patch, lambda error, context, partition, asked: error in refused)


def removed_replicas_may_return(patch: Patch) -> None:
    """AlterPartition may add live brokers that are not eligible, such as removed replicas."""

    def accepts(error: ErrorCode, context: Any, partition: Any, asked: Any) -> bool:
        """Whether the change is accepted in spite of the error."""
        return error is ErrorCode.INELIGIBLE_REPLICA and all(b in context.live for b in asked.isr)

    _accept_isr_changes(patch, accepts)


def ineligible_brokers_may_enter_isr(patch: Patch) -> None:
    """AlterPartition may add assigned replicas that are dead or in controlled shutdown."""

    def accepts(error: ErrorCode, context: Any, partition: Any, asked: Any) -> bool:
        """Whether the change is accepted in spite of the error."""
        return error is ErrorCode.INELIGIBLE_REPLICA and all(b in partition.replicas for b in asked.isr)

    _accept_isr_changes(patch, accepts)


def _accept_isr_changes(patch: Patch, accepts: Callable[[ErrorCode, Any, Any, Any], bool]) -> None:
    """AlterPartition writes the requested ISR where `accepts` is true of the error, context, partition and request."""
    judge = alter_partition.judge

    def any_member(context: Any, partition: Any, asked: Any, version: int) -> Any:
        """The patched function, with the injected bug."""
        verdict = judge(context, partition, asked, version)
        if not accepts(verdict.error, context, partition, asked):
            return verdict
        return alter_partition.Verdict(
            write=partition.leadership._replace(isr=asked.isr, controller_epoch=context.epoch)
        )

    patch.setattr(isr, "judge", any_member)


def retries_are_fenced(patch: Patch) -> None:
    """A repeated AlterPartition is rejected for its old partition epoch instead of being confirmed."""
    judge = alter_partition.judge

    def fence_first(context: Any, partition: Any, asked: Any, version: int) -> Any:
        """The patched function, with the injected bug."""
        now = partition.leadership if partition else None
        if now is not None and asked.leader_epoch == now.leader_epoch and asked.partition_epoch < now.partition_epoch:
            return alter_partition.Verdict(ErrorCode.INVALID_UPDATE_VERSION, "an older partition epoch")
        return judge(context, partition, asked, version)

    patch.setattr(isr, "judge", fence_first)


def outdated_controller_refuses_isr_changes(patch: Patch) -> None:
    """A controller that knows older epochs than the request answers INVALID_UPDATE_VERSION, not NOT_CONTROLLER."""
    judge = alter_partition.judge

    def sure(context: Any, partition: Any, asked: Any, version: int) -> Any:
        """The patched function, with the injected bug."""
        verdict = judge(context, partition, asked, version)
        if verdict.error is ErrorCode.NOT_CONTROLLER:
            return alter_partition.Verdict(ErrorCode.INVALID_UPDATE_VERSION, "another partition epoch")
        return verdict

    patch.setattr(isr, "judge", sure)


def elected_in_isr_order(patch: Patch) -> None:
    """A leader is elected in the order of the ISR instead of the assignment."""
    elect = elect_offline

    def first_of_the_isr(facts: Any) -> Any:
        """The patched function, with the injected bug."""
        choice = elect(facts)
        first = next((b for b in facts.isr if b in facts.live), None)
        return choice if choice is None or choice.unclean or first is None else choice._replace(leader=first)

    for module in (partitions, topics, reassignment):
        patch.setattr(module, "elect_offline", replace(elect, elect=first_of_the_isr))


def preferred_without_being_in_sync(patch: Patch) -> None:
    """A preferred leader election does not require the preferred replica to be in sync."""
    from klamm.controller.decisions.elections import Choice
    from klamm.controller.decisions.elections import elect_preferred as right
    from klamm.controller.handlers import elections

    def elect_preferred(facts: Any) -> Any:
        """The patched function, with the injected bug."""
        first = facts.replicas[0]
        isr_ = facts.isr if first in facts.isr else (*facts.isr, first)
        return Choice(first, isr_, recipients=facts.replicas) if first in facts.live else None

    patch.setattr(elections, "elect_preferred", replace(right, elect=elect_preferred))


def stopping_brokers_get_no_requests(patch: Patch) -> None:
    """Brokers in controlled shutdown get no control requests."""

    def live_only(self: Any, brokers: Any) -> Any:
        """The patched function, with the injected bug."""
        return sorted(b for b in brokers if b in self._context.live)

    patch.setattr(request_batch.RequestBatch, "_registered", live_only)


def shutdown_answered_before_leaders_move(patch: Patch) -> None:
    """ControlledShutdown is answered before the leaders have moved."""

    async def accept_at_once(term: TermContext, event: ControlledShutdown) -> None:
        """The patched function, with the injected bug."""
        from klamm.controller.events import ShutdownAnswer

        event.answer(ShutdownAnswer(ErrorCode.NONE))

    handlers: dict[Any, Any] = controller.HANDLERS
    patch.setitem(handlers, ControlledShutdown, accept_at_once)


def stops_without_epochs(patch: Patch) -> None:
    """StopReplica carries no leader epoch."""
    add = request_batch.RequestBatch.add_stop_replica

    def without(self: Any, brokers: Any, partition: Any, delete: bool) -> None:
        """The patched function, with the injected bug."""
        told = list(brokers)
        add(self, told, partition, delete)
        for broker in told:
            if (stop := self._collected.stops.get(broker, {}).get(partition)) is not None:
                stop.leader_epoch = -1

    patch.setattr(request_batch.RequestBatch, "add_stop_replica", without)
