"""`klamm groups` and Apache Kafka's own kafka-consumer-groups say and do the same with klamm's coordinators."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.clients.test_tools import klamm
from tests.support.cluster import Cluster
from tests.support.group_members import GroupMember, Members
from tests.support.kafka_tools import KafkaTools

PARTITIONS = 3
GROUPS = "kafka-consumer-groups"


@pytest.fixture
def name(cluster: Cluster, own_name: str) -> str:
    """A topic with ten records in each partition, and a group; both have this name."""
    # the timestamps are of 1970: without a limit, retention would delete the records while the test runs
    cluster.create_topic(own_name, PARTITIONS, 3, {"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(10 * PARTITIONS):
        producer.produce(own_name, str(number).encode(), partition=number % PARTITIONS, timestamp=1_000 + number)
    assert producer.flush(30) == 0
    return own_name


def consume(members: Members) -> GroupMember:
    """A member that has committed all records."""
    member = members.start("confluent")
    members.wait_until("all records are consumed", lambda: len(member.consumed) == 10 * PARTITIONS)
    return member


def run_json(cluster: Cluster, *words: str, status: int = 0) -> Any:
    return json.loads(klamm("groups", *words, "-b", cluster.bootstrap, "--json", status=status).out)


def rows(text: str, name: str) -> list[list[str]]:
    return sorted(line.split() for line in text.splitlines() if re.match(rf"{re.escape(name)}\s", line))


def kafka(tools: KafkaTools, cluster: Cluster, *words: str) -> str:
    return tools.run(cluster.bootstrap, GROUPS, *words)


def wait_until_empty(cluster: Cluster, tools: KafkaTools, name: str) -> None:
    words = ["--describe", "--group", name, "--state"]
    cluster.wait_until("the group is empty", lambda: "Empty" in kafka(tools, cluster, *words))


def committed(cluster: Cluster, name: str) -> list[int]:
    [described] = run_json(cluster, "describe", "--group", name, status=0)
    return [found["committed"] for found in described["offsets"]]


def test_klamm_and_kafkas_tool_print_the_same_list_and_description_of_a_group(
    cluster: Cluster, members: Members, name: str, tools: KafkaTools
) -> None:
    member = consume(members)
    assert {"group": name, "state": "Stable"}.items() <= next(
        g for g in run_json(cluster, "list") if g["group"] == name
    ).items()
    assert name in kafka(tools, cluster, "--list", "--state", "stable")

    [described] = run_json(cluster, "describe", "--group", name)
    shown = rows(kafka(tools, cluster, "--describe", "--group", name), name)
    ours = [
        [name, o["topic"], str(o["partition"]), str(o["committed"]), str(o["log_end"]), str(o["lag"]), o["member"]]
        for o in described["offsets"]
    ]
    assert [row[:7] for row in shown] == ours
    [kafkas_member] = rows(kafka(tools, cluster, "--describe", "--group", name, "--members", "--verbose"), name)
    [our_member] = described["members"]
    assert kafkas_member[1:4] == [our_member["member_id"], our_member["host"], our_member["client_id"]]
    assert len(our_member["partitions"]) == len(member.assigned) == PARTITIONS
    lag = run_json(cluster, "lag", "--group", name, "--max-lag", "0")
    assert lag[0]["lag"] == 0
    assert lag[0] in run_json(cluster, "lag", "--all-groups")
    assert "Choose the groups" in klamm("groups", "lag", "-b", cluster.bootstrap, status=2).err


def test_klamm_and_kafkas_tool_refuse_to_delete_or_reset_a_group_with_members(
    cluster: Cluster, members: Members, name: str, tools: KafkaTools
) -> None:
    consume(members)
    refused = klamm("groups", "reset-offsets", "--group", name, "--all-topics", "--to-earliest", "--execute",
                    "-b", cluster.bootstrap, status=1)  # fmt: skip
    assert "has members (state Stable)" in refused.err
    assert "NON_EMPTY_GROUP" in klamm("groups", "delete", "--group", name, "-y", "-b", cluster.bootstrap, status=1).err
    assert (
        "GROUP_SUBSCRIBED_TO_TOPIC"
        in klamm(
            "groups", "delete-offsets", "--group", name, "--topic", name, "-y", "-b", cluster.bootstrap, status=1
        ).err
    )
    said = tools.ask(cluster.bootstrap, GROUPS, "--reset-offsets", "--group", name, "--all-topics", "--to-earliest",
                     "--execute")  # fmt: skip
    assert "Assignments can only be reset if the group" in said.text
    assert "not empty" in tools.ask(cluster.bootstrap, GROUPS, "--delete", "--group", name).text
    assert committed(cluster, name) == [10] * PARTITIONS


RESETS = {
    "--to-earliest": [0, 0, 0],
    "--to-current": [10, 10, 10],
    "--to-offset 4": [4, 4, 4],
    "--to-offset 99": [10, 10, 10],
    "--shift-by -3": [7, 7, 7],
    "--shift-by -99": [0, 0, 0],
    "--to-datetime 1970-01-01T00:00:01.010": [4, 3, 3],
    "--by-duration PT0S": [10, 10, 10],
    "--to-latest": [10, 10, 10],
}


def test_klamm_and_kafkas_tool_reset_a_groups_offsets_to_the_same_values(
    cluster: Cluster, members: Members, name: str, tools: KafkaTools
) -> None:
    consume(members).stop()
    wait_until_empty(cluster, tools, name)
    words = ["reset-offsets", "--group", name, "--topic", name]
    for flags, offsets in RESETS.items():
        planned = run_json(cluster, *words, *flags.split())
        said = kafka(tools, cluster, f"--{words[0]}", *words[1:], *flags.split(), "--dry-run")
        assert [o["new"] for o in planned["offsets"]] == offsets, flags
        kafkas = sorted(re.findall(rf"{name} +{name} +(\d+) +(\d+)", said))
        assert [int(offset) for _, offset in kafkas] == offsets, (flags, said)
        assert committed(cluster, name) == [10] * PARTITIONS
        run_json(cluster, *words, *flags.split(), "--execute")
        assert committed(cluster, name) == offsets
        run_json(cluster, *words, "--to-latest", "--execute")


def test_a_group_deleted_by_klamm_is_missing_in_kafkas_tool_and_the_reverse(
    cluster: Cluster, members: Members, name: str, tools: KafkaTools
) -> None:
    consume(members).kill()
    wait_until_empty(cluster, tools, name)

    assert "Successful" in kafka(tools, cluster, "--delete-offsets", "--group", name, "--topic", f"{name}:0")
    assert committed(cluster, name) == [10, 10]
    deleted = run_json(cluster, "delete-offsets", "--group", name, "--topic", f"{name}:1", "-y")
    assert deleted["deleted"] == [f"{name}-1"]
    [left] = rows(kafka(tools, cluster, "--describe", "--group", name), name)
    assert left[2] == "2"
    run_json(cluster, "delete", "--group", name, "-y")
    assert name not in kafka(tools, cluster, "--list")
    assert (
        "GROUP_ID_NOT_FOUND" in klamm("groups", "delete", "--group", name, "-y", "-b", cluster.bootstrap, status=1).err
    )
    for form in ([], ["--members"], ["--state"]):
        described = klamm("groups", "describe", "--group", name, *form, "-b", cluster.bootstrap, status=1)
        assert described.out == ""
        assert f"Group {name} does not exist." in described.err


def test_offsets_exported_by_klamm_are_committed_by_kafkas_tool_and_the_reverse(
    cluster: Cluster, members: Members, name: str, tools: KafkaTools, tmp_path: Path
) -> None:
    consume(members).stop()
    wait_until_empty(cluster, tools, name)
    words = ["reset-offsets", "--group", name, "--all-topics", "--export"]
    ours = klamm("groups", *words, "--to-offset", "3", "-b", cluster.bootstrap).out
    kafkas = kafka(tools, cluster, f"--{words[0]}", *words[1:], "--to-offset", "3", "--dry-run")
    assert ours.splitlines() == sorted(kafkas.split())
    assert [line.split(",")[1:] for line in ours.splitlines()] == [["0", "3"], ["1", "3"], ["2", "3"]]

    file = tmp_path / "offsets.csv"
    file.write_text(ours)
    kafka(tools, cluster, "--reset-offsets", "--group", name, "--from-file", str(file), "--execute")
    assert committed(cluster, name) == [3] * PARTITIONS
    file.write_text("\n".join(f"{name},{name},{partition},{partition + 5}" for partition in range(PARTITIONS)))
    run_json(cluster, "reset-offsets", "--group", name, "--from-file", str(file))
    assert committed(cluster, name) == [3] * PARTITIONS
    run_json(cluster, "reset-offsets", "--group", name, "--from-file", str(file), "--execute")
    assert committed(cluster, name) == [5, 6, 7]
    several = klamm("groups", "reset-offsets", "--all-groups", *words[3:], "--to-latest", "-b", cluster.bootstrap).out
    found = [row for row in csv.reader(several.splitlines()) if row[0] == name]
    assert found == [[name, name, str(partition), "10"] for partition in range(PARTITIONS)]

    file.write_text(f"{name},9,1\n")
    refused = klamm(
        "groups", "reset-offsets", "--group", name, "--from-file", str(file), "-b", cluster.bootstrap, status=2
    )
    assert f"--from-file names {name}-9, which does not exist" in refused.err


def test_groups_lag_of_a_group_that_does_not_exist_is_an_error(cluster: Cluster) -> None:
    refused = klamm("groups", "lag", "--group", "mistyped", "--max-lag", "0", "-b", cluster.bootstrap, status=1)

    assert refused.err == "klamm: Group mistyped does not exist. `klamm groups list` shows the groups.\n"


def test_groups_describe_and_groups_delete_accept_the_option_all_groups(
    cluster: Cluster, members: Members, name: str, tools: KafkaTools
) -> None:
    consume(members).stop()
    wait_until_empty(cluster, tools, name)
    assert name in {g["group"] for g in run_json(cluster, "describe", "--all-groups")}
    assert name in {g["group"] for g in run_json(cluster, "list", "--type", "classic")}
    said = klamm("groups", "describe", "--group", name, "--state", "-b", cluster.bootstrap).out
    assert said == f"Group {name}: Empty, 0 members\n"
    deleted = run_json(cluster, "delete", "--all-groups", "-y")["deleted"]
    assert name in deleted
    assert name not in kafka(tools, cluster, "--list")
