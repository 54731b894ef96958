"""Whether a leader may change its ISR: the checks of AlterPartition, in Kafka's order.

Beyond Kafka, the requester must be the leader that the controller knows, the new ISR must be non-empty and within the
assignment, and a new member must not have registered again since it fetched (Kafka: only in KRaft, KIP-903). A leader
that shuts down may change its ISR: the replica that it admits can take over from it.
Source: KafkaController.tryProcessAlterPartition (3.9).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from klamm.controller.context import ControllerContext
from klamm.controller.decisions.plans import StatePlan
from klamm.controller.topic import Partition
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.model.leader_and_isr import NO_EPOCH, LeaderAndIsr, LeaderRecoveryState

FIRST_VERSION_WITH_TOPIC_IDS = 2
LEAVING_LEADERS_CHANGE_ISRS = True
"""Whether a leader that shuts down may change its ISR; the differential tests turn it off to go on comparing."""


class Proposal(NamedTuple):
    """The ISR that a leader proposes for one of its partitions."""

    leader: BrokerId  # the broker that asks
    leader_epoch: int
    isr: tuple[BrokerId, ...]
    recovery: int  # as received, perhaps an unknown number
    partition_epoch: int
    broker_epochs: Mapping[BrokerId, int] = MappingProxyType({})
    """The broker epochs in which members fetched, where the leader knows them (version 3)."""


class Verdict(NamedTuple):
    """The result for one proposal: a state to `write`, the `current` state if it stays, or an error with its reason."""

    error: ErrorCode = ErrorCode.NONE
    why: str = ""
    write: LeaderAndIsr | None = None
    current: LeaderAndIsr | None = None


def check_sender(context: ControllerContext, broker: BrokerId, broker_epoch: int) -> ErrorCode:
    """NONE if the broker is registered with exactly this epoch, else STALE_BROKER_EPOCH."""
    known = context.registered.get(broker)
    return ErrorCode.NONE if known is not None and known.epoch == broker_epoch else ErrorCode.STALE_BROKER_EPOCH


def judge(context: ControllerContext, partition: Partition | None, proposal: Proposal, version: int) -> Verdict:
    """Accept or refuse a leader's proposed ISR, comparing its epochs first, then its content."""
    now = partition.leadership if partition else None
    if partition is None or now is None:
        return Verdict(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the controller knows no leader of this partition yet")
    if proposal.partition_epoch > now.partition_epoch or proposal.leader_epoch > now.leader_epoch:
        return Verdict(
            ErrorCode.NOT_CONTROLLER,
            "the leader knows a newer leader or partition epoch than this controller: another controller was elected",
        )
    if proposal.leader_epoch < now.leader_epoch:
        return Verdict(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"the request has leader epoch {proposal.leader_epoch}, but the current one is {now.leader_epoch}",
        )
    if (proposal.leader, proposal.isr, proposal.recovery) == (now.leader, now.isr, now.recovery):
        return Verdict(current=now)
    if proposal.partition_epoch < now.partition_epoch:
        text = (
            f"the request has partition epoch {proposal.partition_epoch}, but the current one is {now.partition_epoch}"
        )
        return Verdict(ErrorCode.INVALID_UPDATE_VERSION, text)
    return _judge_content(context, partition, now, proposal, version)


def plan_isr_changes(stored: Mapping[Partition, LeaderAndIsr], accepted: Mapping[Partition, LeaderAndIsr]) -> StatePlan:
    """Plan to write the accepted ISR changes, except where the stored state changed after the leader's proposal."""
    plan = StatePlan()
    for p, now in stored.items():
        if now.partition_epoch == accepted[p].partition_epoch:
            plan.writes[p] = accepted[p]
        else:
            plan.refused[p] = (
                f"{ErrorCode.INVALID_UPDATE_VERSION.name}: the state znode has partition epoch {now.partition_epoch}, "
                f"the request {accepted[p].partition_epoch}"
            )
    return plan


def _judge_content(
    context: ControllerContext, partition: Partition, now: LeaderAndIsr, proposal: Proposal, version: int
) -> Verdict:
    """Check sender, recovery state and ISR members of a proposal whose epochs are current."""
    if proposal.leader != now.leader:
        return Verdict(
            ErrorCode.INVALID_REQUEST,
            f"broker {proposal.leader} sent the request, but broker {now.leader} is the leader",
        )
    if proposal.recovery not in LeaderRecoveryState.__members__.values():
        return Verdict(ErrorCode.INVALID_REQUEST, f"leader recovery state {proposal.recovery} does not exist")
    if proposal.recovery == LeaderRecoveryState.RECOVERING and len(proposal.isr) > 1:
        return Verdict(
            ErrorCode.INVALID_REQUEST,
            f"a recovering leader must be alone in the ISR, but the request has {', '.join(map(str, proposal.isr))}",
        )
    if proposal.recovery == LeaderRecoveryState.RECOVERING and now.recovery == LeaderRecoveryState.RECOVERED:
        return Verdict(
            ErrorCode.INVALID_REQUEST, "the leader has recovered already, but the request sets it to recovering again"
        )
    if not proposal.isr:
        return Verdict(ErrorCode.INVALID_REQUEST, "the ISR in the request is empty")
    if ineligible := [b for b in proposal.isr if not _is_eligible(context, partition, now, proposal, b)]:
        refusal = (
            ErrorCode.INELIGIBLE_REPLICA
            if version >= FIRST_VERSION_WITH_TOPIC_IDS
            else ErrorCode.OPERATION_NOT_ATTEMPTED
        )
        return Verdict(
            refusal,
            f"brokers {', '.join(map(str, ineligible))} in the requested ISR are not live, not replicas, or have "
            "registered again since they fetched",
        )
    recovery = LeaderRecoveryState(proposal.recovery)
    return Verdict(write=now._replace(isr=proposal.isr, recovery=recovery, controller_epoch=context.epoch))


def _is_eligible(
    context: ControllerContext, partition: Partition, now: LeaderAndIsr, proposal: Proposal, broker: BrokerId
) -> bool:
    """Whether the broker may be in the ISR: live, a replica, and in the registration in which it fetched (KIP-903).

    The leader is registered, since it has just sent the request; it stays in it also while it shuts down.
    """
    is_live = broker in context.live or (LEAVING_LEADERS_CHANGE_ISRS and broker == now.leader)
    if not is_live or broker not in partition.replicas:
        return False
    return proposal.broker_epochs.get(broker, NO_EPOCH) in (NO_EPOCH, context.registered[broker].epoch)
