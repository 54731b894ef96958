"""Our controller plays every script, and does what Apache Kafka 3.9.1's was recorded to do."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.differential.lives import kept_lives
from tests.differential.nodes import KlammNode, start_klamm
from tests.differential.plays import RECORDED, Difference, differences, play, recorded, script_of
from tests.differential.said import BROKERS, VERSIONS
from tests.differential.scripts import SCRIPTS
from tests.differential.wanted import REASONS, WANTED, is_always_wanted, unwanted, wanted

from klamm.controller.controller import Controller
from klamm.controller.handlers import partitions
from klamm.embedded.zookeeper import ZooKeeperServer
from klamm.wire.messages import AlterPartitionResponse

AT_ONCE = 8
"""Lives are played side by side, in chroots of their own: each mostly waits."""


@pytest.mark.parametrize("name", SCRIPTS)
async def test_we_do_as_kafka_did(name: str, shared_zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    others, no_longer = await judged(name, shared_zookeeper, tmp_path)

    assert not others, "\n".join(map(str, others))
    assert not no_longer, "no longer different"


@pytest.mark.parametrize("names", [kept_lives()[i : i + AT_ONCE] for i in range(0, len(kept_lives()), AT_ONCE)])
async def test_we_do_as_kafka_did_in_generated_scripts(
    names: list[str], shared_zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    verdicts = await asyncio.gather(*(judged(name, shared_zookeeper, tmp_path) for name in names))

    others = [f"{name}: {each}" for name, (found, _) in zip(names, verdicts, strict=True) for each in found]
    assert not others, "\n".join(others)


async def judged(name: str, server: ZooKeeperServer, directory: Path) -> tuple[list[Difference], list[Difference]]:
    """Differences that nobody wants, and those wanted that are none any more."""
    room = directory / name
    room.mkdir()
    steps = await play(script_of(name), start_klamm, server, f"/judged-{name}", room)
    found = [d for d in differences(recorded(name), steps) if not is_always_wanted(d)]
    return [d for d in found if d not in wanted(name)], [d for d in wanted(name) if d not in found]


async def _start_joining(
    hosts: str, directory: Path, protocol: str, given: Mapping[str, str], number: int
) -> KlammNode:
    return await start_klamm(hosts, directory, protocol, given, number, joins_requests=True)


@pytest.mark.parametrize("name", ["a_broker_answers_late", "unclean_leader_that_dies_before_it_recovered"])
async def test_joined_requests_end_in_the_same_states(
    name: str, shared_zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    steps = await play(SCRIPTS[name], _start_joining, shared_zookeeper, f"/joining-{name}", tmp_path)

    for kafka, klamm in zip(recorded(name), steps, strict=True):
        assert klamm.get("tree") == kafka.get("tree")
        assert klamm.get("writes") == kafka.get("writes")
    last = {broker: newest(told) for broker, told in steps[-1]["requests"].items()}
    assert last == {broker: newest(told) for broker, told in recorded(name)[-1]["requests"].items()}


def newest(told: dict[str, list[str]]) -> dict[tuple[str, str], str]:
    """By partition and API: the last word."""
    about = {subject: texts for subject, texts in told.items() if subject not in (BROKERS, VERSIONS)}
    return {(subject, text.partition(" ")[0]): text for subject, texts in about.items() for text in texts}


async def test_a_wrong_election_is_found(
    shared_zookeeper: ZooKeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = partitions.elect_offline
    wrong = replace(right, elect=lambda facts: right(facts._replace(replicas=facts.replicas[::-1])))
    monkeypatch.setattr(partitions, "elect_offline", wrong)
    name = "leader_dies_returns_and_rejoins"

    steps = await play(SCRIPTS[name], start_klamm, shared_zookeeper, "/planted-election", tmp_path)

    state = "/brokers/topics/a/partitions/0/state"
    places = {d.place for d in unwanted(name, differences(recorded(name), steps)) if d.did == "kill 1"}
    assert places >= {f"tree {state}", f"writes {state}", "requests 2 a-0", "requests 3 a-0"}


async def test_a_wrong_answer_is_found(
    shared_zookeeper: ZooKeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> AlterPartitionResponse:
        return AlterPartitionResponse(error_code=41)

    monkeypatch.setattr(Controller, "alter_partition", refuse)
    name = "leader_dies_returns_and_rejoins"

    steps = await play(SCRIPTS[name], start_klamm, shared_zookeeper, "/planted-answer", tmp_path)

    [answer] = [d for d in unwanted(name, differences(recorded(name), steps)) if d.place.startswith("answer")][:1]
    assert (answer.step, answer.kafka, answer.klamm) == (4, None, "error 41")


def test_every_wanted_difference_has_its_reason() -> None:
    assert {path.stem for path in WANTED.glob("*.json")} == set(REASONS)


def test_every_recorded_script_is_still_played() -> None:
    assert {path.stem for path in RECORDED.glob("*.json")} == set(SCRIPTS)
