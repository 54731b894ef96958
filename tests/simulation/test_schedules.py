"""Whole simulated clusters: seeds that once failed, seeds that never did, and equal digests for one seed."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from klamm.controller import whole_topics
from klamm.controller.handlers import failover
from klamm.sim.campaign import CONTROLLER, TIERS
from klamm.sim.cluster import run_schedule, run_script
from klamm.sim.scripts.options import Options
from klamm.sim.scripts.script import ScheduledAction, Script, decode_script

ROOT = Path(__file__).parents[2]
REGRESSIONS = tomllib.loads((Path(__file__).parent / "regressions.toml").read_text())["regression"]
OF_CONTROLLERS = [r for r in REGRESSIONS if r.get("tier", CONTROLLER.name) == CONTROLLER.name]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Where an entry has a script, its seed means something else by now: such seeds run with --all-regressions."""
    if "regression" in metafunc.fixturenames:
        runs_all = metafunc.config.getoption("--all-regressions")
        metafunc.parametrize("regression", [r["seed"] for r in OF_CONTROLLERS if runs_all or "script" not in r])


def test_each_simulation_seed_that_once_broke_an_invariant_now_passes(regression: int) -> None:
    assert run_schedule(regression).violation is None


def test_every_unit_test_named_in_the_list_of_simulation_regressions_exists() -> None:
    named = {r["test"] for r in REGRESSIONS if "test" in r}
    missing = set()
    for name in named:
        path, _, function = name.partition("::")
        text = (ROOT / path).read_text() if (ROOT / path).is_file() else ""
        if re.search(rf"^(async )?def {function}\(", text, re.MULTILINE) is None:
            missing.add(name)

    assert len(named) > 30
    assert missing == set()


@pytest.mark.parametrize("entry", [r for r in REGRESSIONS if "script" in r], ids=lambda r: str(r["seed"]))
def test_each_shrunk_script_of_a_simulation_regression_now_passes(entry: dict[str, Any]) -> None:
    tier = TIERS[entry.get("tier", CONTROLLER.name)]
    assert tier.run_script(decode_script(entry["script"], entry["seed"], tier.options)).violation is None


@pytest.mark.parametrize("seed", range(1, 7))
def test_the_simulated_schedule_of_each_seed_breaks_no_invariant(seed: int) -> None:
    """`make prove ONLY=sim` goes on from the first seed for half an hour."""
    outcome = run_schedule(seed)

    assert outcome.violation is None
    assert outcome.elections >= 1
    assert outcome.checks > 100


@pytest.mark.parametrize("seed", [3, 7, 13, 18])
def test_schedules_whose_controllers_send_topics_as_a_whole_break_no_invariant(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "MAX_SENT_BY_PARTITION", 0)
    monkeypatch.setattr(whole_topics, "REQUEST_PARTITIONS", 5)

    assert run_schedule(seed).violation is None


def test_the_simulated_cluster_recovers_while_one_node_is_cut_off_from_zookeeper() -> None:
    outcome = run_schedule(7100006, with_story=True)

    assert any("stays cut off from ZooKeeper" in line for line in outcome.action_log)
    assert outcome.violation is None


@pytest.mark.parametrize("seed", [3, 8])
def test_a_replayed_simulation_script_repeats_the_recorded_run(seed: int) -> None:
    recorded = run_schedule(seed)
    assert any(h.facts for h in recorded.script.actions)

    again = run_script(recorded.script)

    assert again.script == recorded.script
    assert again.digest == recorded.digest
    assert again.story == recorded.story


def digests(hash_seed: str, seeds: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "klamm.sim", "--digests", str(seeds)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_simulation_is_identical_in_every_process_for_the_same_seed() -> None:
    """`make determinism` does the same with a thousand."""
    both = [digests("1", 4), digests("77", 4)]
    one, other = [process.communicate(timeout=120)[0] for process in both]

    assert one == other
    assert one.count("\n") == 4


def test_an_invalid_feature_znode_is_written_in_the_simulation() -> None:
    """It has no parent but the root."""
    write = ScheduledAction(20.0, "write malformed znode", {"what": "features, no JSON"})

    outcome = run_script(Script(Options.plain(), [write], 30.0), with_story=True)

    assert outcome.violation is None
    assert not any("WrongPath" in line for line in outcome.action_log)
