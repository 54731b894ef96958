"""The answers of `klamm explain` about a partition or a topic."""

import uuid

import pytest
from tests.unit.explain.scene import P, Scene, ids

from klamm.cli.commands.explain import parse_subject
from klamm.explain import partitions
from klamm.explain.answer import NOTHING_PENDING, zookeeper_problem
from klamm.explain.timeline import last_state
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.telemetry.journal_reader import Entry


def test_explain_partition_prints_state_cause_audit_findings_and_remedies() -> None:
    scene = Scene()
    scene.broker_died()

    lines, known = partitions.explain_partition(scene.inputs(), P)

    assert known
    assert lines[-4:] == [
        "orders-0 now: leader is node 3 (preferred: 1), leader epoch 9, ISR 3, 2 of replicas 1, 2, 3",
        "since 2023-11-14 22:13:22.000, by BrokerChange: dead [1]",
        "warning: orders-0: under-replicated, broker 1 not in sync",
        "    remedy: start broker 1",
    ]


def test_explain_names_the_brokers_to_start_for_a_leaderless_partition() -> None:
    scene = Scene()
    scene.place(ReplicaAssignment(ids(1, 2)), LeaderAndIsr(BrokerId(-1), 9, ids(1), 4))

    lines, _ = partitions.explain_partition(scene.inputs(), P)

    assert lines[0] == "orders-0 now: no leader (preferred: 1), leader epoch 9, ISR 1 of replicas 1, 2"
    assert any("no member of its ISR 1 is alive" in line for line in lines)
    assert any("start broker 1; or accept the loss" in line for line in lines)


def test_explain_prints_the_state_of_a_partition_without_replicas() -> None:
    scene = Scene()
    scene.place(ReplicaAssignment(()), LeaderAndIsr(BrokerId(-1), 9, ids(1), 4))

    assert (
        partitions.explain_partition(scene.inputs(), P).lines[0].startswith("orders-0 now: no leader, leader epoch 9")
    )


def test_explain_takes_the_partition_state_from_the_journal_if_zookeeper_is_unreachable() -> None:
    scene = Scene()
    scene.broker_died()

    assert (
        partitions.explain_partition(scene.inputs(now=False), P).lines[-1]
        == "orders-0 now: leader is node 3, leader epoch 9, ISR 3"
    )


def test_explain_does_not_present_the_state_in_an_outdated_journal_as_current() -> None:
    scene = Scene()
    scene.broker_died()
    found = scene.inputs(now=False)._replace(where="topic __klamm_journal", may_be_stale=True)

    assert partitions.explain_partition(found, P).lines[-1].startswith("orders-0 then: leader is node 3")
    assert zookeeper_problem(found) == [
        "this is the state of 2023-11-14 22:13:22.000, the last entry of the topic __klamm_journal: "
        "add --zookeeper HOST:PORT/chroot for the current state"
    ]
    assert zookeeper_problem(scene.inputs()._replace(may_be_stale=True)) == []


def test_explain_topic_prints_its_partitions_and_deletion_steps() -> None:
    scene = Scene()
    scene.broker_died()
    cause = scene.journal.event("TopicDeletion")
    scene.journal.line(cause, "deletion", step="waits", why="broker 1 is not alive", partitions={"orders": [0]})

    lines, _ = partitions.explain_topic(scene.inputs(), "orders")

    assert lines[0].startswith("orders-0: leader is node 3 (preferred: 1)")
    assert lines[0].endswith("since 2023-11-14 22:13:22.000 by BrokerChange: dead [1]")
    assert lines[1].endswith("deletion waits, why broker 1 is not alive")


def test_explain_prints_the_history_of_a_deleted_topic() -> None:
    scene = Scene()
    cause = scene.journal.event("TopicDeletion")
    scene.journal.line(cause, "deletion", step="completed", partitions={"old": [0]})

    lines, known = partitions.explain_topic(scene.inputs(), "old")
    assert known
    assert lines[0] == "topic old does not exist now"
    assert lines[-1] == NOTHING_PENDING


@pytest.mark.parametrize("words", [["broker", "7"], ["nowhere"], ["nowhere-3"]])
def test_explain_reports_an_unknown_broker_topic_or_partition(words: list[str]) -> None:
    answer = parse_subject(words).answer(Scene().inputs())
    assert not answer.is_known
    assert len(answer.lines) == 1


def test_explain_treats_the_name_of_an_existing_topic_as_topic_not_as_partition() -> None:
    scene = Scene()
    scene.now.assignments[TopicPartition("data-2024", 0)] = ReplicaAssignment(ids(2))
    scene.now.topic_ids["data-2024"] = uuid.UUID(int=2)

    assert parse_subject(["data-2024"]).answer(scene.inputs()).lines[0].startswith("data-2024-0: ")


def test_explain_prints_the_topic_creation_as_cause_of_the_first_leader() -> None:
    scene = Scene()
    cause = scene.journal.event("TopicChange", new=["orders"])
    scene.journal.leader_decision(cause, "initial", P, None, scene.now.states[P])

    assert (
        "since 2023-11-14 22:13:21.000, by TopicChange: new ['orders']"
        in partitions.explain_partition(scene.inputs(), P).lines
    )


