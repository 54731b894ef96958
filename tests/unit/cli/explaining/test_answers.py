"""What `klamm explain` says of a partition, a topic, a broker, the controller and what moves."""

import uuid
from itertools import count

import pytest
from tests.support.controller_room import ListSink

from klamm.cli.audit.snapshot import Held, Snapshot
from klamm.cli.explaining import answers
from klamm.cli.explaining.command import subject
from klamm.cli.explaining.sources import Found
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
            1_700_000_100_000, BrokerId(2), Held(0x22, 5), controller_epoch=4, controller_epoch_version=4
        )
        for broker in ids(2, 3):
            self.now.brokers[broker] = Registration(Broker(broker, ()))
            self.now.broker_held[broker] = Held(0x20 + broker, 100 + broker)
        self.now.topic_ids["orders"] = uuid.UUID(int=1)
        self.place(ReplicaAssignment(ids(1, 2, 3)), LeaderAndIsr(BrokerId(3), 9, ids(3, 2), 4))

    def place(self, assignment: ReplicaAssignment, state: LeaderAndIsr) -> None:
        self.now.assignments[P], self.now.states[P] = assignment, state

    def broker_died(self) -> None:
        cause = self.journal.event("BrokerChange", waited_ms=0.1)
        self.journal.found(cause, new=[], dead=[1], bounced=[])
        facts = {"leader_from": 1, "leader_to": 3, "leader_epoch": 9, "isr_from": [1, 3], "isr": [3]}
        self.journal.decision(cause, "offline", P, 3, rejected=[(1, "not live")], **facts)

    def found(self, *, now: bool = True) -> Found:
        self.journal.flush()
        return Found(list(entries_of(self._sink.content)), "here", self.now if now else None)


def test_a_partition_with_what_is_wrong_and_what_helps() -> None:
    scene = Scene()
    scene.broker_died()

    lines, known = answers.partition(scene.found(), P)

    assert known
    assert lines[-4:] == [
        "orders-0 now: node 3 leads (preferred is 1), leader epoch 9, ISR 3, 2 of replicas 1, 2, 3",
        "since 2023-11-14 22:13:22.000, by BrokerChange: dead [1]",
        "warning: orders-0: under-replicated, 1 not in sync",
        "    helps: start broker 1",
    ]


def test_a_partition_says_since_when_its_isr_is_as_it_is() -> None:
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


def test_a_partition_that_nobody_leads_says_who_must_come_back() -> None:
    scene = Scene()
    scene.place(ReplicaAssignment(ids(1, 2)), LeaderAndIsr(BrokerId(-1), 9, ids(1), 4))

    lines, _ = answers.partition(scene.found(), P)

    assert lines[0] == "orders-0 now: nobody leads (preferred is 1), leader epoch 9, ISR 1 of replicas 1, 2"
    assert any("no member of its ISR 1 is alive" in line for line in lines)
    assert any("start broker 1; or lose what only they have" in line for line in lines)


def test_a_partition_that_is_assigned_to_nobody() -> None:
    scene = Scene()
    scene.place(ReplicaAssignment(()), LeaderAndIsr(BrokerId(-1), 9, ids(1), 4))

    assert answers.partition(scene.found(), P).lines[0].startswith("orders-0 now: nobody leads, leader epoch 9")


def test_a_partition_without_zookeeper_is_told_from_its_journal() -> None:
    scene = Scene()
    scene.broker_died()

    assert answers.partition(scene.found(now=False), P).lines[-1] == "orders-0 now: node 3 leads, leader epoch 9, ISR 3"


def test_a_journal_that_may_be_behind_does_not_say_now() -> None:
    scene = Scene()
    scene.broker_died()
    found = scene.found(now=False)._replace(where="topic __klamm_journal", is_behind=True)

    assert answers.partition(found, P).lines[-1].startswith("orders-0 then: node 3 leads")
    assert answers.silence(found) == [
        "this is what the topic __klamm_journal knew at 2023-11-14 22:13:22.000: "
        "--zookeeper HOST:PORT/chroot says what is now"
    ]
    assert answers.silence(scene.found()._replace(is_behind=True)) == []


def refused(scene: Scene, broker: int, error: str = "INCONSISTENT_TOPIC_ID") -> None:
    cause = scene.journal.event("LeaderAndIsrResponseReceived")
    scene.journal.refused(cause, "LEADER_AND_ISR", "why", broker=broker, error=error, partitions={"orders": [0]})


