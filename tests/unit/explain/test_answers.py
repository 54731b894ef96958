"""The answers of `klamm explain` about a partition, topic, broker, the controller and reassignments."""

import uuid
from itertools import count

import pytest
from tests.support.controller_room import ListSink

from klamm.audit.snapshot import Ownership, Snapshot
from klamm.cli.commands.explain import parse_subject
from klamm.explain import answers
from klamm.explain.sources import ExplainInputs
from klamm.model.assignment import ReplicaAssignment
from klamm.model.brokers import Broker
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.telemetry.journal import Journal
from klamm.telemetry.journal_reader import entries_of
from klamm.zk.registrations import Registration

P = TopicPartition("orders", 0)


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


class Clock:
    """A second later each time."""

    def __init__(self) -> None:
        self._seconds = count(1_700_000_000)

    def now_ms(self) -> int:
        return next(self._seconds) * 1000


class Scene:
    def __init__(self) -> None:
        self._sink = ListSink()
        self.journal = Journal(self._sink, 2, Clock())
        self.journal.controller_epoch = 4
        self.now = Snapshot(
            1_700_000_100_000, BrokerId(2), Ownership(0x22, 5), controller_epoch=4, controller_epoch_version=4
        )
        for broker in ids(2, 3):
            self.now.brokers[broker] = Registration(Broker(broker, ()))
            self.now.broker_ownership[broker] = Ownership(0x20 + broker, 100 + broker)
        self.now.topic_ids["orders"] = uuid.UUID(int=1)
        self.place(ReplicaAssignment(ids(1, 2, 3)), LeaderAndIsr(BrokerId(3), 9, ids(3, 2), 4))

    def place(self, assignment: ReplicaAssignment, state: LeaderAndIsr) -> None:
        self.now.assignments[P], self.now.states[P] = assignment, state

    def broker_died(self) -> None:
        cause = self.journal.event("BrokerChange", waited_ms=0.1)
        self.journal.found(cause, new=[], dead=[1], bounced=[])
        facts = {"leader_from": 1, "leader_to": 3, "leader_epoch": 9, "isr_from": [1, 3], "isr": [3]}
        self.journal.decision(cause, "offline", P, 3, rejected=[(1, "not live")], **facts)

    def found(self, *, now: bool = True) -> ExplainInputs:
        self.journal.flush()
        return ExplainInputs(list(entries_of(self._sink.content)), "here", self.now if now else None)


def test_a_partition_with_its_findings_and_remedies() -> None:
    scene = Scene()
    scene.broker_died()

    lines, known = answers.partition(scene.found(), P)

    assert known
    assert lines[-4:] == [
        "orders-0 now: leader is node 3 (preferred: 1), leader epoch 9, ISR 3, 2 of replicas 1, 2, 3",
        "since 2023-11-14 22:13:22.000, by BrokerChange: dead [1]",
        "warning: orders-0: under-replicated, 1 not in sync",
        "    remedy: start broker 1",
    ]


def test_a_partition_shows_since_when_it_has_its_isr() -> None:
    scene = Scene()
    scene.broker_died()
    cause = scene.journal.event("AlterPartitionReceived", waited_ms=0.1, version=3)
    facts = {"leader_from": 3, "leader_to": 3, "leader_epoch": 9, "isr_from": [3], "isr": [3, 2]}
    scene.journal.decision(cause, "alter-partition", P, 3, rejected=[], **facts)

    lines, _ = answers.partition(scene.found(), P)

    assert "since 2023-11-14 22:13:22.000, by BrokerChange: dead [1]" in lines
    assert "with this ISR since 2023-11-14 22:13:24.000, by AlterPartitionReceived: version 3" in lines

    scene.place(ReplicaAssignment(ids(1, 2, 3)), LeaderAndIsr(BrokerId(3), 9, ids(3), 4))  # by whom, no journal tells
    assert not any(line.startswith("with this ISR") for line in answers.partition(scene.found(), P).lines)


def test_a_leaderless_partition_names_the_brokers_to_start() -> None:
    scene = Scene()
    scene.place(ReplicaAssignment(ids(1, 2)), LeaderAndIsr(BrokerId(-1), 9, ids(1), 4))

    lines, _ = answers.partition(scene.found(), P)

    assert lines[0] == "orders-0 now: no leader (preferred: 1), leader epoch 9, ISR 1 of replicas 1, 2"
    assert any("no member of its ISR 1 is alive" in line for line in lines)
    assert any("start broker 1; or accept the loss" in line for line in lines)


