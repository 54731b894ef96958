"""`klamm reassign plan` on a cluster from a file: what it prints and writes, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from klamm.cli.app import app
from klamm.model.errors import UsageError
from klamm.model.ids import TopicPartition
from klamm.plan.json_files import parse_reassignment


def partition(number: int, *replicas: int, topic: str = "orders", **load: float) -> dict[str, Any]:
    return {"topic": topic, "partition": number, "replicas": replicas, **load}


def cluster(**changes: Any) -> dict[str, Any]:
    """Broker 4 is new, and in the rack of broker 1."""
    brokers = [{"id": number, "rack": rack} for number, rack in ((1, "a"), (2, "b"), (3, "c"), (4, "a"))]
    return {"brokers": brokers, "partitions": [partition(n, 1, 2, 3, bytes=100) for n in range(4)], **changes}


def with_a_dead_broker() -> dict[str, Any]:
    """The first six partitions have a replica on broker 9, which is dead; brokers 1 and 4 have none."""
    return cluster(partitions=[partition(n, 2, 3, *[9] * (n < 6)) for n in range(12)])


def plan(directory: Path, *words: str, of: dict[str, Any] | None = None) -> str:
    path = directory / "cluster.json"
    path.write_text(json.dumps(of or cluster()))
    words = ("reassign", "plan", "--cluster-file", str(path), *words)
    return CliRunner().invoke(app, words, catch_exceptions=False).stdout


def replicas_of(document: dict[str, Any]) -> dict[int, list[int]]:
    return {p["partition"]: p["replicas"] for p in document["partitions"]}


def test_brokers_are_printed_before_and_after_and_each_move_with_its_reason(tmp_path: Path) -> None:
    lines = [line.split("\t") for line in plan(tmp_path).splitlines()]

    assert lines[1] == ["1", "a", "4", "2", "400 B", "200 B", "4", "1", "0 B", "0 B"]
    assert [line[3] for line in lines[2:5]] == ["4", "4", "2"]
    moved = [line for line in lines[6:] if "4" in line[2].split(",")]
    assert len(moved) == 2
    assert all("1 -> 4: of its share of the load broker 1 has 133 %, broker 4 has 0 %" in line[3] for line in moved)


def test_a_drain_is_written_as_waves_with_their_rollbacks_and_reasons(tmp_path: Path) -> None:
    out = tmp_path / "drain"
    printed = plan(tmp_path, "--remove-broker", "1", "--wave-moves", "2", "--throttle", "5000", "--out", str(out))

    waves = [json.loads((out / f"wave-00{number}.json").read_text()) for number in (1, 2)]
    assert sorted(p.name for p in out.iterdir()) == [
        "reasons.tsv", "rollback-001.json", "rollback-002.json", "wave-001.json", "wave-002.json",
    ]  # fmt: skip
    assert [len(wave["partitions"]) for wave in waves] == [2, 2]
    assert {b for wave in waves for of in replicas_of(wave).values() for b in of} == {2, 3, 4}
    for number, wave in enumerate(waves, 1):
        rollback = json.loads((out / f"rollback-00{number}.json").read_text())
        assert replicas_of(rollback) == {key: [1, 2, 3] for key in replicas_of(wave)}
    assert (out / "reasons.tsv").read_text().count("1 -> 4: broker 1 is drained") == 4
    assert f"klamm reassign apply --reassignment-json-file {out}/wave-001.json --throttle 5000 --wait" in printed
    with pytest.raises(UsageError, match=r"--out .*drain is not empty: it has reasons.tsv. Name a new directory."):
        plan(tmp_path, "--remove-broker", "1", "--out", str(out))


def test_json_is_a_reassignment_with_wave_reasons_and_what_was_before(tmp_path: Path) -> None:
    printed = plan(tmp_path, "--remove-broker", "1", "--wave-bytes", "100", "--json")
    found = json.loads(printed)

    assert [p["wave"] for p in found["partitions"]] == [1, 2, 3, 4]
    assert found["partitions"][0]["reasons"][0] == "1 -> 4: broker 1 is drained"
    assert {tuple(p["current_replicas"]) for p in found["partitions"]} == {(1, 2, 3)}
    wanted = {TopicPartition("orders", n): tuple(of) for n, of in replicas_of(found).items()}
    assert parse_reassignment(printed.encode(), "stdout").replicas == wanted


def test_only_the_named_topic_moves(tmp_path: Path) -> None:
    both = cluster(partitions=[partition(0, 1, 2), partition(0, 1, 2, topic="payments")])
    named = tmp_path / "topics.json"
    named.write_text('{"version": 1, "topics": [{"topic": "payments"}]}')
    for words in (("--topic", "payments"), ("--topics-to-move-json-file", str(named))):
        found = json.loads(plan(tmp_path, "--remove-broker", "1", *words, "--json", of=both))
        assert [(p["topic"], 1 in p["replicas"]) for p in found["partitions"]] == [("payments", False)]


def test_only_what_is_required_changes_unless_balance_is_asked_for(tmp_path: Path) -> None:
    uneven = cluster(partitions=[partition(n, 1, 2, 3) for n in range(8)] + [partition(8, 4, 2, 3)])
    alone = json.loads(plan(tmp_path, "--remove-broker", "4", "--json", of=uneven))
    also = json.loads(plan(tmp_path, "--remove-broker", "4", "--balance", "--json", of=uneven))

    assert {key: sorted(of) for key, of in replicas_of(alone).items()} == {8: [1, 2, 3]}
    assert len(replicas_of(also)) > 1


def test_replicas_are_spread_over_the_listed_brokers(tmp_path: Path) -> None:
    found = json.loads(plan(tmp_path, "--broker-list", "2,4", "--replication-factor", "2", "--json"))

    assert {key: sorted(of) for key, of in replicas_of(found).items()} == {key: [2, 4] for key in range(4)}
    assert sorted(of[0] for of in replicas_of(found).values()) == [2, 2, 4, 4]


def test_racks_of_brokers_that_are_not_listed_do_not_count(tmp_path: Path) -> None:
    """No other broker is in the rack of broker 3."""
    found = json.loads(plan(tmp_path, "--broker-list", "1,2,4", "--json"))

    assert {key: sorted(of) for key, of in replicas_of(found).items()} == {key: [1, 2, 4] for key in range(4)}


def test_only_the_named_topic_gets_the_replication_factor(tmp_path: Path) -> None:
    both = cluster(partitions=[partition(0, 1, 2), partition(0, 1, 2, topic="payments")])
    found = json.loads(plan(tmp_path, "--topic", "payments", "--replication-factor", "1", "--json", of=both))

    assert [(p["topic"], p["replicas"]) for p in found["partitions"]] == [("payments", [1])]


def test_tolerance_is_in_percent(tmp_path: Path) -> None:
    uneven = cluster(
        brokers=[{"id": 1}, {"id": 2}],
        partitions=[partition(n, 1) for n in range(12)] + [partition(n, 2) for n in range(12, 22)],
    )

    assert json.loads(plan(tmp_path, "--tolerance", "10", "--json", of=uneven))["partitions"] == []
    assert len(json.loads(plan(tmp_path, "--tolerance", "5", "--json", of=uneven))["partitions"]) == 1


def test_an_excluded_and_a_dead_broker_get_nothing(tmp_path: Path) -> None:
    found = replicas_of(json.loads(plan(tmp_path, "--exclude", "4", "--json", of=with_a_dead_broker())))

    assert found
    assert not any({4, 9} & set(of) for of in found.values())


def test_partitions_that_wait_for_a_dead_broker_are_left_as_they_are_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(with_a_dead_broker()))

    said = CliRunner().invoke(app, ["reassign", "plan", "--cluster-file", str(path)], catch_exceptions=False).stderr

    assert "6 partitions have a replica on a broker that is not alive: they change only where it is required" in said
    assert min(replicas_of(json.loads(plan(tmp_path, "--json", of=with_a_dead_broker())))) == 6


def test_a_plan_gives_brokers_that_failed_fewer_leaders_and_names_the_reason(tmp_path: Path) -> None:
    brokers = [{"id": 1}, {"id": 2, "failures": 2, "out_of_isr": 0.25}]
    even = cluster(brokers=brokers, partitions=[partition(n, 1 + n % 2, 2 - n % 2) for n in range(30)])
    found = json.loads(plan(tmp_path, "--json", of=even))

    assert list(replicas_of(found).values()) == [[1, 2]] * 5
    assert found["partitions"][0]["reasons"] == [
        "leader 1: of its share of leaders broker 2 (failed 2 times, out of ISRs 25 % of the time) has 150 %, broker 1 "
        "has 75 %"
    ]


def test_a_directory_without_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has neither tables of klamm insight follow nor journal files. Make tables"):
        plan(tmp_path, "--history", str(tmp_path))
    with pytest.raises(UsageError, match=r"--since 3000-01-01 is not before now."):
        plan(tmp_path, "--history", str(tmp_path), "--since", "3000-01-01")


@pytest.mark.parametrize(
    ("words", "changes", "error"),
    [
        (["--remove-broker", "7"], {}, "--remove-broker 7: the cluster has no such broker. It has: 1, 2, 3, 4."),
        (["--topic", "x"], {}, "Topic x does not exist (UNKNOWN_TOPIC_OR_PARTITION). Check --topic, or the"),
        (["--topic", "orders", "--topics-to-move-json-file", "f"], {}, "Choose one of --topic and --topics-to-move"),
        (["--remove-broker", "1", "--leaders-only"], {}, "--leaders-only copies nothing: leave out --remove-broker"),
        (["--broker-list", "1,9"], {}, "--broker-list: broker 9 is not alive. Live brokers: 1, 2, 3, 4."),
        (["--broker-list", "1,x"], {}, "--broker-list '1,x' is not a list of broker ids, for example 1,2,3."),
        (["--broker-list", "1,1"], {}, "--broker-list 1,1 lists a broker twice."),
        (
            ["--replication-factor", "5"],
            {},
            "orders-0 needs 5 brokers for its 5 replicas, but only 4 are allowed (INVALID_REPLICATION_FACTOR). Allow "
            "more brokers, or lower --replication-factor.",
        ),
        (
            ["--remove-broker", "2"],
            {},
            "orders-0 cannot leave broker 2: there is no other broker that keeps its racks as spread out. Add a broker "
            "in the same rack, or pass --disable-rack-aware.",
        ),
        (
            [],
            {"brokers": [{"id": 1, "rack": "a"}, {"id": 2}]},
            "Brokers 2 have no rack, others have one. Set broker.rack on all of them, or pass --disable-rack-aware.",
        ),
        (
            ["--remove-broker", "1"],
            {"brokers": [{"id": 1}], "partitions": [partition(0, 1)]},
            "No broker is left that may receive replicas. Remove or exclude fewer brokers.",
        ),
        ([], {"partitions": [partition(0, 1, 1)]}, "partitions[0] (orders-0) has replicas [1, 1]."),
        ([], {"partitions": [partition(0, 1), partition(0, 2)]}, "partitions[1] (orders-0) is listed twice."),
        ([], {"partitions": [partition(0, 1, bytes=-1)]}, "partitions[0] (orders-0) has a negative number."),
        (
            [],
            {"partitions": [partition(0, 1, behind=2)]},
            "(orders-0) has behind 2.0. Give a share of time from 0 to 1.",
        ),
        ([], {"brokers": [{"id": 1, "out_of_isr": -1}]}, "brokers[0] (1) has out_of_isr -1.0. Give a share of time"),
        ([], {"brokers": [{"id": 1, "failures": -1}]}, "brokers[0] (1) has failures -1. Give how often"),
        ([], {"brokers": 1}, "is not valid: Expected `array`, got `int` - at `$.brokers`."),
    ],
)
def test_an_impossible_plan_is_refused_with_a_remedy(
    tmp_path: Path, words: list[str], changes: dict[str, Any], error: str
) -> None:
    with pytest.raises(UsageError) as refused:
        plan(tmp_path, *words, of=cluster(**changes))
    assert error in str(refused.value)


def test_a_saved_cluster_gives_the_same_plan(tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    brokers = [{"id": 1, "failures": 2, "out_of_isr": 0.5}, *({"id": n} for n in (2, 3, 4))]
    lost = [partition(n, 1, 2, 3, bytes=100, bytes_per_s=n, behind=0.1 * n, without_leader=0.01) for n in range(4)]
    given = cluster(brokers=brokers, partitions=lost)
    first = plan(tmp_path, "--json", "--save-cluster", str(saved), of=given)

    assert plan(tmp_path, "--json", of=json.loads(saved.read_text())) == first
    assert [{"rack": None, "failures": 0, "out_of_isr": 0, **b} for b in given["brokers"]] == json.loads(
        saved.read_text()
    )["brokers"]
    assert json.loads(saved.read_text())["partitions"][3]["behind"] == pytest.approx(0.3)
