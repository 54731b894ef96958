"""Elections that somebody asks for, and those that balance leaders. Source: processReplicaLeaderElection (3.9)."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from klamm.controller.context import ControllerContext, Partition
from klamm.controller.decisions.refusal import Refusal
from klamm.model.errors import ErrorCode
from klamm.model.ids import NO_BROKER, BrokerId, TopicPartition


@dataclass(slots=True)
class RequestedElections:
    """Which partitions are to be elected, and why the others are not."""

    electable: dict[TopicPartition, Partition] = field(default_factory=dict)
    refused: dict[TopicPartition, Refusal] = field(default_factory=dict)

    def add(self, context: ControllerContext, asked: Iterable[TopicPartition], unclean: bool) -> None:
        for key in asked:
            partition = context.partition(key.topic, key.partition)
            if partition is None:
                self.refused[key] = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
            elif context.is_to_be_deleted(partition):
                self.refused[key] = Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")
            elif (needless := _why_not_needed(context, partition, unclean)) is not None:
                self.refused[key] = Refusal(ErrorCode.ELECTION_NOT_NEEDED, needless)
            else:
                self.electable[key] = partition


def _why_not_needed(context: ControllerContext, partition: Partition, unclean: bool) -> str | None:
    """A partition whose leader nobody knows has none: Kafka fails over it, and answers nobody."""
    if unclean:
        return f"broker {partition.leader} leads, and is alive" if _has_online_leader(context, partition) else None
    led = _preferred_replica_leads(partition)
    return f"the preferred replica {partition.leader} leads already" if led else None


def _has_online_leader(context: ControllerContext, partition: Partition) -> bool:
    """By a broker that stays: one that shuts down counts as gone."""
    return partition.leader != NO_BROKER and context.is_online(partition.leader, partition)


def why_not_elected(context: ControllerContext, partition: Partition, unclean: bool) -> Refusal | None:
    """What is told of a partition once its election is over; None where it found the leader asked for."""
    if unclean:
        if _has_online_leader(context, partition):
            return None
        return Refusal(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no replica of {_listed(partition)} is alive")
    if _preferred_replica_leads(partition):
        return None
    if not partition.replicas:
        return Refusal(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "its topic's znode assigns it to nobody")
    why = f"the preferred replica {partition.replicas[0]} of {_listed(partition)} is not alive, or not in sync"
    return Refusal(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, why)


def _preferred_replica_leads(partition: Partition) -> bool:
    """A znode written by hand may assign nobody: then nobody is preferred."""
    return partition.replicas[:1] == (partition.leader,)


def _listed(partition: Partition) -> str:
    return f"[{', '.join(map(str, partition.replicas))}]"


@dataclass(slots=True)
class Imbalance:
    """How far leaders are from their preferred replicas, for each broker that is one."""

    preferred: dict[BrokerId, int] = field(default_factory=dict)
    """Partitions that have it as their first replica."""
    elsewhere: dict[BrokerId, list[Partition]] = field(default_factory=dict)
    """Those of them that another broker leads, or none."""

    def count(self, partitions: Iterable[Partition]) -> None:
        for p in partitions:
            if not p.replicas:
                continue  # assigned to nobody, by hand
            first = p.replicas[0]
            self.preferred[first] = self.preferred.get(first, 0) + 1
            if p.leadership is not None and p.leadership.leader != first:
                self.elsewhere.setdefault(first, []).append(p)

    def ratio(self, broker: BrokerId) -> float:
        return len(self.elsewhere.get(broker, ())) / self.preferred[broker]


@dataclass(slots=True)
class RebalancePlan:
    elect: list[Partition] = field(default_factory=list)
    left: dict[Partition, str] = field(default_factory=dict)
    """Not elected, although they count: why."""
    ratios: dict[BrokerId, float] = field(default_factory=dict)
    """Of the brokers that are over the limit."""


def plan_rebalance(context: ControllerContext, imbalance: Imbalance, percentage: int) -> RebalancePlan:
    """Brokers that lead too few of what they should; a replica that is not alive or not in sync is left alone."""
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
                plan.left[p] = "the preferred replica lags: it is not in the ISR"
            else:
                plan.elect.append(p)
    return plan
