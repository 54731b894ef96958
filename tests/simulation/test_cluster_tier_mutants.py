"""Guards of replication, log and coordinators that are taken out: clusters of whole nodes miss them soon."""

from dataclasses import replace
from functools import cache

import pytest
from tests.simulation.injected_bugs import (
    copies_and_limits,
    groups,
    logs,
    lookups,
    records,
    replicas_and_groups,
    replication_and_log,
    transactions,
    waiting,
)
from tests.simulation.injected_bugs.mutant import Mutant, check_fits

from klamm.sim.cluster_tier.invariants.table import AFTER_REQUESTS, AFTER_STOP, ALWAYS, AT_REST, OF_ZOOKEEPER
from klamm.sim.cluster_tier.options import Options, write_script
from klamm.sim.cluster_tier.run import run_script
from klamm.sim.scripts.script import ScheduledAction, Script, decode_script, encode_script
from klamm.sim.scripts.shrink import violated_invariant

MUTANTS = (
    *replication_and_log.MUTANTS,
    *logs.MUTANTS,
    *records.MUTANTS,
    *groups.MUTANTS,
    *transactions.MUTANTS,
    *replicas_and_groups.MUTANTS,
    *waiting.MUTANTS,
    *lookups.MUTANTS,
    *copies_and_limits.MUTANTS,
)
NUMBERS = {row.name: row.number for row in (*OF_ZOOKEEPER, *ALWAYS, *AT_REST, *AFTER_REQUESTS, *AFTER_STOP)}
SOON = {
    "g": 102,
    "43": 101,
    "44": 116,
    "46a": 103,
    "48": 100,
    "50": 100,
    "51": 14,
    "56": 107,
    "57": 101,
    "58": 101,
    "59": 100,
    "55": 1,
    "t4": 1,
    "t6": 203,
    "g1": 4,
    "g2": 7,
    "g3": 2,
}
"""Mutants, and a seed that misses the guard; it is clean otherwise."""


def earlier_schedule(seed: int) -> Script:
    """The schedule of a seed without what was added later: the seeds above keep theirs."""
    options = replace(Options.of(seed), added_verbs=(), deleting_producers=0, fetch_bytes=1 << 20)
    options = replace(options, followers_read_committed=False, compresses=False, deletes_offsets=False)
    options = replace(options, copies_to_compacted=False, static_members=False, has_cold_reads=False, spared=())
    options = replace(options, reads_offsets=False, has_metrics=False)
    options = replace(options, index_interval_bytes=4_096, fetch_sessions=1_000)
    return write_script(replace(options, cleaner_backoff_ms=15_000))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Play a written script with one seed; `make prove ONLY=regressions` (--all-regressions) plays it with three."""
    if "script_seed" in metafunc.fixturenames:
        metafunc.parametrize("script_seed", [1, 2, 3] if metafunc.config.getoption("--all-regressions") else [1])


@pytest.mark.parametrize(("number", "seed"), SOON.items())
def test_the_simulation_of_complete_nodes_catches_a_mutant_by_its_expected_invariant(number: str, seed: int) -> None:
    [mutant] = [m for m in MUTANTS if m.number == number]
    with pytest.MonkeyPatch.context() as patch:
        mutant.apply(patch)
        violation = run_script(earlier_schedule(seed)).violation

    assert violation is not None
    assert NUMBERS[violated_invariant(violation)] in mutant.expected


LEADERSHIP_RETURNS = """
{"nodes": 3, "session_timeout_ms": 1500, "lag_ms": 6000, "producers": 3, "heal_at_s": 18.0}
[2.0, "create topic", {"topic": "t1", "replication": 3, "replicas": [[2, 3, 1]], "min_isr": 1, "is_synced": false, "has_retention": false}]
[8.0, "cut link", {"role": "any node", "node": 2, "other": "node-1", "way": "to", "for_s": 4.0}]
[10.0, "pause", {"role": "any node", "node": 3, "for_s": 7.0}]
[10.3, "kill", {"role": "any node", "node": 2, "back_s": 3.0}]
[15.0, "elect preferred", {"topic": "t1"}]
"""  # noqa: E501
"""Node 3 copies records of leader 2 that node 1 lacks. It is paused while node 1 and then node 2 lead."""


def test_the_simulation_catches_a_follower_that_compares_no_epochs_when_leadership_returns(script_seed: int) -> None:
    """Mutant 47 (KAFKA-7164): schedules from seeds alone rarely have these steps in this order."""
    [mutant] = [m for m in MUTANTS if m.number == "47"]
    script = decode_script(LEADERSHIP_RETURNS, script_seed, Options)
    with pytest.MonkeyPatch.context() as patch:
        mutant.apply(patch)
        violation = run_script(script).violation

    assert run_script(script).violation is None
    assert violation is not None
    assert NUMBERS[violated_invariant(violation)] in mutant.expected


OLD_LEADER_IS_READ = """
{"nodes": 3, "session_timeout_ms": 1500, "lag_ms": 6000, "producers": 3, "follower_readers": 3, "heal_at_s": 18.0}
[2.0, "create topic", {"topic": "t1", "replication": 3, "replicas": [[1, 2, 3], [1, 2, 3], [1, 2, 3]], "min_isr": 1, "is_synced": false, "has_retention": false}]
[2.1, "create topic", {"topic": "t2", "replication": 3, "replicas": [[2, 1, 3]], "min_isr": 1, "is_synced": true, "has_retention": false}]
[8.0, "cut link", {"role": "any node", "node": 1, "other": "zk-1", "way": "both", "for_s": 4.0}]
[8.0, "cut link", {"role": "any node", "node": 1, "other": "node-2", "way": "both", "for_s": 4.0}]
[8.0, "cut link", {"role": "any node", "node": 1, "other": "node-3", "way": "both", "for_s": 4.0}]
[11.0, "slow disk", {"role": "any node", "node": 1, "takes_s": 1.0, "for_s": 7.0}]
"""  # noqa: E501
"""Node 1 leads t1 and is cut off with records that are never committed. It comes back as a follower: its first fetch
brings the leader's high watermark with the divergence, and records of t2 that it syncs before it goes on."""


