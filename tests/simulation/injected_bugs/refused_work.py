"""Injected bugs in what a controller does with work that waits, was refused, or failed."""

from typing import Any

from tests.simulation.injected_bugs.mutant import Patch, nothing

from klamm.controller import controller
from klamm.controller.decisions.reassignment import dropped_replicas
from klamm.controller.handlers import pending_deletions, reassignment, topic_deletion
from klamm.controller.term_context import TermContext


def waiting_deletions_not_marked(patch: Patch) -> None:
    """A deletion that waits is neither marked nor journalled."""
    patch.setattr(topic_deletion, "_mark_waiting", lambda term, topics, why: None)


def moves_of_leaders_refused(patch: Patch) -> None:
    """A requested move away from the leader is refused, although another replica leads now."""
    move = reassignment._move_leaders_first

    async def refuse(term: TermContext, wanted: Any) -> Any:
        """The patched function, with the injected bug."""
        leaving = [p for p, a in wanted.items() if p.leader in dropped_replicas(p.assignment, a)]
        return await move(term, wanted) | dict.fromkeys(leaving, "the leader leaves")

    patch.setattr(reassignment, "_move_leaders_first", refuse)


def retries_come_too_soon(patch: Patch) -> None:
    """An event that failed is repeated after half a second, and the pauses grow from there."""
    patch.setattr(controller, "MIN_RETRY_BACKOFF_S", controller.MIN_RETRY_BACKOFF_S / 2)


def records_of_deleted_replicas_stay(patch: Patch) -> None:
    """The record of replicas that a broker has deleted is not removed from ZooKeeper."""
    patch.setattr(pending_deletions, "_remove_from_records", nothing)
