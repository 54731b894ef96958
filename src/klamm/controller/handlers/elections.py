"""Elections that are requested, and elections that return leadership to preferred replicas.

Source: KafkaController.scala (3.9).
"""

from collections.abc import Sequence
from typing import Final

from klamm.controller.decisions.elections import elect_preferred, elect_unclean
from klamm.controller.decisions.plans import Refusal
from klamm.controller.decisions.requested_elections import (
    Imbalance,
    RequestedElections,
    plan_rebalance,
    why_not_elected,
)
from klamm.controller.events import (
    AutoPreferredReplicaLeaderElection,
    ElectionAnswer,
    ReplicaLeaderElection,
    TopicUncleanLeaderElectionEnable,
    UncleanLeaderElectionEnable,
)
from klamm.controller.handlers.partitions import bring_online, trigger_online
from klamm.controller.handlers.tool_requests import change_list
from klamm.controller.term_context import TermContext
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.zk.admin_znodes import decode_preferred_election
from klamm.zk.tool_requests import remove_unless_changed
from klamm.zk.znodes import PREFERRED_ELECTION, MalformedZnode

FIRST_REBALANCE_S: Final = 5
"""The time from the failover to the first check of preferred replicas."""


async def on_unclean_enabled(term: TermContext, event: UncleanLeaderElectionEnable) -> None:
    """Elect leaders for offline partitions, since the brokers' default now allows unclean elections."""
    await trigger_online(term)


async def on_topic_unclean_enabled(term: TermContext, event: TopicUncleanLeaderElectionEnable) -> None:
    """Elect leaders for the topic's offline partitions, since its config now allows unclean elections."""
    await trigger_online(term, event.topic)


# ---- requested


async def on_requested_election(term: TermContext, event: ReplicaLeaderElection) -> None:
    """Elect leaders for the requested partitions, or for those in the old tools' znode."""
    if event.partitions is None:
        await on_listed_election(term)
    else:
        event.answer(await _elect(term, event.partitions, event.unclean))


async def on_listed_election(term: TermContext) -> None:
    """Elect preferred replicas for the partitions in the old tools' znode, then delete the znode."""
    found = await term.store.tool_requests.read(PREFERRED_ELECTION)
    if found is None:
        return
    try:
        await _elect(term, decode_preferred_election(found.payload), unclean=False)
    except MalformedZnode as error:
        term.journal.refused(term.cause, PREFERRED_ELECTION, f"{error}; removed")
    await change_list(term, PREFERRED_ELECTION, "election list", remove_unless_changed(found))


async def _elect(term: TermContext, asked: Sequence[TopicPartition], unclean: bool) -> ElectionAnswer:
    """Elect leaders for these partitions; returns the new leaders and the refusals."""
    plan = RequestedElections()
    async for chunk in term.slices.over(asked):
        plan.add(term.context, chunk, unclean)
    await _journal_refused(term, plan.refused)
    await bring_online(term, list(plan.electable.values()), elect_unclean if unclean else elect_preferred)
    leaders: dict[TopicPartition, BrokerId] = {}
    async for key, partition in term.slices.each(plan.electable.items()):
        if (why := why_not_elected(term.context, partition, unclean)) is None:
            leaders[key] = partition.leader
        else:
            plan.refused[key] = why
    return ElectionAnswer(leaders, plan.refused)


async def _journal_refused(term: TermContext, refused: dict[TopicPartition, Refusal]) -> None:
    """Journal the refused elections; of those that are not needed, which are often many, only the number."""
    reported = await term.slices.dict_of(
        (key, r) for key, r in refused.items() if r.error is not ErrorCode.ELECTION_NOT_NEEDED
    )
    if needless := len(refused) - len(reported):
        term.journal.refused(term.cause, "election", "ELECTION_NOT_NEEDED", partition_count=needless)
    await term.refuse_requested("election", reported)


# ---- brought back by ourselves


def begin_rebalancing(term: TermContext) -> None:
    """Start the timer for the first check of preferred replicas; each check restarts it when it ends."""
    if term.settings.auto_leader_rebalance:
        term.timers.after("rebalance", FIRST_REBALANCE_S, AutoPreferredReplicaLeaderElection())


async def on_rebalance(term: TermContext, event: AutoPreferredReplicaLeaderElection) -> None:
    """Check preferred replicas, and start the timer for the next check."""
    try:
        await _rebalance(term)
    finally:
        term.timers.after("rebalance", term.settings.leader_imbalance_check_s, AutoPreferredReplicaLeaderElection())


async def _rebalance(term: TermContext) -> None:
    """Elect the preferred replicas of brokers that lead too few partitions."""
    imbalance = Imbalance()
    async for chunk in term.slices.over(term.context.partitions()):
        imbalance.count(p for p in chunk if not term.context.is_to_be_deleted(p))
    plan = plan_rebalance(term.context, imbalance, term.settings.leader_imbalance_percentage)
    if plan.ratios:
        percentages = {str(broker): round(100 * ratio, 1) for broker, ratio in plan.ratios.items()}
        term.journal.found(term.cause, imbalance_percent=percentages)
    term.refuse("rebalance", plan.left)
    await bring_online(term, plan.elect, elect_preferred)