def test_a_partition_without_replicas() -> None:
    scene = Scene()
    scene.place(ReplicaAssignment(()), LeaderAndIsr(BrokerId(-1), 9, ids(1), 4))

    assert answers.partition(scene.found(), P).lines[0].startswith("orders-0 now: no leader, leader epoch 9")


def test_without_zookeeper_the_journal_gives_the_state() -> None:
    scene = Scene()
    scene.broker_died()

    assert (
        answers.partition(scene.found(now=False), P).lines[-1]
        == "orders-0 now: leader is node 3, leader epoch 9, ISR 3"
    )


def test_a_possibly_stale_journal_does_not_claim_the_current_state() -> None:
    scene = Scene()
    scene.broker_died()
    found = scene.found(now=False)._replace(where="topic __klamm_journal", may_be_stale=True)

    assert answers.partition(found, P).lines[-1].startswith("orders-0 then: leader is node 3")
    assert answers.zookeeper_problem(found) == [
        "this is the state of 2023-11-14 22:13:22.000, the last entry of the topic __klamm_journal: "
        "add --zookeeper HOST:PORT/chroot for the current state"
    ]
    assert answers.zookeeper_problem(scene.found()._replace(may_be_stale=True)) == []


def rejected(scene: Scene, broker: int, error: str = "INCONSISTENT_TOPIC_ID") -> None:
    cause = scene.journal.event("LeaderAndIsrResponseReceived")
    scene.journal.refused(cause, "LEADER_AND_ISR", "why", broker=broker, error=error, partitions={"orders": [0]})


def test_a_replica_that_its_broker_rejected_is_reported_with_a_remedy() -> None:
    scene = Scene()
    scene.place(ReplicaAssignment(ids(2, 3)), LeaderAndIsr(BrokerId(2), 9, ids(2, 3), 4))
    rejected(scene, 2)  # which leads, as ZooKeeper has it

    for lines, _ in (
        answers.partition(scene.found(), P),
        answers.topic(scene.found(), "orders"),
        answers.broker(scene.found(), BrokerId(2)),
    ):
        assert lines[-2].startswith("warning: orders-0: broker 2 rejects its replica (INCONSISTENT_TOPIC_ID)")
        back, _, fresh = lines[-1].partition("; otherwise ")
        assert back.startswith("    remedy: to keep that log")
        assert (
            'klamm zk set /brokers/topics/orders \'{"removing_replicas":{},"partitions":{"0":[2,3]},"topic_id":"ID"'
            in back
        )
        assert fresh.startswith("stop broker 2, move the directory orders-0 out of its log.dirs")
        assert answers.NOTHING_PENDING not in lines
    assert answers.broker(scene.found(), BrokerId(3)).lines[-1] == answers.NOTHING_PENDING
    assert answers.partition(scene.found(now=False), P).lines[-1].startswith("    remedy: to keep that log")


def test_other_rejections_refer_to_the_log_of_the_broker() -> None:
    scene = Scene()
    rejected(scene, 3, "UNKNOWN_SERVER_ERROR")

    assert answers.partition(scene.found(), P).lines[-1].startswith("    remedy: find the reason in the log of")


@pytest.mark.parametrize("partitions", [{"orders": [0]}, {}], ids=["listed", "too many to be listed"])
def test_a_new_request_clears_the_rejection_of_that_broker(partitions: dict[str, list[int]]) -> None:
    scene = Scene()
    scene.place(ReplicaAssignment(ids(2, 3)), LeaderAndIsr(BrokerId(2), 9, ids(2, 3), 4))
    rejected(scene, 2)
    scene.journal.request("c", 3, "LEADER_AND_ISR", partitions, count=1)
    assert answers.NOTHING_PENDING not in answers.partition(scene.found(), P).lines

    scene.journal.request("c", 2, "LEADER_AND_ISR", partitions, count=1)
    assert answers.partition(scene.found(), P).lines[-1] == answers.NOTHING_PENDING


