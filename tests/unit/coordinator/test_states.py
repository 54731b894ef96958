"""The states of a group."""

from itertools import product

from klamm.coordinator.states import GroupState, can_move

KAFKA_MOVES = """
    Empty>PreparingRebalance  Stable>PreparingRebalance  CompletingRebalance>PreparingRebalance
    PreparingRebalance>CompletingRebalance  CompletingRebalance>Stable  PreparingRebalance>Empty
    Empty>Dead  PreparingRebalance>Dead  CompletingRebalance>Dead  Stable>Dead  Dead>Dead
"""


def test_the_allowed_group_state_transitions_equal_kafkas() -> None:
    moves = {f"{a}>{b}" for a, b in product(GroupState, repeat=2) if can_move(a, b)}

    assert moves == set(KAFKA_MOVES.split())
