"""Clusters of whole nodes: seeds that break nothing, one digest for one seed, what is acknowledged survives."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from klamm.sim.cluster import Outcome
from klamm.sim.cluster_tier.options import Options, write_script
from klamm.sim.cluster_tier.run import run_schedule, run_script
from klamm.sim.scripts.script import ScheduledAction, Script, decode_script, encode_script

TOPIC = {
    "topic": "t1",
    "replication": 3,
    "replicas": [[1, 2, 3], [2, 3, 1]],
    "min_isr": 2,
    "is_synced": False,
    "has_retention": False,
}


def script(*actions: ScheduledAction, heal_at_s: float = 25.0) -> Script:
    """The actions on a plain cluster of three nodes with one topic."""
    return Script(Options.plain(1), [ScheduledAction(2.0, "create topic", TOPIC), *actions], heal_at_s)


SEED = 6


@pytest.fixture(scope="module")
def recorded() -> Outcome:
    """One schedule, played once for all tests."""
    return run_schedule(SEED, with_story=True)


def assert_unbroken(outcome: Outcome) -> None:
    assert outcome.violation is None
    assert outcome.effects > 0
    assert outcome.checks > 100


@pytest.mark.parametrize("seed", [41, 51])
def test_a_simulated_cluster_of_complete_nodes_breaks_no_invariant(seed: int) -> None:
    assert_unbroken(run_schedule(seed))


def test_a_replayed_simulation_script_of_complete_nodes_repeats_the_recorded_run(recorded: Outcome) -> None:
    assert_unbroken(recorded)

    again = run_script(recorded.script, with_story=True)

    assert again.story == recorded.story
    assert again.digest == recorded.digest
    assert decode_script(encode_script(recorded.script), SEED, Options) == recorded.script


def test_a_simulation_of_complete_nodes_is_identical_in_every_process_for_the_same_seed(recorded: Outcome) -> None:
    """`make determinism TIER=cluster` does the same with more."""
    command = [sys.executable, "-m", "klamm.sim", "--tier", "cluster", "--digests", "1", "--first", str(SEED)]
    hash_seed = "1" if os.environ.get("PYTHONHASHSEED") == "77" else "77"  # another than this process has
    variables = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    printed = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120, check=True).stdout

    assert printed == f"{SEED} {recorded.digest}\n"


def test_a_killed_leader_in_the_simulation_loses_no_acknowledged_record() -> None:
    kill = ScheduledAction(10.0, "kill", {"role": "any node", "node": 1, "back_s": 5.0})

    outcome = run_script(script(kill), with_story=True)

    assert outcome.violation is None
    assert any("t1-0: LeaderAndIsr(leader=2, leader_epoch=2" in line for line in outcome.story)


def test_followers_serve_consumers_in_the_simulation() -> None:
    readers = replace(Options.plain(1), follower_readers=1)

    outcome = run_script(script()._replace(options=readers))

    assert outcome.violation is None
    assert outcome.reached["records read from followers"] > 0


def test_nodes_that_compact_the_same_partition_at_the_same_time_do_not_mix_their_cleanings() -> None:
    """In this schedule two nodes start together and compact the same partition; all nodes share one process."""
    outcome = run_script(write_script(replace(Options.of(104), keyed_producers=1)))

    assert outcome.violation is None
    assert outcome.reached["records removed by compaction"] > 0


def test_deleted_keys_stay_deleted_in_the_simulation() -> None:
    """Their tombstones are gone in the end: one invariant compares them with the clock."""
    options = replace(Options.plain(1), deleting_producers=1, delete_retention_ms=1_000, cleaner_backoff_ms=500)

    outcome = run_script(Script(options, [], 25.0))

    assert outcome.violation is None
    assert outcome.reached["reads of the compacted topic"] > 10
    assert outcome.reached["records removed by compaction"] > 0


@pytest.mark.parametrize("node", [1, 2])
def test_a_replica_moves_to_another_log_directory_in_the_simulation(node: int) -> None:
    moves = [
        ScheduledAction(10.0 + n, "move log", {"replica": ["t1", 0, node], "directory": directory})
        for n, directory in enumerate(("/data1", "/data2"))
    ]
    kill = ScheduledAction(11.01, "kill", {"role": "any node", "node": node, "back_s": 1.0})

    outcome = run_script(script(*moves, kill)._replace(options=replace(Options.plain(1), directories=2)))

    assert outcome.violation is None
    assert outcome.reached["logs moved to another directory"] > 0


def test_records_that_an_operator_deletes_in_the_simulation_are_not_missed() -> None:
    second = ScheduledAction(2.1, "create topic", {**TOPIC, "topic": "t2"})
    small = ScheduledAction(3.0, "change segment size", {"topic": "t2", "bytes": "1000"})
    deletion = ScheduledAction(15.0, "delete records", {"partition": ["t2", 0], "part": 0.8})

    outcome = run_script(script(second, small, deletion), with_story=True)

    assert outcome.violation is None
    assert any("the records of t2-0 before" in line for line in outcome.story)
    assert not any("are not deleted" in line for line in outcome.story)


def test_throttles_and_retention_in_the_simulation_end_with_complete_replicas() -> None:
    second = ScheduledAction(2.1, "create topic", {**TOPIC, "topic": "t2"})
    throttle = ScheduledAction(5.0, "throttle", {"topic": "t1", "bytes_per_s": 500})
    retention = ScheduledAction(6.0, "change retention", {"topic": "t2", "retention": [3000, -1]})
    move = ScheduledAction(10.0, "reassign", {"partition": ["t1", 0], "target": [2, 3, 4], "cancels": False})

    outcome = run_script(script(second, throttle, retention, move)._replace(options=Options.plain(1, nodes=4)), True)

    assert outcome.violation is None
    assert not any("are not changed" in line for line in outcome.story)


def test_unsynced_records_lost_in_a_power_loss_of_all_isr_members_are_no_violation() -> None:
    facts = {"nodes": [1, 2, 3], "back_s": 1.0, "how": "all"}

    outcome = run_script(script(ScheduledAction(10.0, "power loss of several", facts)))

    assert outcome.violation is None
    assert sum(outcome.reached.values()) > 0


def test_a_power_loss_of_all_nodes_loses_no_record_that_was_fsynced_before_acknowledgement() -> None:
    synced = ScheduledAction(2.0, "create topic", {**TOPIC, "is_synced": True})
    loss = ScheduledAction(10.0, "power loss of several", {"nodes": [1, 2, 3], "back_s": 1.0, "how": "all"})

    outcome = run_script(Script(Options.plain(1), [synced, loss], 25.0))

    assert outcome.violation is None
    assert sum(outcome.reached.values()) == 0