def test_a_replica_that_its_broker_refused_is_due_with_what_helps() -> None:
    scene = Scene()
    scene.place(ReplicaAssignment(ids(2, 3)), LeaderAndIsr(BrokerId(2), 9, ids(2, 3), 4))
    refused(scene, 2)  # which leads, as ZooKeeper has it

    for lines, _ in (
        answers.partition(scene.found(), P),
        answers.topic(scene.found(), "orders"),
        answers.broker(scene.found(), BrokerId(2)),
    ):
        assert lines[-2].startswith("warning: orders-0: broker 2 refuses its replica (INCONSISTENT_TOPIC_ID)")
        back, _, fresh = lines[-1].partition("; else ")
        assert back.startswith("    helps: where that log is wanted")
        assert (
            'klamm zk set /brokers/topics/orders \'{"removing_replicas":{},"partitions":{"0":[2,3]},"topic_id":"ID"'
            in back
        )
        assert fresh.startswith("stop broker 2, move the directory orders-0 out of its log.dirs")
        assert answers.NOTHING_DUE not in lines
    assert answers.broker(scene.found(), BrokerId(3)).lines[-1] == answers.NOTHING_DUE
    assert answers.partition(scene.found(now=False), P).lines[-1].startswith("    helps: where that log is wanted")


def test_another_refusal_names_the_brokers_log() -> None:
    scene = Scene()
    refused(scene, 3, "UNKNOWN_SERVER_ERROR")

    assert answers.partition(scene.found(), P).lines[-1].startswith("    helps: look into the log of broker 3")


@pytest.mark.parametrize("partitions", [{"orders": [0]}, {}], ids=["listed", "too many to be listed"])
def test_a_broker_that_was_told_again_refuses_nothing_until_it_says_so(partitions: dict[str, list[int]]) -> None:
    scene = Scene()
    scene.place(ReplicaAssignment(ids(2, 3)), LeaderAndIsr(BrokerId(2), 9, ids(2, 3), 4))
    refused(scene, 2)
    scene.journal.request("c", 3, "LEADER_AND_ISR", partitions, count=1)
    assert answers.NOTHING_DUE not in answers.partition(scene.found(), P).lines

    scene.journal.request("c", 2, "LEADER_AND_ISR", partitions, count=1)
    assert answers.partition(scene.found(), P).lines[-1] == answers.NOTHING_DUE


def test_a_refusal_of_a_follower_that_is_in_sync_or_of_a_deleted_topic_is_history() -> None:
    scene = Scene()
    scene.place(ReplicaAssignment(ids(2, 3)), LeaderAndIsr(BrokerId(2), 9, ids(2, 3), 4))
    refused(scene, 3)
    assert answers.partition(scene.found(), P).lines[-1] == answers.NOTHING_DUE

    refused(scene, 2)
    scene.journal.line("c", "deletion", step="completed", partitions={"orders": [0]})
    assert answers.partition(scene.found(), P).lines[-1] == answers.NOTHING_DUE


def test_a_topic_line_by_line_with_its_steps() -> None:
    scene = Scene()
    scene.broker_died()
    cause = scene.journal.event("TopicDeletion")
    scene.journal.line(cause, "deletion", step="waits", why="broker 1 is not alive", partitions={"orders": [0]})

    lines, _ = answers.topic(scene.found(), "orders")

    assert lines[0].startswith("orders-0: node 3 leads (preferred is 1)")
    assert lines[0].endswith("since 2023-11-14 22:13:22.000 by BrokerChange: dead [1]")
    assert lines[1].endswith("deletion waits, why broker 1 is not alive")


def test_a_topic_that_is_gone_still_has_a_story() -> None:
    scene = Scene()
    cause = scene.journal.event("TopicDeletion")
    scene.journal.line(cause, "deletion", step="completed", partitions={"old": [0]})

    lines, known = answers.topic(scene.found(), "old")
    assert known
    assert lines[0] == "there is no topic old now"
    assert lines[-1] == answers.NOTHING_DUE


