"""Shrinking of scripts and printing of the result; simple rules stand in for `run_script`."""

import tomllib
from collections.abc import Callable
from dataclasses import replace

import pytest

from klamm.sim.cluster import Outcome
from klamm.sim.schedules import Policy
from klamm.sim.scripts import shrink
from klamm.sim.scripts.options import Options
from klamm.sim.scripts.script import ScheduledAction, Script, decode_script
from klamm.sim.scripts.shrink import Shrinker, as_regression, as_test, violated_invariant

WIDE = replace(Options.plain(7, nodes=5), servers=3, policy=Policy.PRIORITIES)


def outcome(script: Script, violation: str | None) -> Outcome:
    """A run's outcome with this script and violation."""
    return Outcome(script, violation, "d1", 0, 0, 0, 0, 0.0, {}, [], [], b"")


def shrunk(monkeypatch: pytest.MonkeyPatch, script: Script, rule: Callable[[Script], str | None]) -> Outcome:
    """The shrunk outcome when `rule` decides which scripts fail."""
    monkeypatch.setattr(shrink, "run_script", lambda s: outcome(s, rule(s)))
    return Shrinker(outcome(script, rule(script))).shrink()


def kill(at_s: float, node: int, back_s: float = 3.25) -> ScheduledAction:
    """A kill action."""
    return ScheduledAction(at_s, "kill", {"node": node, "back_s": back_s})


LONG = Script(WIDE, [kill(20.0 + n, n % 5 + 1) for n in range(40)], heal_at_s=95.0)


def test_the_shrinker_removes_every_scheduled_action_that_the_violation_does_not_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rule(script: Script) -> str | None:
        killed = [h.facts["node"] for h in script.actions]
        return "bad: 3 after 2" if 2 in killed and 3 in killed[killed.index(2) :] else None

    best = shrunk(monkeypatch, LONG, rule).script

    assert [h.facts for h in best.actions] == [{"node": 2, "back_s": 0.0}, {"node": 3, "back_s": 0.0}]
    assert best.actions[-1].at_s < 6
    assert best.heal_at_s < 7
    assert best.options == Options.plain(7, nodes=1)


def test_the_shrinker_keeps_the_scheduled_actions_that_the_violation_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Order, servers, a late moment and a long time, all needed."""

    def rule(script: Script) -> str | None:
        needed = script.options.policy is Policy.PRIORITIES and script.options.servers == 3
        return "bad" if needed and any(h.at_s > 30 and h.facts["back_s"] >= 2 for h in script.actions) else None

    best = shrunk(monkeypatch, LONG, rule).script

    assert len(best.actions) == 1
    assert (best.options.policy, best.options.servers) == (Policy.PRIORITIES, 3)


def test_the_shrinker_rejects_a_shorter_script_that_breaks_another_invariant(monkeypatch: pytest.MonkeyPatch) -> None:
    best = shrunk(monkeypatch, LONG, lambda s: "bad: all" if len(s.actions) == 40 else "worse: some")

    assert best.violation == "bad: all"
    assert len(best.script.actions) == 40


def test_the_shrinker_stops_when_its_time_limit_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shrink, "run_script", lambda s: outcome(s, "bad"))
    left = iter([True] * 12)

    shrinker = Shrinker(outcome(LONG, "bad"), lambda: next(left, False))

    assert shrinker.shrink().violation == "bad"
    assert shrinker.runs <= 12


def test_the_broken_invariant_is_parsed_from_the_violation_text_before_the_colon() -> None:
    assert violated_invariant("fenced_writes: t1-0 written by") == "fenced_writes"
    assert violated_invariant("AssertionError([{'message': 'x: y'}])") == "AssertionError"
    assert violated_invariant(None) == ""


def test_a_test_printed_by_the_shrinker_contains_the_same_script() -> None:
    script = Script(
        replace(Options.plain(7, nodes=4), policy=Policy.HOSTS, servers=3),
        [
            ScheduledAction(5.0, "create topic", {"topic": 't"1', "replicas": [[1, 2]]}),
            kill(6.5, 1, 0.0),
            ScheduledAction(7.0, "x"),
        ],
        heal_at_s=9.0,
    )
    ran: list[Script] = []
    source = as_test(outcome(script, "one_leader: two"), 7).replace("run_script(", "note(")

    def note(script: Script) -> Outcome:
        ran.append(script)
        return outcome(script, None)

    code: dict[str, object] = {"note": note}

    exec(source, code)
    code["test_one_leader_of_seed_7"]()  # type: ignore[operator]

    assert [(s.options, [tuple(h) for h in s.actions], s.heal_at_s) for s in ran] == [
        (script.options, [tuple(h) for h in script.actions], 9.0)
    ]


def test_a_regression_entry_printed_by_the_shrinker_decodes_to_the_same_script() -> None:
    script = Script(
        WIDE, [kill(6.5, 1, 0.0), ScheduledAction(7.0, "cut link", {"topic": "t1", "loss": None})], heal_at_s=9.0
    )

    [entry] = tomllib.loads(as_regression(outcome(script, 'rule: said "no"'), 7, "cluster"))["regression"]

    assert (entry["seed"], entry["invariant"], entry["why"]) == (7, "rule", 'rule: said "no"')
    assert entry["tier"] == "cluster"
    assert decode_script(entry["script"], 7) == script
