"""What decisions return: the partition states to write, those that stay, and what is refused with the reason.

The removal of a broker from ISRs is such a decision. Source: ReplicaStateMachine.doRemoveReplicasFromIsr (3.9). Kafka
does not have `plan_unnoticed_restarts` (docs/decisions/0016-restarts-without-a-controller.md).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from klamm.controller.topic import Partition
from klamm.model.errors import ErrorCode
from klamm.model.ids import NO_BROKER, BrokerId, shared_ids
from klamm.model.leader_and_isr import LeaderAndIsr


class Refusal(NamedTuple):
    error: ErrorCode
    why: str


Reasons = tuple[tuple[int, str], ...]


@dataclass(slots=True)
class StatePlan:
    """Planned changes of partition states."""

    writes: dict[Partition, LeaderAndIsr] = field(default_factory=dict)
    unchanged: dict[Partition, LeaderAndIsr] = field(default_factory=dict)
    """States that already are as decided."""
    refused: dict[Partition, str] = field(default_factory=dict)
    """Partitions refused because of their state, with the reason; if the state came from memory, it is read from
    ZooKeeper and decided again."""
    undecidable: dict[Partition, str] = field(default_factory=dict)
    """Partitions for which something else than the state could not be read, with the reason."""

    def reasons(self, partitions: Iterable[Partition]) -> dict[Partition, Reasons]:
        """The brokers that were passed over, with the reason, if the decision was between brokers."""
        return {}


def plan_isr_removal(broker: BrokerId, stored: Mapping[Partition, LeaderAndIsr], controller_epoch: int) -> StatePlan:
    """Remove `broker` from each ISR; where it led, the partition has no leader then.

    The last member stays in the ISR, with leader -1, so that a clean election is possible when it returns.
    """
    plan = StatePlan()
    left: dict[tuple[BrokerId, ...], tuple[BrokerId, ...]] = {}  # thousands of partitions share a few ISRs
    for p, now in stored.items():
        if now.controller_epoch > controller_epoch:
            plan.refused[p] = f"a newer controller (epoch {now.controller_epoch}) wrote the state znode"
        elif broker not in now.isr:
            is_ours = now.controller_epoch == controller_epoch
            plan.unchanged[p] = (
                now if is_ours else now._replace(controller_epoch=controller_epoch)
            )  # sent with our epoch
        else:
            leader = NO_BROKER if now.leader == broker else now.leader
            if now.isr not in left:
                others = tuple(b for b in now.isr if b != broker)
                left[now.isr] = now.isr if len(now.isr) == 1 else shared_ids(others)
            plan.writes[p] = now.with_leader(leader, left[now.isr], controller_epoch)
    return plan


def plan_unnoticed_restarts(
    restarted: Mapping[Partition, tuple[BrokerId, ...]],
    stored: Mapping[Partition, LeaderAndIsr],
    live: Collection[BrokerId],
    controller_epoch: int,
) -> StatePlan:
    """Remove `restarted` members from each ISR in which a live member stays; where one led, there is no leader then.

    Where all live members restarted nobody is removed; a leader that restarted leads on, in a new leader epoch.
    """
    plan = StatePlan()
    for p, now in stored.items():
        if now.controller_epoch > controller_epoch:
            plan.refused[p] = f"a newer controller (epoch {now.controller_epoch}) wrote the state znode"
            continue
        gone = restarted[p]
        staying = tuple(b for b in now.isr if b not in gone)
        if any(b in live for b in staying):
            leader = NO_BROKER if now.leader in gone else now.leader
            plan.writes[p] = now.with_leader(leader, shared_ids(staying), controller_epoch)
        elif now.leader in gone:
            plan.writes[p] = now.with_leader(now.leader, now.isr, controller_epoch)
        else:
            plan.unchanged[p] = now
    return plan
