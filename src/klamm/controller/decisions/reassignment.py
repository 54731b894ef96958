"""Whether a requested reassignment is valid, and whether it can be completed.

Beyond Kafka, a request is refused if it would drop the last in-sync replicas, or if the old tools' znode has an invalid
list of replicas. Source: KafkaController.validateReplicas and related methods (3.9).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from klamm.controller.context import ControllerContext
from klamm.controller.decisions.plans import Refusal, StatePlan
from klamm.controller.topic import Partition
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr

Target = Sequence[BrokerId]


@dataclass(slots=True)
class ReassignmentPlan:
    """The reassignments that a request begins, and those that are refused."""

    begin: dict[Partition, ReplicaAssignment] = field(default_factory=dict)
    refused: dict[TopicPartition, Refusal] = field(default_factory=dict)

    def add_requested(self, context: ControllerContext, key: TopicPartition, target: Target | None) -> None:
        """Add a partition of an AlterPartitionReassignments request; a target of None cancels."""
        partition = context.partition(key.topic, key.partition)
        now = partition.assignment if partition is not None else ReplicaAssignment(())
        refusal = _check_requested(context, now, target)
        if refusal is None and (partition is None or context.is_to_be_deleted(partition)):
            refusal = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        self._decide(context, key, partition, target, refusal)

    def add_from_znode(self, context: ControllerContext, key: TopicPartition, target: Target) -> None:
        """Add a partition of the old tools' znode, unless this reassignment is already in progress.

        As in Kafka, new replicas need not be live: the reassignment waits for their brokers.
        """
        partition = context.partition(key.topic, key.partition)
        if partition is None or context.is_to_be_deleted(partition):
            self.refused[key] = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
            return
        refusal = _check_list(target)  # first: a list that names a broker twice may ask for what is under way
        wanted = partition.assignment.reassign_to(target)
        if refusal is not None or partition not in context.reassigning or wanted != partition.assignment:
            self._decide(context, key, partition, target, refusal)

    def _decide(
        self,
        context: ControllerContext,
        key: TopicPartition,
        partition: Partition | None,
        target: Target | None,
        refusal: Refusal | None,
    ) -> None:
        """Add the partition to `begin` or, with this refusal or a missing in-sync replica, to `refused`."""
        if refusal is None and partition is not None:
            wanted = partition.assignment.reassign_to(partition.assignment.origin if target is None else target)
            refusal = check_in_sync_replica_stays(context, partition, wanted)
            if refusal is None:
                self.begin[partition] = wanted
        if refusal is not None:
            self.refused[key] = refusal


def _check_requested(context: ControllerContext, now: ReplicaAssignment, target: Target | None) -> Refusal | None:
    """Check a target in Kafka's order. Replicas that are already assigned may be dead; new ones must be live."""
    if target is None:
        if now.is_being_reassigned:
            return None
        return Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    if (refusal := _check_list(target)) is not None:
        return refusal
    if dead := [b for b in now.reassign_to(target).adding if b not in context.live]:
        why = (
            f"The new replicas {_listed(dead)} are on brokers that are not alive. Live brokers: "
            f"{_listed(context.live)}."
        )
        return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
    return None


def _check_list(target: Target) -> Refusal | None:
    """The refusal of a target that is empty, repeats a broker or has an invalid broker id."""
    why = None
    if not target:
        why = "The list of replicas is empty. Send at least one broker."
    elif len(set(target)) != len(target):
        why = f"The list of replicas has a broker twice: {_listed(target)}. Send each broker once."
    elif any(b < 0 for b in target):
        why = f"The list of replicas has a negative broker id: {_listed(target)}. Send ids of brokers."
    return None if why is None else Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)


def dropped_replicas(now: ReplicaAssignment, wanted: ReplicaAssignment) -> tuple[BrokerId, ...]:
    """Current replicas that the new assignment does not have: an earlier reassignment was adding them."""
    return tuple(b for b in now.replicas if b not in wanted.replicas)


def check_in_sync_replica_stays(
    context: ControllerContext, partition: Partition, wanted: ReplicaAssignment
) -> Refusal | None:
    """Refuse an assignment that drops replicas at once and keeps no in-sync replica that can lead."""
    dropped = dropped_replicas(partition.assignment, wanted)
    state = partition.leadership
    if not dropped or state is None:
        return None
    staying = [b for b in wanted.replicas if b in state.isr]
    if not staying or (state.leader in dropped and context.live_for(partition).isdisjoint(staying)):
        why = f"No live in-sync replica would be left: the ISR is {_listed(state.isr)}, dropped are {_listed(dropped)}."
        return Refusal(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, why)
    return None


def awaited(assignment: ReplicaAssignment, isr: Sequence[BrokerId]) -> tuple[BrokerId, ...]:
    """Target replicas that are not in sync yet; empty if the reassignment can be completed."""
    return tuple(b for b in assignment.target if b not in isr) if assignment.is_being_reassigned else ()


def is_in_sync(partition: Partition) -> bool:
    """Whether the partition's reassignment can be completed, according to the ISR in memory."""
    state = partition.leadership
    return state is not None and not awaited(partition.assignment, state.isr)


def plan_epochs(stored: Mapping[Partition, LeaderAndIsr], controller_epoch: int) -> StatePlan:
    """Raise leader epochs, so that leaders accept a changed assignment."""
    plan = StatePlan()
    for p, now in stored.items():
        if now.controller_epoch > controller_epoch:
            plan.refused[p] = f"a newer controller (epoch {now.controller_epoch}) wrote the state znode"
        else:
            plan.writes[p] = now.with_leader(now.leader, now.isr, controller_epoch)
    return plan


def _listed(brokers: Iterable[int]) -> str:
    """Broker ids separated by commas, for a message."""
    return f"[{', '.join(map(str, brokers))}]"