def test_the_simulation_catches_a_follower_that_exposes_records_that_it_is_about_to_truncate(script_seed: int) -> None:
    """Mutant 52 (KAFKA-14704): consumers that read from the follower get records that were never committed."""
    [mutant] = [m for m in MUTANTS if m.number == "52"]
    script = decode_script(OLD_LEADER_IS_READ, script_seed, Options)
    with pytest.MonkeyPatch.context() as patch:
        mutant.apply(patch)
        violation = run_script(script).violation

    assert run_script(script).violation is None
    assert violation is not None
    assert NUMBERS[violated_invariant(violation)] in mutant.expected


COORDINATORS_DIE = """
{"nodes": 3, "session_timeout_ms": 1500, "lag_ms": 9000, "producers": 1, "follower_readers": 1, "followers_read_committed": true, "committers": 0, "copiers": 2, "heal_at_s": 20.41}
[2.0, "create topic", {"topic": "t1", "replication": 3, "replicas": [[3, 1, 2]], "min_isr": 1, "is_synced": false, "has_retention": false}]
[2.1, "create topic", {"topic": "t2", "replication": 2, "replicas": [[1, 3]], "min_isr": 1, "is_synced": false, "has_retention": false}]
[8.41, "cut link", {"role": "any node", "node": 2, "other": "node-3", "way": "both", "for_s": 7.0}]
[8.41, "cut link", {"role": "any node", "node": 2, "other": "node-1", "way": "both", "for_s": 7.0}]
[9.89, "kill", {"role": "any node", "node": 3, "back_s": 4.0}]
[12.79, "kill", {"role": "any node", "node": 1, "back_s": 4.0}]
"""  # noqa: E501
"""Node 2 is in sync and cut off from both coordinators before it: it lacks what they wrote, and coordinates next."""


DECISION_IS_NOT_REPLICATED = COORDINATORS_DIE.replace("8.41", "8.3965")
"""The same, but a decision to commit is the first that node 2 lacks."""


@pytest.mark.parametrize(
    ("number", "text"), [("t10", COORDINATORS_DIE), ("t11", DECISION_IS_NOT_REPLICATED)], ids=["partitions", "decision"]
)
def test_the_simulation_catches_a_coordinator_that_trusts_what_it_loaded_and_alone_has(number: str, text: str) -> None:
    """The coordinator after it does not know of a transaction's partition, or decides the other way."""
    [mutant] = [m for m in MUTANTS if m.number == number]
    script = decode_script(text, 3, Options)
    with pytest.MonkeyPatch.context() as patch:
        mutant.apply(patch)
        violation = run_script(script).violation

    assert run_script(script).violation is None
    assert violation is not None
    assert NUMBERS[violated_invariant(violation)] in mutant.expected


