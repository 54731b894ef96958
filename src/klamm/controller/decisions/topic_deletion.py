"""The next step of a topic's deletion, or what it waits for. Source: TopicDeletionManager.scala (3.9).

Unlike Kafka's, a deletion does not wait for ever for a dead broker: see docs/decisions on topic deletion.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from klamm.controller.context import ControllerContext
from klamm.controller.states import ReplicaState
from klamm.controller.topic import Partition
from klamm.model.ids import BrokerId

ByBroker = dict[BrokerId, list[Partition]]


@dataclass(slots=True)
class Survey:
    """Replicas of one topic that are neither deleted nor being deleted, by what stands in the way of their deletion."""

    reachable: ByBroker = field(default_factory=dict)
    """By broker: the broker is live and the log directory works."""
    unreachable: ByBroker = field(default_factory=dict)
    """By broker: the broker is registered, but is shutting down or its log directory failed."""
    gone: ByBroker = field(default_factory=dict)
    """The broker is not registered."""
    moving: list[Partition] = field(default_factory=list)
    """Partitions that are being reassigned, also to dead brokers."""


def add_to_survey(context: ControllerContext, partitions: Iterable[Partition], into: Survey) -> None:
    """Sort the replicas of these partitions into `into` by what prevents their deletion, for example a dead broker."""
    for p in partitions:
        if p.assignment.is_being_reassigned:
            into.moving.append(p)
        for broker in p.replicas:
            state = context.replica_states[broker].get(p)
            if state is ReplicaState.DELETION_SUCCESSFUL or state is ReplicaState.DELETION_STARTED:
                continue
            if context.is_online(broker, p):
                into.reachable.setdefault(broker, []).append(p)
            elif broker in context.registered:
                into.unreachable.setdefault(broker, []).append(p)
            else:
                into.gone.setdefault(broker, []).append(p)


class Step(StrEnum):
    """The next step of a topic's deletion."""

    BEGIN = "begin"
    """Send StopReplica to the brokers."""
    COMPLETE = "complete"
    """Delete the znodes: there is nothing left to wait for."""
    WAIT = "wait"


class DeletionDecision(NamedTuple):
    """The next step, and for WAIT the reason."""

    step: Step
    why: str = ""
    """What the deletion waits for, and what ends the waiting."""


def decide_deletion_step(
    context: ControllerContext,
    topic: str,
    found: Survey,
    timed_out: Collection[BrokerId],
    timeout_s: float,
    requests_carry_topic_ids: bool,
) -> DeletionDecision:
    """Decide the next step in deleting a topic that has no unanswered StopReplica requests.

    `timed_out` are brokers that have been dead for so long that the deletion does not wait for them; their replicas
    become pending deletions.
    """
    held_back = context.topics_ineligible_for_deletion.get(topic)
    begun = topic in context.topics_with_deletion_started
    moving = [p for p in found.moving if _can_complete_reassignment(context, p, frozenset(timed_out))]
    if moving and not begun:
        numbers = ", ".join(str(p.partition) for p in moving[:10])
        return DeletionDecision(
            Step.WAIT, f"partitions {numbers} are being reassigned; the deletion continues after that"
        )
    if found.moving and not begun:
        held_back = None  # nothing that is to be deleted is elected: their reassignment would wait for ever
    if held_back is None and (found.reachable or not begun):
        return DeletionDecision(Step.BEGIN)
    if found.reachable:
        return DeletionDecision(Step.WAIT, held_back or "")
    if found.unreachable:
        return DeletionDecision(Step.WAIT, _why_waiting_for_unreachable(context, found.unreachable))
    waited_for = [b for b in found.gone if b not in timed_out]
    if waited_for:
        return DeletionDecision(Step.WAIT, _why_waiting_for_dead(waited_for, timeout_s))
    if found.gone and (context.topics[topic].id is None or not requests_carry_topic_ids):
        return DeletionDecision(
            Step.WAIT,
            f"brokers {_list(found.gone)} are not alive, and without a topic id their replicas cannot be told apart "
            "from those of a later topic of that name; the deletion continues when they return",
        )
    return DeletionDecision(Step.COMPLETE)


def _can_complete_reassignment(
    context: ControllerContext, partition: Partition, timed_out: frozenset[BrokerId]
) -> bool:
    """Whether a reassignment can still end: it has a live leader, and no target broker timed out.

    A partition without a leader has no data to move.
    """
    return _is_live_leader(context, partition.leader, partition) and timed_out.isdisjoint(partition.assignment.target)


def _is_live_leader(context: ControllerContext, leader: BrokerId, partition: Partition) -> bool:
    """Whether the leader serves the partition.

    A leader that restarted does not serve it: LeaderAndIsr is not sent to it for a topic that is to be deleted.
    """
    was_put_aside = context.replicas_on(leader).get(partition) is ReplicaState.DELETION_INELIGIBLE
    return context.is_online(leader, partition) and not was_put_aside


def _why_waiting_for_unreachable(context: ControllerContext, found: ByBroker) -> str:
    """The reason why deletion waits: brokers that shut down, or that have failed log directories."""
    leaving = [b for b in found if b in context.shutting_down]
    if leaving:
        return f"brokers {_list(leaving)} are shutting down; the deletion continues when they have restarted or stopped"
    return (
        f"log directories failed on brokers {_list(found)}; the deletion continues when they are repaired and restarted"
    )


def _why_waiting_for_dead(brokers: Collection[BrokerId], timeout_s: float) -> str:
    """The reason why deletion waits: dead brokers whose timeout is not over."""
    return (
        f"brokers {_list(brokers)} are not alive; the deletion continues when they return, or without them after"
        f" {timeout_s:g} s (klamm.delete.topic.dead.broker.wait.ms)"
    )


def _list(brokers: Iterable[BrokerId]) -> str:
    """Broker ids in ascending order, separated by commas."""
    return ", ".join(map(str, sorted(brokers)))
