"""Removing a broker from ISRs. Source: ReplicaStateMachine.doRemoveReplicasFromIsr (3.9)."""

from collections.abc import Mapping

from klamm.controller.context import Partition
from klamm.controller.decisions.state_plan import StatePlan
from klamm.model.ids import NO_BROKER, BrokerId, shared_ids
from klamm.model.leader_and_isr import LeaderAndIsr


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
