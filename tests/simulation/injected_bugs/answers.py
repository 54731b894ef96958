"""Answers that are not true, ids that are given twice, and what is left behind."""

from collections.abc import Iterable
from typing import Any

from tests.simulation.injected_bugs.mutant import Patch

from klamm.controller import timers
from klamm.controller.decisions.plans import Refusal
from klamm.controller.handlers import elections, failover
from klamm.model.errors import ErrorCode
from klamm.zk import fenced, store
from klamm.zk.admin_znodes import ProducerIdBlock


def blocks_given_twice(patch: Patch) -> None:
    """Whoever asks for producer ids gets the same block."""

    async def allocate(self: Any, broker: Any) -> ProducerIdBlock:
        return ProducerIdBlock(broker, 0, 999)

    patch.setattr(store.Store, "allocate_producer_ids", allocate)


def configs_stay(patch: Patch) -> None:
    """Configs of deleted topics stay."""
    delete = fenced.FencedWriter.delete_all

    async def all_but_configs(self: Any, paths: Iterable[str]) -> Any:
        return await delete(self, [path for path in paths if not path.startswith("/config/")])

    patch.setattr(fenced.FencedWriter, "delete_all", all_but_configs)


def timers_outlive_the_term(patch: Patch) -> None:
    patch.setattr(timers.Timers, "close", lambda self: None)


def all_elections_succeed(patch: Patch) -> None:
    """Whoever asks for an election is told that it succeeded."""
    patch.setattr(elections, "why_not_elected", lambda context, partition, unclean: None)


def no_election_succeeds(patch: Patch) -> None:
    """Whoever asks for an election is told that nobody could be elected."""
    refusal = Refusal(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "not alive")
    patch.setattr(elections, "why_not_elected", lambda context, partition, unclean: refusal)


def nobody_rebalances(patch: Patch) -> None:
    """Imbalanced leaders stay where they are."""
    patch.setattr(failover, "begin_rebalancing", lambda term: None)