def test_the_simulation_catches_a_cleaner_that_removes_the_newest_value_of_a_key() -> None:
    [mutant] = [m for m in MUTANTS if m.number == "cl"]
    script = Script(replace(Options.plain(1), keyed_producers=1), [], 25.0)
    clean = run_script(script)
    with pytest.MonkeyPatch.context() as patch:
        mutant.apply(patch)
        violation = run_script(script).violation

    assert clean.violation is None
    assert clean.reached["records removed by compaction"] > 0
    assert violation is not None
    assert violated_invariant(violation) == "newest_values_survive_compaction"


PLAIN = Options.plain(1)
DELETING = replace(PLAIN, deleting_producers=1, delete_retention_ms=1_000, cleaner_backoff_ms=500)
FOUR_NODES = Options.plain(1, nodes=4)
COPYING = replace(PLAIN, copiers=1, follower_readers=2, followers_read_committed=True)
TWO_DIRECTORIES = replace(PLAIN, directories=2, fetch_bytes=500)
REPLICAS = {"replication": 3, "replicas": [[1, 2, 3]], "min_isr": 2, "is_synced": False, "has_retention": False}
TOPICS = [ScheduledAction(2.0 + n / 10, "create topic", {"topic": f"t{n + 1}", **REPLICAS}) for n in range(2)]
SYNCED_TOPICS = [action._replace(facts={**action.facts, "is_synced": True}) for action in TOPICS]
POWER_LOSS = ScheduledAction(6.0, "power loss of several", {"nodes": [1, 2, 3], "back_s": 1.0, "how": "all"})
SMALL_SEGMENTS = [
    ScheduledAction(3.0, "change segment size", {"topic": topic, "bytes": "1000"}) for topic in ("t1", "t2")
]
SLOWLY = ScheduledAction(8.0, "throttle", {"topic": "t1", "bytes_per_s": 2000})
TO_NODE_4 = ScheduledAction(10.0, "reassign", {"partition": ["t1", 0], "target": [2, 3, 4], "cancels": False})
DELETION = ScheduledAction(15.0, "delete records", {"partition": ["t2", 0], "part": 0.6})


def move(at_s: float, topic: str, node: int, directory: str) -> ScheduledAction:
    return ScheduledAction(at_s, "move log", {"replica": [topic, 0, node], "directory": directory})


def kill(at_s: float, back_s: float) -> ScheduledAction:
    return ScheduledAction(at_s, "kill", {"role": "any node", "node": 1, "back_s": back_s})


