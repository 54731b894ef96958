"""Where a group may go next; no other code decides it. Source: GroupMetadata.scala (GroupState, 3.9)."""

from enum import StrEnum
from typing import Final


class GroupState(StrEnum):
    EMPTY = "Empty"  # no members; offsets may remain
    PREPARING_REBALANCE = "PreparingRebalance"  # waits for its members to join
    COMPLETING_REBALANCE = "CompletingRebalance"  # waits for the leader's assignment
    STABLE = "Stable"  # every member can have its assignment
    DEAD = "Dead"  # removed, or moved to another coordinator


EMPTY, PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE, DEAD = GroupState

VALID_PREVIOUS: Final = {
    EMPTY: {PREPARING_REBALANCE},
    PREPARING_REBALANCE: {EMPTY, COMPLETING_REBALANCE, STABLE},
    COMPLETING_REBALANCE: {PREPARING_REBALANCE},
    STABLE: {COMPLETING_REBALANCE},
    DEAD: {EMPTY, PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE, DEAD},
}


def can_move(state: GroupState, target: GroupState) -> bool:
    """Whether a group may change from `state` to `target`."""
    return state in VALID_PREVIOUS[target]