def test_a_broker_with_what_it_was_not_yet_told() -> None:
    scene = Scene()
    scene.broker_died()
    scene.journal.request("c", 3, "LEADER_AND_ISR", {}, count=12, causes=["a", "b"])
    scene.journal.request("c", 2, "LEADER_AND_ISR", {}, count=1)
    scene.journal.response("c", 2, "LEADER_AND_ISR", ms=1)

    gone, _ = answers.broker(scene.found(), BrokerId(1))
    assert gone[0] == "broker 1 now: not registered; leads 0 (1 prefer it), holds 1 replicas"
    assert gone[1].endswith("broker 1 went (controller 2, epoch 4)")
    assert "warning: orders-0: under-replicated, 1 not in sync" in gone
    assert any(
        line == "    helps: start broker 1 (a process that hangs: restart it): no other could take all its replicas"
        for line in gone
    )

    slow, _ = answers.broker(scene.found(), BrokerId(3))
    assert slow[0] == "broker 3 now: registered, epoch 103; leads 1 (0 prefer it), holds 1 replicas"
    assert slow[1] == "LEADER_AND_ISR to broker 3 unanswered for 97.0 s: 12 partitions, joined from 2 events"

    answered, _ = answers.broker(scene.found(), BrokerId(2))
    assert answered == [
        "broker 2 now: registered, epoch 102, the controller; leads 0 (0 prefer it), holds 1 replicas",
        answers.NOTHING_DUE,
    ]


def test_a_broker_that_left_or_was_lost_while_there_was_no_controller() -> None:
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
        "broker 1 was there (controller 2, epoch 4, becomes controller)",
        "broker 1 leaves in order (controller 2, epoch 4)",
        "broker 1 was gone (controller 2, epoch 5, becomes controller)",
    ]
    assert told(3) == ["broker 3 was there (controller 2, epoch 4, becomes controller)"]


def test_when_a_killed_controller_died_nobody_knows() -> None:
    scene = Scene()
    scene.journal.line("c", "ready", brokers=[2])
    scene.journal.line("c", "elected")
    scene.journal.controller_epoch = 5
    scene.journal.line("d", "elected")
    scene.journal.line("d", "ready")

    assert "after at most 2.00 s without a controller" in answers.controller(scene.found()).lines[1]


def test_a_frozen_controller_that_resigns_after_the_next_election_was_gone_before() -> None:
    scene = Scene()
    scene.journal.line("c", "elected")
    scene.journal.line("c", "ready", brokers=[2])
    scene.journal.controller_epoch = 5
    scene.journal.line("d", "elected")
    scene.journal.line("d", "ready", brokers=[2])
    scene.journal.controller_epoch = 4
    scene.journal.line("c", "resigned", why="the ZooKeeper session expired")

    assert "after at most 2.00 s without a controller" in answers.controller(scene.found()).lines[1]


def test_the_controllers_one_after_another() -> None:
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
        answers.NOTHING_DUE,
    ]


def test_what_moves_and_what_it_waits_for() -> None:
    scene = Scene()
    scene.place(ReplicaAssignment(ids(2, 3, 9), adding=ids(9)), LeaderAndIsr(BrokerId(2), 9, ids(2, 3), 4))
    cause = scene.journal.event("ApiPartitionReassignment")
    scene.journal.line(cause, "reassignment", step="begun", topic="orders", partition=0, adding=[9], awaited=[9])

    lines, _ = answers.reassignment(scene.found())

    assert lines[0].endswith("adding 9, removing none")
    assert lines[1].endswith("orders-0: reassignment begun, adding [9], awaited [9]")
    assert lines[-2:] == [
        "warning: orders-0: stuck reassignment, waits for 9, not alive",
        "    helps: start broker 9, or klamm reassign cancel --topic orders",
    ]


@pytest.mark.parametrize("words", [["broker", "7"], ["nowhere"], ["nowhere-3"]])
def test_what_nobody_knows(words: list[str]) -> None:
    answer = subject(words).ask(Scene().found())
    assert not answer.is_known
    assert len(answer.lines) == 1


def test_a_topic_may_look_like_a_partition() -> None:
    scene = Scene()
    scene.now.assignments[TopicPartition("data-2024", 0)] = ReplicaAssignment(ids(2))
    scene.now.topic_ids["data-2024"] = uuid.UUID(int=2)

    assert subject(["data-2024"]).ask(scene.found()).lines[0].startswith("data-2024-0: ")


def test_what_a_dead_broker_was_not_told_went_with_it() -> None:
    scene = Scene()
    scene.journal.request("c", 1, "LEADER_AND_ISR", {}, count=12)
    scene.broker_died()

    lines, _ = answers.controller(scene.found())

    assert not [line for line in lines if "unanswered" in line]


