"""Our controller plays every script, and does what Apache Kafka 3.9.1's was recorded to do."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.differential import recordings
from tests.differential.calls import generated_names
from tests.differential.comparison import differences, merges_requests, play, recorded
from tests.differential.expected_differences import (
    EXPECTED,
    REASONS,
    is_always_expected,
    listed_in,
    unexpected,
)
from tests.differential.nodes import start_klamm, start_klamm_unmerged
from tests.differential.recordings import GENERATED, RECORDED
from tests.differential.scripts import SCRIPTS
from tests.differential.verdict import judged

from klamm.controller.controller import Controller
from klamm.controller.decisions.elections import elect_offline
from klamm.controller.handlers import partitions
from klamm.embedded.zookeeper import ZooKeeperServer
from klamm.wire.messages import AlterPartitionResponse

PARALLEL_SCRIPTS = 8
"""Generated scripts are played side by side, in chroots of their own: each mostly waits."""
SAMPLED = 20
"""Every twentieth generated script is played; all by `make prove ONLY=generated-scripts` (--all-generated-scripts)."""


def script_groups(every: int) -> list[list[str]]:
    """Every n-th generated script, in groups; all scripts of a group merge requests, or none does."""
    return [
        names[i : i + PARALLEL_SCRIPTS]
        for merged in (False, True)
        for names in [[name for name in generated_names()[::every] if merges_requests(name) is merged]]
        for i in range(0, len(names), PARALLEL_SCRIPTS)
    ]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "names" in metafunc.fixturenames:
        plays_all = metafunc.config.getoption("--all-generated-scripts")
        metafunc.parametrize("names", script_groups(1 if plays_all else SAMPLED))


@pytest.mark.parametrize("name", SCRIPTS)
async def test_klamms_controller_acts_in_each_script_like_the_recorded_apache_kafka_controller(
    name: str, shared_zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    others, no_longer = await judged(name, shared_zookeeper, tmp_path)

    assert not others, "\n".join(map(str, others))
    assert not no_longer, "no longer different"


async def test_klamms_controller_matches_apache_kafkas_recording_in_generated_scripts(
    names: list[str], shared_zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    verdicts = await asyncio.gather(*(judged(name, shared_zookeeper, tmp_path) for name in names))

    others = [f"{name}: {each}" for name, (found, _) in zip(names, verdicts, strict=True) for each in found]
    assert not others, "\n".join(others)


@pytest.mark.parametrize("name", ["a_broker_answers_late", "unclean_leader_that_dies_before_it_recovered"])
async def test_merged_control_requests_leave_brokers_in_the_same_final_states_as_single_requests(
    name: str, shared_zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    steps = await play(SCRIPTS[name], start_klamm, shared_zookeeper, f"/merged-{name}", tmp_path)

    found = [d for d in differences(recorded(name), steps, merged=True) if not is_always_expected(d)]
    assert found == []
    assert steps != recorded(name), "nothing was merged"


async def test_the_differential_test_reports_an_injected_wrong_leader_election(
    shared_zookeeper: ZooKeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = elect_offline
    wrong = replace(right, elect=lambda facts: right(facts._replace(replicas=facts.replicas[::-1])))
    monkeypatch.setattr(partitions, "elect_offline", wrong)
    name = "leader_dies_returns_and_rejoins"

    steps = await play(SCRIPTS[name], start_klamm_unmerged, shared_zookeeper, "/planted-election", tmp_path)

    state = "/brokers/topics/a/partitions/0/state"
    places = {d.place for d in unexpected(name, differences(recorded(name), steps)) if d.did == "kill 1"}
    assert places >= {f"tree {state}", f"writes {state}", "requests 2 a-0", "requests 3 a-0"}


async def test_the_differential_test_reports_an_injected_wrong_alter_partition_response(
    shared_zookeeper: ZooKeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> AlterPartitionResponse:
        return AlterPartitionResponse(error_code=41)

    monkeypatch.setattr(Controller, "alter_partition", refuse)
    name = "leader_dies_returns_and_rejoins"

    steps = await play(SCRIPTS[name], start_klamm_unmerged, shared_zookeeper, "/planted-answer", tmp_path)

    [answer] = [d for d in unexpected(name, differences(recorded(name), steps)) if d.place.startswith("answer")][:1]
    assert (answer.step, answer.kafka, answer.klamm) == (4, None, "error 41")


def test_every_expected_difference_from_apache_kafka_has_a_reason() -> None:
    files = [path.stem for path in EXPECTED.glob("*.txt")]

    assert {name for file in files for name in listed_in(file)} == set(REASONS)


def test_every_apache_kafka_recording_belongs_to_an_existing_script() -> None:
    recorded_in = {name: file.stem for file in RECORDED.glob("*.txt") for name in recordings.names(file.stem)}

    written = {name: script.subject for name, script in SCRIPTS.items()}
    assert recorded_in == written | dict.fromkeys(generated_names(), GENERATED)