def test_explain_prints_the_command_that_restores_a_malformed_state_from_the_journal() -> None:
    scene = Scene()
    scene.broker_died()
    del scene.now.states[P]
    scene.now.malformed["/brokers/topics/orders/partitions/0/state"] = "no JSON"
    scene.now.connect = "zk:2181/kafka"

    lines, _ = partitions.explain_partition(scene.inputs(), P)

    assert "orders-0 now: replicas 1, 2, 3; the state znode is malformed (no JSON)" in lines
    assert [line for line in lines if line.startswith("critical: /brokers/topics/orders/partitions/0/state: malformed")]
    assert lines[-1] == (
        "    klamm zk set /brokers/topics/orders/partitions/0/state "
        '\'{"controller_epoch":4,"leader":3,"version":1,"leader_epoch":10,"isr":[3]}\' --zookeeper zk:2181/kafka'
    )


def test_explain_reports_a_malformed_topic_znode() -> None:
    scene = Scene()
    scene.broker_died()
    scene.now.assignments.clear()
    scene.now.malformed["/brokers/topics/orders"] = "no JSON"

    of_topic, _ = partitions.explain_topic(scene.inputs(), "orders")
    of_partition, _ = partitions.explain_partition(scene.inputs(), P)

    assert of_topic[0] == "the znode of orders is malformed: no JSON"
    assert "orders-0 now: unknown: the znode of its topic is malformed (no JSON)" in of_partition
    assert NOTHING_PENDING not in (*of_topic, *of_partition)


def test_explain_reports_a_pending_topic_deletion_and_the_reason_for_waiting() -> None:
    scene = Scene()
    scene.now.deletions["orders"] = scene.now.taken_ms - 1_000

    due = "next: orders is deleted (requested at 2023-11-14 22:14:59.000), when broker 1 is back "
    assert any(line.startswith(due) for line in partitions.explain_topic(scene.inputs(), "orders").lines)
    assert any(line.startswith(due) for line in partitions.explain_partition(scene.inputs(), P).lines)


def test_explain_summarizes_a_topic_with_many_partitions() -> None:
    scene = Scene()
    for number in range(1, 1_000):
        p = TopicPartition("orders", number)
        scene.now.assignments[p] = ReplicaAssignment(ids(2, 3))
        scene.now.states[p] = LeaderAndIsr(BrokerId(2), 9, ids(2, 3) if number > 100 else ids(2), 4)

    lines, _ = partitions.explain_topic(scene.inputs(), "orders")

    assert lines[0] == (
        "orders: 1,000 partitions, 1,000 led by a live node, 899 with all replicas in sync; the others:"
    )
    assert lines[13] == "and 89 more: klamm topics describe --topic orders --under-replicated-partitions"
    assert len(lines) < 20


def test_explain_prints_repeated_steps_as_one_line_with_their_count() -> None:
    scene = Scene()
    for _ in range(50):
        scene.journal.refused("c", "rebalance", "the preferred replica is not alive", partitions={"orders": [0]})

    lines = [line for line in partitions.explain_topic(scene.inputs(), "orders").lines if "rebalance" in line]

    assert len(lines) == 1
    assert lines[0].endswith("(50 times since 2023-11-14 22:13:20.000)")


def test_explain_partition_reports_a_missing_controller() -> None:
    scene = Scene()
    scene.now.controller = None

    assert any("there is no controller" in line for line in partitions.explain_partition(scene.inputs(), P).lines)


def test_explain_reports_an_unreachable_zookeeper() -> None:
    scene = Scene()
    scene.broker_died()
    found = scene.inputs(now=False)._replace(zookeeper_problem="ZooKeeper at zk:1 does not answer")

    assert partitions.explain_partition(found, P).lines[-1] == "orders-0 then: leader is node 3, leader epoch 9, ISR 3"
    assert zookeeper_problem(found)[0] == "critical: ZooKeeper at zk:1 does not answer"
    assert zookeeper_problem(scene.inputs()) == []


def test_explain_prints_only_the_last_events_of_a_long_history() -> None:
    scene = Scene()
    for _ in range(40):
        scene.broker_died()

    lines, _ = partitions.explain_partition(scene.inputs(), P, most_events=5)

    assert lines[0] == "(35 earlier events: --all shows them)"
    assert sum("controller 2, epoch 4" in line for line in lines) == 5


def test_explain_partition_prints_unanswered_requests_to_its_replicas() -> None:
    scene = Scene()
    scene.broker_died()
    scene.journal.request("c", 3, "LEADER_AND_ISR", {"orders": [0]}, count=1)
    scene.journal.request("c", 2, "LEADER_AND_ISR", {"orders": [0]}, count=1)
    scene.journal.response("c", 2, "LEADER_AND_ISR", ms=1)

    lines = partitions.explain_partition(scene.inputs(), P).lines

    assert [line for line in lines if "has not answered" in line] == [
        "broker 3 has not answered LEADER_AND_ISR for 97.0 s: see klamm explain broker 3; restart the broker "
        "if it hangs"
    ]


# ---- the last state in the journal


def entry(kind: str, **facts: object) -> Entry:
    return Entry(0, 1, 1, 1, "1.1.1", kind, facts)


LED = entry("decision", leader_to=3, leader_epoch=5, isr=[3, 1])


def test_explain_takes_a_partitions_last_state_from_the_newest_journal_decision() -> None:
    assert last_state([entry("decision", leader_to=1, leader_epoch=4, isr=[1]), LED]) == (
        "leader is node 3, leader epoch 5, ISR 3, 1"
    )


def test_explain_prints_deleted_as_the_last_state_of_a_deleted_partition() -> None:
    assert last_state([LED, entry("deletion", step="begins")]) == "leader is node 3, leader epoch 5, ISR 3, 1"
    assert last_state([LED, entry("deletion", step="completed")]) == "deleted with its topic"
    assert last_state([LED, entry("deletion", step="completed"), LED]) == "leader is node 3, leader epoch 5, ISR 3, 1"
