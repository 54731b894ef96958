"""Rare states: each has a name of its own, and a long run that misses one is blind."""

from klamm.controller.states import ControllerState
from klamm.sim.campaign import Report, Tally
from klamm.sim.coverage_goals import FAILOVER_STEPS, GOALS, unreached_goals


def test_names_of_the_simulations_coverage_goals_are_unique() -> None:
    assert len(set(GOALS)) == len(GOALS)


def test_the_simulations_coverage_goals_include_every_await_of_a_controller_failover() -> None:
    assert FAILOVER_STEPS[0] == "set_up_features"
    assert {"_read_context", "bring_online", "resume_reassignments"} <= set(FAILOVER_STEPS)


def test_the_simulations_coverage_goals_include_every_controller_event_state() -> None:
    states = [goal for goal in GOALS if goal.endswith("while other events wait")]

    assert len(states) == len(ControllerState) - 2


def test_a_coverage_goal_reached_once_is_not_reported_as_unreached() -> None:
    tally = Tally()
    for goal in GOALS[:3]:
        tally.add(Report(1, None, "", 1.0, 1, 1, 1, 1_000, {goal: 1}, 0.1))

    assert unreached_goals(tally.reached) == list(GOALS[3:])