def test_rejections_of_in_sync_followers_and_deleted_topics_are_not_reported() -> None:
    scene = Scene()
    scene.place(ReplicaAssignment(ids(2, 3)), LeaderAndIsr(BrokerId(2), 9, ids(2, 3), 4))
    rejected(scene, 3)
    assert answers.partition(scene.found(), P).lines[-1] == answers.NOTHING_PENDING

    rejected(scene, 2)
    scene.journal.line("c", "deletion", step="completed", partitions={"orders": [0]})
    assert answers.partition(scene.found(), P).lines[-1] == answers.NOTHING_PENDING


def test_a_topic_with_its_partitions_and_steps() -> None:
    scene = Scene()
    scene.broker_died()
    cause = scene.journal.event("TopicDeletion")
    scene.journal.line(cause, "deletion", step="waits", why="broker 1 is not alive", partitions={"orders": [0]})

    lines, _ = answers.topic(scene.found(), "orders")

    assert lines[0].startswith("orders-0: leader is node 3 (preferred: 1)")
    assert lines[0].endswith("since 2023-11-14 22:13:22.000 by BrokerChange: dead [1]")
    assert lines[1].endswith("deletion waits, why broker 1 is not alive")


def test_a_deleted_topic_still_has_a_history() -> None:
    scene = Scene()
    cause = scene.journal.event("TopicDeletion")
    scene.journal.line(cause, "deletion", step="completed", partitions={"old": [0]})

    lines, known = answers.topic(scene.found(), "old")
    assert known
    assert lines[0] == "topic old does not exist now"
    assert lines[-1] == answers.NOTHING_PENDING


def test_a_broker_with_its_unanswered_requests() -> None:
    scene = Scene()
    scene.broker_died()
    scene.journal.request("c", 3, "LEADER_AND_ISR", {}, count=12, causes=["a", "b"])
    scene.journal.request("c", 2, "LEADER_AND_ISR", {}, count=1)
    scene.journal.response("c", 2, "LEADER_AND_ISR", ms=1)

    gone, _ = answers.broker(scene.found(), BrokerId(1))
    assert gone[0] == "broker 1 now: not registered; leads 0 partitions (preferred for 1), has 1 replicas"
    assert gone[1].endswith("broker 1 is gone (controller 2, epoch 4)")
    assert "warning: orders-0: under-replicated, 1 not in sync" in gone
    assert any(
        line
        == "    remedy: start broker 1 (restart it if its process hangs); no other broker could take all its replicas"
        for line in gone
    )

    slow, _ = answers.broker(scene.found(), BrokerId(3))
    assert slow[0] == "broker 3 now: registered, epoch 103; leads 1 partitions (preferred for 0), has 1 replicas"
    assert slow[1] == "LEADER_AND_ISR to broker 3 unanswered for 97.0 s: 12 partitions, merged from 2 events"

    answered, _ = answers.broker(scene.found(), BrokerId(2))
    assert answered == [
        "broker 2 now: registered, epoch 102, the controller; leads 0 partitions (preferred for 0), has 1 replicas",
        answers.NOTHING_PENDING,
    ]


def test_broker_changes_between_two_controllers() -> None:
    scene = Scene()
    scene.journal.line("c", "ready", brokers=[1, 2, 3])
    scene.journal.line("d", "controlled-shutdown", broker=1, partitions={})
    scene.journal.controller_epoch = 5
    scene.journal.line("e", "ready", brokers=[2, 3])
    scene.journal.controller_epoch = 6
    scene.journal.line("f", "ready", brokers=[2, 3])

    def told(broker: int) -> list[str]:
        lines = answers.broker(scene.found(), BrokerId(broker)).lines
        return [line.partition("  ")[2] for line in lines if line.startswith("2023")]

    assert told(1) == [
        "broker 1 was alive (controller 2, epoch 4, newly elected)",
        "broker 1 began a controlled shutdown (controller 2, epoch 4)",
        "broker 1 was gone (controller 2, epoch 5, newly elected)",
    ]
    assert told(3) == ["broker 3 was alive (controller 2, epoch 4, newly elected)"]


def test_the_gap_after_a_killed_controller_is_an_upper_bound() -> None:
    scene = Scene()
    scene.journal.line("c", "ready", brokers=[2])
    scene.journal.line("c", "elected")
    scene.journal.controller_epoch = 5
    scene.journal.line("d", "elected")
    scene.journal.line("d", "ready")

    assert "after at most 2.00 s without a controller" in answers.controller(scene.found()).lines[1]


