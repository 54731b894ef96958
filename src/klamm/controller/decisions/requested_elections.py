"""Elections requested by tools, and elections that balance leaders. Source: processReplicaLeaderElection (3.9)."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from klamm.controller.context import ControllerContext
from klamm.controller.decisions.plans import Refusal
from klamm.controller.topic import Partition
from klamm.model.errors import ErrorCode
from klamm.model.ids import NO_BROKER, BrokerId, TopicPartition

_MISSING: Final = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")


@dataclass(slots=True)
class RequestedElections:
    """The partitions of a request to elect, and those refused."""

    electable: dict[TopicPartition, Partition] = field(default_factory=dict)
    refused: dict[TopicPartition, Refusal] = field(default_factory=dict)

    def add(self, context: ControllerContext, requested: Iterable[TopicPartition], unclean: bool) -> None:
        """Add requested partitions to `electable` or, with the reason, to `refused`."""
        for key in requested:
            partition = context.partition(key.topic, key.partition)
            if partition is None:
                self.refused[key] = _MISSING
            elif context.is_to_be_deleted(partition):
                self.refused[key] = Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")
            elif (needless := _why_not_needed(context, partition, unclean)) is not None:
                self.refused[key] = Refusal(ErrorCode.ELECTION_NOT_NEEDED, needless)
            else:
                self.electable[key] = partition


def _why_not_needed(context: ControllerContext, partition: Partition, unclean: bool) -> str | None:
    """Why the partition needs no election: it has an online leader (unclean), or its preferred replica leads."""
    if unclean:
        return f"The leader, broker {partition.leader}, is alive." if _has_online_leader(context, partition) else None
    led = _preferred_replica_leads(partition)
    return f"The preferred replica, broker {partition.leader}, is already the leader." if led else None


def _has_online_leader(context: ControllerContext, partition: Partition) -> bool:
    """Whether the leader is live; a broker that is shutting down counts as dead."""
    return partition.leader != NO_BROKER and context.is_online(partition.leader, partition)


def why_not_elected(context: ControllerContext, partition: Partition, unclean: bool) -> Refusal | None:
    """The error of a partition after its election; None if it has the requested leader."""
    if unclean:
        if _has_online_leader(context, partition):
            return None
        return Refusal(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"No replica of {_listed(partition)} is alive.")
    if _preferred_replica_leads(partition):
        return None
    if not partition.replicas:
        return Refusal(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The znode of the topic assigns no replica to this partition."
        )
    why = (
        f"The preferred replica, broker {partition.replicas[0]} of {_listed(partition)}, is not alive or not in the "
        f"ISR."
    )
    return Refusal(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, why)


def _preferred_replica_leads(partition: Partition) -> bool:
    """Whether the first replica leads; false if the znode assigns no replica."""
    return partition.replicas[:1] == (partition.leader,)


def _listed(partition: Partition) -> str:
    """The partition's replicas as a list, for a message."""
    return f"[{', '.join(map(str, partition.replicas))}]"


@dataclass(slots=True)
class Imbalance:
    """How many partitions each broker leads or should lead, as the preferred replica."""

    preferred: dict[BrokerId, int] = field(default_factory=dict)
    """By broker, the number of partitions whose preferred replica it is."""
    elsewhere: dict[BrokerId, list[Partition]] = field(default_factory=dict)
    """By broker, partitions whose preferred replica it is and that it does not lead."""

    def count(self, partitions: Iterable[Partition]) -> None:
        """Add these partitions to the counts."""
        for p in partitions:
            if not p.replicas:
                continue  # a znode written by hand may assign no replica
            first = p.replicas[0]
            self.preferred[first] = self.preferred.get(first, 0) + 1
            if p.leadership is not None and p.leadership.leader != first:
                self.elsewhere.setdefault(first, []).append(p)

    def ratio(self, broker: BrokerId) -> float:
        """The share of the broker's preferred partitions that it does not lead."""
        return len(self.elsewhere.get(broker, ())) / self.preferred[broker]


@dataclass(slots=True)
class RebalancePlan:
    """The partitions to elect, and those left as they are."""

    elect: list[Partition] = field(default_factory=list)
    left: dict[Partition, str] = field(default_factory=dict)
    """Partitions that are not elected, with the reason."""
    ratios: dict[BrokerId, float] = field(default_factory=dict)
    """The imbalance ratio of each broker above the limit."""


def plan_rebalance(context: ControllerContext, imbalance: Imbalance, percentage: int) -> RebalancePlan:
    """Elect preferred replicas of brokers whose imbalance exceeds `percentage`, where they are live and in sync."""
    plan = RebalancePlan()
    for broker in sorted(imbalance.elsewhere):
        ratio = imbalance.ratio(broker)
        if ratio <= percentage / 100:
            continue
        plan.ratios[broker] = ratio
        for p in imbalance.elsewhere[broker]:
            if not context.is_online(broker, p):
                plan.left[p] = "the preferred replica is not alive"
            elif p.leadership is not None and broker not in p.leadership.isr:
                plan.left[p] = "the preferred replica is not in the ISR"
            else:
                plan.elect.append(p)
    return plan