CUT_OFF = [
    ScheduledAction(12.0, "cut link", {"role": "any node", "node": 2, "other": other, "way": "both", "for_s": 12.0})
    for other in ("node-1", "node-3", "zk-1")
]
"""Once node 1 was killed, node 2 coordinates the groups."""
MOVES = [move(10.0 + n, "t1", 1, f"/data{1 + n % 2}") for n in range(8)]
BACK_AND_FORTH = [move(12.0 + n / 10, "t1", 1, f"/data{2 - n % 2}") for n in range(3)]
COMPACTED_MOVES = [move(10.0 + n, "compacted", node, f"/data{1 + n}") for n in range(2) for node in (1, 2, 3)]
WRITTEN = {
    "tb1": Script(replace(DELETING, delete_retention_ms=60_000), [], 8.0),
    "tb2": Script(DELETING, [], 8.0),
    "tb3": Script(DELETING, [], 8.0),
    "cl2": Script(replace(DELETING, compaction="min lag"), [], 8.0),
    "mv1": Script(replace(PLAIN, directories=2, producers=3, device_s=0.02), [*TOPICS, *MOVES], 18.0),
    "mv2": Script(TWO_DIRECTORIES, [*TOPICS, SLOWLY, *BACK_AND_FORTH, kill(13.0, 1.0)], 15.0),
    "mv3": Script(replace(DELETING, directories=2, fetch_bytes=500), [*TOPICS, SLOWLY, *COMPACTED_MOVES], 14.0),
    "dr1": Script(PLAIN, [*TOPICS, *SMALL_SEGMENTS, DELETION, kill(16.0, 9.0)], 18.0),
    "dr2": Script(PLAIN, [*TOPICS, *SMALL_SEGMENTS, DELETION], 17.0),
    "lo1": Script(PLAIN, [*TOPICS, *SMALL_SEGMENTS], 8.0),
    "w1": Script(FOUR_NODES, [*TOPICS, TO_NODE_4], 12.0),
    "w2": Script(PLAIN, [*TOPICS, ScheduledAction(10.0, "delete topic", {"topic": "t2", "again": True})], 12.0),
    "w3": Script(COPYING, TOPICS, 8.0),
    "w4": Script(FOUR_NODES, [*TOPICS, ScheduledAction(10.0, "expire", {"role": "any node", "node": 4})], 12.0),
    "w5": Script(replace(PLAIN, seed=3, committers=2, deletes_offsets=True), TOPICS, 15.0),
    "w6": Script(replace(PLAIN, members=2, static_members=True), TOPICS, 12.0),
    "g4": Script(replace(PLAIN, committers=2, reads_offsets=True), [*TOPICS, kill(7.0, 1.0), *CUT_OFF], 18.0),
    "t1": Script(COPYING, [*SYNCED_TOPICS, POWER_LOSS], 8.0),
    "t9": Script(COPYING, TOPICS, 25.0),
    "w8": Script(replace(DELETING, copiers=1, copies_to_compacted=True), TOPICS, 5.0),
    "lk1": Script(PLAIN, TOPICS, 8.0),
    "lk2": Script(PLAIN, TOPICS, 8.0),
    "lk3": Script(PLAIN, TOPICS, 8.0),
    "w7": Script(replace(DELETING, compresses=True), [], 8.0),
    "x1": Script(PLAIN, TOPICS, 8.0),
    "x2": Script(PLAIN, TOPICS, 8.0),
    "x3": Script(PLAIN, TOPICS, 8.0),
    "x4": Script(TWO_DIRECTORIES, TOPICS, 8.0),
    "x5": Script(replace(PLAIN, fetch_sessions=4), TOPICS, 8.0),
    "x6": Script(PLAIN, TOPICS, 8.0),
    "x7": Script(PLAIN, TOPICS, 8.0),
    "x8": Script(PLAIN, TOPICS, 8.0),
    "x9": Script(PLAIN, [*TOPICS, *SMALL_SEGMENTS], 8.0),
    "x10": Script(PLAIN, SYNCED_TOPICS, 8.0),
    "y1": Script(replace(PLAIN, seed=0), TOPICS, 8.0),
    "y2": Script(replace(PLAIN, seed=3), TOPICS, 8.0),
    "y3": Script(replace(TWO_DIRECTORIES, seed=3), TOPICS, 8.0),
    "y4": Script(PLAIN, TOPICS, 8.0),
    "y5": Script(PLAIN, TOPICS, 8.0),
    "y6": Script(PLAIN, TOPICS, 8.0),
    "y7": Script(PLAIN, TOPICS, 8.0),
    "y8": Script(PLAIN, TOPICS, 8.0),
    "y9": Script(replace(PLAIN, fetchers=2), TOPICS, 8.0),
    "y10": Script(replace(PLAIN, has_metrics=True), TOPICS, 8.0),
    "y11": Script(PLAIN, TOPICS, 8.0),
    "y12": Script(replace(PLAIN, seed=0), TOPICS, 8.0),
    "y13": Script(PLAIN, TOPICS, 8.0),
    "x11": Script(replace(TWO_DIRECTORIES, seed=3), [*SYNCED_TOPICS, *MOVES], 18.0),
}
"""A schedule that misses the guard of each mutant, and breaks nothing without the mutant.

Its faults end soon after the guard is missed: what follows costs time and shows nothing more.
"""
WITH_CONTROL = tuple(WRITTEN)[::3]
"""Their schedules are run without the mutant, too; all with `make prove ONLY=regressions` (--all-regressions)."""


@cache
def violation_without_mutants(script: str, seed: int) -> str | None:
    """Mutants with the same schedule share this run of it."""
    return run_script(decode_script(script, seed, Options)).violation


@pytest.mark.parametrize(("number", "script"), WRITTEN.items(), ids=WRITTEN)
def test_a_written_schedule_catches_a_mutant_by_its_expected_invariant(
    number: str, script: Script, request: pytest.FixtureRequest
) -> None:
    [mutant] = [m for m in MUTANTS if m.number == number]
    with pytest.MonkeyPatch.context() as patch:
        mutant.apply(patch)
        violation = run_script(script).violation

    if number in WITH_CONTROL or request.config.getoption("--all-regressions"):
        assert violation_without_mutants(encode_script(script), script.options.seed) is None
    assert violation is not None
    assert NUMBERS[violated_invariant(violation)] in mutant.expected


def test_every_mutant_of_complete_nodes_names_existing_invariants() -> None:
    assert {n for m in MUTANTS for n in m.expected} <= set(NUMBERS.values())


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.number)
def test_every_mutant_of_complete_nodes_changes_code_that_still_exists(mutant: Mutant) -> None:
    check_fits(mutant)
