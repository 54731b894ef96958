"""Answers that are not true, ids that are given twice, and what is left behind."""

from collections.abc import Iterable, Sequence
from typing import Any

from tests.simulation.injected_bugs.mutant import Patch

from klamm.controller import controller, events, timers
from klamm.controller.decisions.plans import Refusal
from klamm.controller.decisions.requested_elections import RequestedElections, plan_rebalance
from klamm.controller.handlers import elections, failover
from klamm.model.errors import ErrorCode
from klamm.zk import fenced, store
from klamm.zk.admin_znodes import ProducerIdBlock
from klamm.zk.operations import Op


def blocks_given_twice(patch: Patch) -> None:
    """Whoever asks for producer ids gets the same block."""

    async def allocate(self: Any, broker: Any) -> ProducerIdBlock:
        return ProducerIdBlock(broker, 0, 999)

    patch.setattr(store.Store, "allocate_producer_ids", allocate)


def configs_stay(patch: Patch) -> None:
    """Configs of deleted topics stay."""
    write, delete = fenced.FencedWriter.write_together, fenced.FencedWriter.delete_all

    async def write_all_but_configs(self: Any, ops: Sequence[Op]) -> bool:
        return await write(self, [op for op in ops if not op.path.startswith("/config/")])

    async def delete_all_but_configs(self: Any, paths: Iterable[str]) -> Any:
        return await delete(self, [path for path in paths if not path.startswith("/config/")])

    patch.setattr(fenced.FencedWriter, "write_together", write_all_but_configs)
    patch.setattr(fenced.FencedWriter, "delete_all", delete_all_but_configs)


def timers_outlive_the_term(patch: Patch) -> None:
    patch.setattr(timers.Timers, "close", lambda self: None)


def all_elections_succeed(patch: Patch) -> None:
    """Whoever asks for an election is told that it succeeded."""
    patch.setattr(elections, "why_not_elected", lambda context, partition, unclean: None)


def no_election_succeeds(patch: Patch) -> None:
    """Whoever asks for an election is told that nobody could be elected."""
    refusal = Refusal(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "not alive")
    patch.setattr(elections, "why_not_elected", lambda context, partition, unclean: refusal)


def requested_elections_elect_no_leader(patch: Patch) -> None:
    """Whoever asks for preferred replicas is told that they are not available, and none is elected."""
    add = RequestedElections.add

    def refuse_all(self: RequestedElections, context: Any, asked: Any, unclean: bool) -> None:
        add(self, context, asked, unclean)
        refusal = Refusal(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "not alive")
        self.refused |= dict.fromkeys(self.electable, refusal)
        self.electable.clear()

    patch.setattr(RequestedElections, "add", refuse_all)


def imbalance_is_checked_once(patch: Patch) -> None:
    """After the first look for imbalanced leaders there is no other in the same term."""

    async def look_once(term: Any, event: Any) -> None:
        await elections._rebalance(term)

    patch.setitem(controller.HANDLERS, events.AutoPreferredReplicaLeaderElection, look_once)


def rebalancing_ignores_some_partitions(patch: Patch) -> None:
    """A check for imbalance elects the preferred replica of one partition only."""

    def plan_one(context: Any, imbalance: Any, percentage: int) -> Any:
        made = plan_rebalance(context, imbalance, percentage)
        del made.elect[1:]
        return made

    patch.setattr(elections, "plan_rebalance", plan_one)


def imbalance_never_checked(patch: Patch) -> None:
    """Imbalanced leaders stay where they are."""
    patch.setattr(failover, "begin_rebalancing", lambda term: None)