def test_the_gap_after_a_frozen_controller_is_an_upper_bound() -> None:
    scene = Scene()
    scene.journal.line("c", "elected")
    scene.journal.line("c", "ready", brokers=[2])
    scene.journal.controller_epoch = 5
    scene.journal.line("d", "elected")
    scene.journal.line("d", "ready", brokers=[2])
    scene.journal.controller_epoch = 4
    scene.journal.line("c", "resigned", why="the ZooKeeper session expired")

    assert "after at most 2.00 s without a controller" in answers.controller(scene.found()).lines[1]


def test_the_terms_of_controllers() -> None:
    scene = Scene()
    scene.journal.line("c", "elected")
    scene.journal.line("c", "ready")
    scene.journal.line("c", "resigned", why="the ZooKeeper session expired")
    scene.journal.controller_epoch = 5
    scene.journal.line("d", "elected")
    scene.journal.line("d", "ready")

    lines, _ = answers.controller(scene.found())

    assert lines == [
        "epoch 4: node 2, elected 2023-11-14 22:13:20.000, ready 2023-11-14 22:13:21.000, "
        "resigned 2023-11-14 22:13:22.000 (the ZooKeeper session expired)",
        "epoch 5: node 2, elected 2023-11-14 22:13:23.000, ready 2023-11-14 22:13:24.000, "
        "after 2.00 s without a controller",
        "controller now: broker 2, epoch 4",
        answers.NOTHING_PENDING,
    ]


def test_a_reassignment_and_the_brokers_it_waits_for() -> None:
    scene = Scene()
    scene.place(ReplicaAssignment(ids(2, 3, 9), adding=ids(9)), LeaderAndIsr(BrokerId(2), 9, ids(2, 3), 4))
    cause = scene.journal.event("ApiPartitionReassignment")
    scene.journal.line(cause, "reassignment", step="begun", topic="orders", partition=0, adding=[9], awaited=[9])

    lines, _ = answers.reassignment(scene.found())

    assert lines[0].endswith("adding 9, removing none")
    assert lines[1].endswith("orders-0: reassignment begun, adding [9], awaited [9]")
    assert lines[-2:] == [
        "warning: orders-0: stuck reassignment, it waits for 9, not alive",
        "    remedy: start broker 9, or klamm reassign cancel --topic orders",
    ]


@pytest.mark.parametrize("words", [["broker", "7"], ["nowhere"], ["nowhere-3"]])
def test_unknown_subjects(words: list[str]) -> None:
    answer = parse_subject(words).answer(Scene().found())
    assert not answer.is_known
    assert len(answer.lines) == 1


def test_a_topic_may_look_like_a_partition() -> None:
    scene = Scene()
    scene.now.assignments[TopicPartition("data-2024", 0)] = ReplicaAssignment(ids(2))
    scene.now.topic_ids["data-2024"] = uuid.UUID(int=2)

    assert parse_subject(["data-2024"]).answer(scene.found()).lines[0].startswith("data-2024-0: ")


def test_requests_to_a_dead_broker_are_not_reported() -> None:
    scene = Scene()
    scene.journal.request("c", 1, "LEADER_AND_ISR", {}, count=12)
    scene.broker_died()

    lines, _ = answers.controller(scene.found())

    assert not [line for line in lines if "unanswered" in line]


def test_the_first_leader_since_the_topic_was_created() -> None:
    scene = Scene()
    cause = scene.journal.event("TopicChange", new=["orders"])
    scene.journal.leader_decision(cause, "initial", P, None, scene.now.states[P])

    assert "since 2023-11-14 22:13:21.000, by TopicChange: new ['orders']" in answers.partition(scene.found(), P).lines


def test_a_malformed_state_is_restored_from_the_journal() -> None:
    scene = Scene()
    scene.broker_died()
    del scene.now.states[P]
    scene.now.malformed["/brokers/topics/orders/partitions/0/state"] = "no JSON"
    scene.now.connect = "zk:2181/kafka"

    lines, _ = answers.partition(scene.found(), P)

    assert "orders-0 now: replicas 1, 2, 3; the state znode is malformed (no JSON)" in lines
    assert [line for line in lines if line.startswith("critical: /brokers/topics/orders/partitions/0/state: malformed")]
    assert lines[-1] == (
        "    klamm zk set /brokers/topics/orders/partitions/0/state "
        '\'{"controller_epoch":4,"leader":3,"version":1,"leader_epoch":10,"isr":[3]}\' --zookeeper zk:2181/kafka'
    )