def test_the_first_leader_leads_since_the_topic_was_made() -> None:
    scene = Scene()
    cause = scene.journal.event("TopicChange", new=["orders"])
    scene.journal.leader_decision(cause, "initial", P, None, scene.now.states[P])

    assert "since 2023-11-14 22:13:21.000, by TopicChange: new ['orders']" in answers.partition(scene.found(), P).lines


def test_a_state_that_cannot_be_read_is_put_back_from_the_journal() -> None:
    scene = Scene()
    scene.broker_died()
    del scene.now.states[P]
    scene.now.malformed["/brokers/topics/orders/partitions/0/state"] = "no JSON"
    scene.now.connect = "zk:2181/kafka"

    lines, _ = answers.partition(scene.found(), P)

    assert "orders-0 now: replicas 1, 2, 3; who leads cannot be read (no JSON)" in lines
    assert [line for line in lines if line.startswith("critical: /brokers/topics/orders/partitions/0/state: malformed")]
    assert lines[-1] == (
        "    klamm zk set /brokers/topics/orders/partitions/0/state "
        '\'{"controller_epoch":4,"leader":3,"version":1,"leader_epoch":10,"isr":[3]}\' --zookeeper zk:2181/kafka'
    )


def test_a_topic_that_cannot_be_read_is_said_to_be_so() -> None:
    scene = Scene()
    scene.broker_died()
    scene.now.assignments.clear()
    scene.now.malformed["/brokers/topics/orders"] = "no JSON"

    of_topic, _ = answers.topic(scene.found(), "orders")
    of_partition, _ = answers.partition(scene.found(), P)

    assert of_topic[0] == "orders cannot be read: no JSON"
    assert "orders-0 now: unknown: the znode of its topic cannot be read (no JSON)" in of_partition
    assert answers.NOTHING_DUE not in (*of_topic, *of_partition)


def test_a_deletion_that_waits_is_what_comes_next() -> None:
    scene = Scene()
    scene.now.deletions["orders"] = scene.now.taken_ms - 1_000

    due = "next: orders is deleted, as was asked at 2023-11-14 22:14:59.000, once broker 1 is back, "
    assert any(line.startswith(due) for line in answers.topic(scene.found(), "orders").lines)
    assert any(line.startswith(due) for line in answers.partition(scene.found(), P).lines)


def test_a_topic_of_many_partitions_is_summed_up() -> None:
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


def test_what_comes_again_and_again_is_one_line() -> None:
    scene = Scene()
    for _ in range(50):
        scene.journal.refused("c", "rebalance", "the preferred replica is not alive", partitions={"orders": [0]})

    lines = [line for line in answers.topic(scene.found(), "orders").lines if "rebalance" in line]

    assert len(lines) == 1
    assert lines[0].endswith("(50 times since 2023-11-14 22:13:20.000)")


def test_without_a_controller_nobody_is_well() -> None:
    scene = Scene()
    scene.now.controller = None

    assert any("there is no controller" in line for line in answers.partition(scene.found(), P).lines)


def test_a_silent_zookeeper_is_said() -> None:
    scene = Scene()
    scene.broker_died()
    found = scene.found(now=False)._replace(silence="ZooKeeper at zk:1 cannot be asked")

    assert answers.partition(found, P).lines[-1] == "orders-0 then: node 3 leads, leader epoch 9, ISR 3"
    assert answers.silence(found)[0] == "critical: ZooKeeper at zk:1 cannot be asked"
    assert answers.silence(scene.found()) == []


def test_only_the_last_events_of_a_long_story() -> None:
    scene = Scene()
    for _ in range(40):
        scene.broker_died()

    lines, _ = answers.partition(scene.found(), P, most_events=5)

    assert lines[0] == "(35 earlier events: --all tells them)"
    assert sum("controller 2, epoch 4" in line for line in lines) == 5


def test_a_partition_whose_broker_hangs_says_what_that_was_not_told() -> None:
    scene = Scene()
    scene.broker_died()
    scene.journal.request("c", 3, "LEADER_AND_ISR", {"orders": [0]}, count=1)
    scene.journal.request("c", 2, "LEADER_AND_ISR", {"orders": [0]}, count=1)
    scene.journal.response("c", 2, "LEADER_AND_ISR", ms=1)

    lines = answers.partition(scene.found(), P).lines

    assert [line for line in lines if "has not answered" in line] == [
        "broker 3 has not answered LEADER_AND_ISR for 97.0 s: klamm explain broker 3 tells more; where it hangs, "
        "restart it"
    ]
