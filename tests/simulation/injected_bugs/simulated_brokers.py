"""Injected bugs of the simulated broker (`sim/nodes/replicas.py`), which is not production code.

They show that an invariant notices the bug, not that the production broker has the guard.
"""

from typing import Any

from tests.simulation.injected_bugs.mutant import Patch

from klamm.model.errors import ErrorCode
from klamm.model.ids import NO_BROKER
from klamm.model.leader_and_isr import NO_EPOCH
from klamm.sim.nodes.replicas import Replicas


def any_controller_epoch_accepted(patch: Patch) -> None:
    """The broker accepts requests of controllers with an old epoch."""

    def check_epochs(self: Replicas, message_broker_epoch: int, broker_epoch: int, controller_epoch: int) -> ErrorCode:
        """The patched function, with the injected bug."""
        is_stale = -1 < message_broker_epoch < broker_epoch
        self.controller_epoch = controller_epoch
        return ErrorCode.STALE_BROKER_EPOCH if is_stale else ErrorCode.NONE

    patch.setattr(Replicas, "check_epochs", check_epochs)


def requests_for_earlier_registrations_accepted(patch: Patch) -> None:
    """The broker accepts requests with an old broker epoch."""
    check_epochs = Replicas.check_epochs

    def any_run(self: Replicas, message_broker_epoch: int, broker_epoch: int, controller_epoch: int) -> ErrorCode:
        """The patched function, with the injected bug."""
        return check_epochs(self, -1, broker_epoch, controller_epoch)

    patch.setattr(Replicas, "check_epochs", any_run)


def _forgetting(known: Any, take: Any, *order: Any) -> ErrorCode:
    """Apply LeaderAndIsr as if the replica had no leader epoch yet; restore the epochs if it is rejected."""
    before = known.leader_epoch, known.partition_epoch
    known.leader_epoch, known.partition_epoch = NO_EPOCH, 0
    error: ErrorCode = take(*order)
    if error is not ErrorCode.NONE:
        known.leader_epoch, known.partition_epoch = before
    return error


def older_leader_epochs_accepted(patch: Patch) -> None:
    """The broker accepts LeaderAndIsr with an old leader epoch."""
    take = Replicas._apply_leader_and_isr

    def any_older(self: Replicas, order: Any, now_s: float) -> ErrorCode:
        """The patched function, with the injected bug."""
        known = self.hosted.get(order.topic_partition)
        is_older = known is not None and order.state.leader_epoch < known.leader_epoch
        return _forgetting(known, take, self, order, now_s) if is_older else take(self, order, now_s)

    patch.setattr(Replicas, "_apply_leader_and_isr", any_older)


def repeated_requests_applied(patch: Patch) -> None:
    """The broker applies a LeaderAndIsr with the same leader epoch again."""
    take = Replicas._apply_leader_and_isr

    def equal_too(self: Replicas, order: Any, now_s: float) -> ErrorCode:
        """The patched function, with the injected bug."""
        known = self.hosted.get(order.topic_partition)
        is_same = known is not None and order.state.leader_epoch == known.leader_epoch
        return _forgetting(known, take, self, order, now_s) if is_same else take(self, order, now_s)

    patch.setattr(Replicas, "_apply_leader_and_isr", equal_too)


def refused_isr_changes_not_repeated(patch: Patch) -> None:
    """A leader whose ISR change was refused never asks again."""
    _keep_through_leader_and_isr(patch, "is_refused")


def proposals_kept_after_leader_and_isr(patch: Patch) -> None:
    """A proposed ISR is not withdrawn by a newer LeaderAndIsr."""
    _keep_through_leader_and_isr(patch, "proposal")


def _keep_through_leader_and_isr(patch: Patch, name: str) -> None:
    """A LeaderAndIsr does not reset this attribute of the replica."""
    begin = Replicas._become_leader_or_follower

    def keep(self: Replicas, replica: Any, order: Any, now_s: float) -> None:
        """The patched function, with the injected bug."""
        before = getattr(replica, name)
        begin(self, replica, order, now_s)
        setattr(replica, name, before)

    patch.setattr(Replicas, "_become_leader_or_follower", keep)


def epochs_remembered_before_the_work(patch: Patch) -> None:
    """The first LeaderAndIsr for a partition fails once per process, but its leader epoch is remembered."""
    begin = Replicas._become_leader_or_follower

    def fails_once(self: Replicas, replica: Any, order: Any, now_s: float) -> None:
        """The patched function, with the injected bug."""
        if replica.leader_epoch == NO_EPOCH and order.state.leader_epoch > 0:
            replica.leader_epoch = order.state.leader_epoch
        else:
            begin(self, replica, order, now_s)

    patch.setattr(Replicas, "_become_leader_or_follower", fails_once)


def no_replica_without_a_leader(patch: Patch) -> None:
    """The broker hosts only replicas of partitions that have a leader."""
    take = Replicas._apply_leader_and_isr

    def of_leaders_alone(self: Replicas, order: Any, now_s: float) -> ErrorCode:
        """The patched function, with the injected bug."""
        if order.state.leader == NO_BROKER and order.topic_partition not in self.hosted:
            return ErrorCode.NONE
        return take(self, order, now_s)

    patch.setattr(Replicas, "_apply_leader_and_isr", of_leaders_alone)


def stops_need_a_newer_epoch(patch: Patch) -> None:
    """StopReplica is accepted only with a newer leader epoch."""
    stop = Replicas._stop

    def strict(self: Replicas, order: Any) -> ErrorCode:
        """The patched function, with the injected bug."""
        known = self.hosted.get(order.topic_partition)
        if known is not None and order.leader_epoch >= 0 and order.leader_epoch <= known.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return stop(self, order)

    patch.setattr(Replicas, "_stop", strict)