def test_a_malformed_topic_is_reported() -> None:
    scene = Scene()
    scene.broker_died()
    scene.now.assignments.clear()
    scene.now.malformed["/brokers/topics/orders"] = "no JSON"

    of_topic, _ = answers.topic(scene.found(), "orders")
    of_partition, _ = answers.partition(scene.found(), P)

    assert of_topic[0] == "the znode of orders is malformed: no JSON"
    assert "orders-0 now: unknown: the znode of its topic is malformed (no JSON)" in of_partition
    assert answers.NOTHING_PENDING not in (*of_topic, *of_partition)


def test_a_pending_deletion_is_reported() -> None:
    scene = Scene()
    scene.now.deletions["orders"] = scene.now.taken_ms - 1_000

    due = "next: orders is deleted (requested at 2023-11-14 22:14:59.000), when broker 1 is back "
    assert any(line.startswith(due) for line in answers.topic(scene.found(), "orders").lines)
    assert any(line.startswith(due) for line in answers.partition(scene.found(), P).lines)


def test_a_topic_with_many_partitions_is_summarized() -> None:
    scene = Scene()
    for number in range(1, 1_000):
        p = TopicPartition("orders", number)
        scene.now.assignments[p] = ReplicaAssignment(ids(2, 3))
        scene.now.states[p] = LeaderAndIsr(BrokerId(2), 9, ids(2, 3) if number > 100 else ids(2), 4)

    lines, _ = answers.topic(scene.found(), "orders")

    assert lines[0] == (
        "orders: 1,000 partitions, 1,000 led by a live node, 899 with all replicas in sync; the others:"
    )
    assert lines[13] == "and 89 more: klamm topics describe --topic orders --under-replicated-partitions"
    assert len(lines) < 20


def test_repeated_steps_are_one_line() -> None:
    scene = Scene()
    for _ in range(50):
        scene.journal.refused("c", "rebalance", "the preferred replica is not alive", partitions={"orders": [0]})

    lines = [line for line in answers.topic(scene.found(), "orders").lines if "rebalance" in line]

    assert len(lines) == 1
    assert lines[0].endswith("(50 times since 2023-11-14 22:13:20.000)")


def test_a_missing_controller_is_reported_for_every_subject() -> None:
    scene = Scene()
    scene.now.controller = None

    assert any("there is no controller" in line for line in answers.partition(scene.found(), P).lines)


def test_an_unreachable_zookeeper_is_reported() -> None:
    scene = Scene()
    scene.broker_died()
    found = scene.found(now=False)._replace(zookeeper_problem="ZooKeeper at zk:1 does not answer")

    assert answers.partition(found, P).lines[-1] == "orders-0 then: leader is node 3, leader epoch 9, ISR 3"
    assert answers.zookeeper_problem(found)[0] == "critical: ZooKeeper at zk:1 does not answer"
    assert answers.zookeeper_problem(scene.found()) == []


def test_a_long_history_is_cut_to_the_last_events() -> None:
    scene = Scene()
    for _ in range(40):
        scene.broker_died()

    lines, _ = answers.partition(scene.found(), P, most_events=5)

    assert lines[0] == "(35 earlier events: --all shows them)"
    assert sum("controller 2, epoch 4" in line for line in lines) == 5


def test_a_partition_shows_the_unanswered_requests_of_its_brokers() -> None:
    scene = Scene()
    scene.broker_died()
    scene.journal.request("c", 3, "LEADER_AND_ISR", {"orders": [0]}, count=1)
    scene.journal.request("c", 2, "LEADER_AND_ISR", {"orders": [0]}, count=1)
    scene.journal.response("c", 2, "LEADER_AND_ISR", ms=1)

    lines = answers.partition(scene.found(), P).lines

    assert [line for line in lines if "has not answered" in line] == [
        "broker 3 has not answered LEADER_AND_ISR for 97.0 s: see klamm explain broker 3; restart the broker "
        "if it hangs"
    ]
