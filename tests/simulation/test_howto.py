"""The examples of docs/simulation-howto.md, run as a newcomer would run them."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.scenarios import FIRST_FAULT_S, Scenario
from tests.scenarios.transcript import transcript

from klamm.sim import cluster
from klamm.sim.actions import ClusterUnderTest, Draw, call_after, restart
from klamm.sim.cluster import Outcome, run_script
from klamm.sim.faults import aim
from klamm.sim.faults import table as faults
from klamm.sim.history.history import History
from klamm.sim.history.trace import TopicWritten, TopicZnode
from klamm.sim.invariants import table as invariants
from klamm.sim.scripts import operations
from klamm.sim.scripts.operations import BEGINS_AT_S
from klamm.sim.scripts.options import Options
from klamm.sim.scripts.script import ScheduledAction, Script
from klamm.sim.steps import run_step, runs_of, sampled

PAGE = (Path(__file__).parents[2] / "docs" / "simulation-howto.md").read_text()


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """All that the page defines."""
    names: dict[str, Any] = {
        "History": History, "TopicWritten": TopicWritten, "invariants": invariants,
        "ClusterUnderTest": ClusterUnderTest, "Draw": Draw,
        "call_after": call_after, "restart": restart, "draw_node": aim.draw_node,
        "FaultRow": faults.FaultRow, "ScheduledAction": ScheduledAction,
        "BEGINS_AT_S": BEGINS_AT_S, "Scenario": Scenario, "FIRST_FAULT_S": FIRST_FAULT_S,
    }  # fmt: skip
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(code, names)
    return names


def run(what: str) -> Outcome:
    topic = ScheduledAction(5.0, "create topic", {"topic": "t1", "replicas": [[1, 2], [3]]})
    return run_script(Script(Options.plain(3), [topic, ScheduledAction(10.0, what)], heal_at_s=20.0), with_story=True)


def test_the_example_invariant_of_the_documentation_finds_its_violation(
    page: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = page["INVARIANT"]
    two, one = (TopicZnode(None, dict.fromkeys(range(count)), 1) for count in (2, 1))  # type: ignore[arg-type]
    assert row.check(History(), TopicWritten("t", two, one, 1)) == "t lost partitions [1]"
    assert row.check(History(), TopicWritten("t", one, two, 1)) is None
    pending = History()
    pending.topics.deletion_requests["t"] = 7
    assert row.check(pending, TopicWritten("t", two, one, 1)) is None

    asked: list[object] = []

    def check(history: History, event: TopicWritten) -> str | None:
        asked.append(event)
        found: str | None = row.check(history, event)
        return found

    seen = (row.name, check)
    monkeypatch.setattr(cluster, "_INVARIANTS_BY_EVENT", {TopicWritten: (seen,)})
    assert run("grow topic").violation is None
    assert asked


def test_the_example_fault_of_the_documentation_takes_effect_in_the_simulation(
    page: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = page["ROW"]
    monkeypatch.setitem(faults.FAULTS, row.name, row.apply)

    outcome = run(row.name)

    assert outcome.violation is None
    [number] = {line.split("node ")[1].split()[0] for line in outcome.story if row.sign in line}
    assert sum(f"node {number} starts" in line for line in outcome.story) == 3


def test_the_example_workload_action_of_the_documentation_runs_without_violation(
    page: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {**cluster.SimulatedCluster.verbs, "shorten retention": page["shorten_retention"]}
    monkeypatch.setattr(cluster.SimulatedCluster, "verbs", known)

    outcome = run("shorten retention")

    assert outcome.violation is None
    assert any("the retention of t1 is" in line for line in outcome.action_log)
    assert any("set /config/topics/t1" in line for line in outcome.story)


def test_the_example_operation_of_the_documentation_runs_without_violation(
    page: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(operations.OPERATIONS, "new", page["OPERATION"])
    runs = list(runs_of("new"))

    assert len(runs) > 100
    assert {run_step(run).violation for run in sampled(runs, 5 / len(runs))} == {None}


def test_the_example_scenario_of_the_documentation_prints_its_transcript(page: dict[str, Any]) -> None:
    text = transcript("new", page["SCENARIO"])

    assert "the session of node 2 is ended" in text
    assert "$ klamm explain t1-1" in text
