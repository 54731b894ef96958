"""The answers of `klamm explain` about a broker, the controller and reassignments."""

from tests.unit.explain.scene import Scene, ids

from klamm.explain import brokers, partitions
from klamm.explain.answer import NOTHING_PENDING
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr


def test_explain_broker_prints_registration_audit_findings_and_unanswered_requests() -> None:
    scene = Scene()
    scene.broker_died()
    scene.journal.request("c", 3, "LEADER_AND_ISR", {}, count=12, causes=["a", "b"])
    scene.journal.request("c", 2, "LEADER_AND_ISR", {}, count=1)
    scene.journal.response("c", 2, "LEADER_AND_ISR", ms=1)

    gone, _ = brokers.explain_broker(scene.inputs(), BrokerId(1))
    assert gone[0] == "broker 1 now: not registered; leads 0 partitions (preferred for 1), has 1 replicas"
    assert gone[1].endswith("broker 1 is gone (controller 2, epoch 4)")
    assert "warning: orders-0: under-replicated, broker 1 not in sync" in gone
    assert any(
        line
        == "    remedy: start broker 1 (restart it if its process hangs); no other broker could take all its replicas"
        for line in gone
    )

    slow, _ = brokers.explain_broker(scene.inputs(), BrokerId(3))
    assert slow[0] == "broker 3 now: registered, epoch 103; leads 1 partitions (preferred for 0), has 1 replicas"
    assert slow[1] == "LEADER_AND_ISR to broker 3 unanswered for 97.0 s: 12 partitions, merged from 2 events"

    answered, _ = brokers.explain_broker(scene.inputs(), BrokerId(2))
    assert answered == [
        "broker 2 now: registered, epoch 102, the controller; leads 0 partitions (preferred for 0), has 1 replicas",
        NOTHING_PENDING,
    ]


def test_explain_broker_finds_changes_between_the_live_brokers_of_successive_controllers() -> None:
    scene = Scene()
    scene.journal.line("c", "ready", brokers=[1, 2, 3])
    scene.journal.line("d", "controlled-shutdown", broker=1, partitions={})
    scene.journal.controller_epoch = 5
    scene.journal.line("e", "ready", brokers=[2, 3])
    scene.journal.controller_epoch = 6
    scene.journal.line("f", "ready", brokers=[2, 3])

    def changes_of(broker: int) -> list[str]:
        lines = brokers.explain_broker(scene.inputs(), BrokerId(broker)).lines
        return [line.partition("  ")[2] for line in lines if line.startswith("2023")]

    assert changes_of(1) == [
        "broker 1 was alive (controller 2, epoch 4, newly elected)",
        "broker 1 began a controlled shutdown (controller 2, epoch 4)",
        "broker 1 was gone (controller 2, epoch 5, newly elected)",
    ]
    assert changes_of(3) == ["broker 3 was alive (controller 2, epoch 4, newly elected)"]


def test_explain_prints_an_upper_bound_of_the_time_without_controller_after_a_kill() -> None:
    scene = Scene()
    scene.journal.line("c", "ready", brokers=[2])
    scene.journal.line("c", "elected")
    scene.journal.controller_epoch = 5
    scene.journal.line("d", "elected")
    scene.journal.line("d", "ready")

    assert "after at most 2.00 s without a controller" in brokers.explain_controller(scene.inputs()).lines[1]


def test_explain_prints_an_upper_bound_of_the_time_without_controller_after_a_pause() -> None:
    scene = Scene()
    scene.journal.line("c", "elected")
    scene.journal.line("c", "ready", brokers=[2])
    scene.journal.controller_epoch = 5
    scene.journal.line("d", "elected")
    scene.journal.line("d", "ready", brokers=[2])
    scene.journal.controller_epoch = 4
    scene.journal.line("c", "resigned", why="the ZooKeeper session expired")

    assert "after at most 2.00 s without a controller" in brokers.explain_controller(scene.inputs()).lines[1]


def test_explain_controller_prints_each_term_and_the_time_without_a_controller() -> None:
    scene = Scene()
    scene.journal.line("c", "elected")
    scene.journal.line("c", "ready")
    scene.journal.line("c", "resigned", why="the ZooKeeper session expired")
    scene.journal.controller_epoch = 5
    scene.journal.line("d", "elected")
    scene.journal.line("d", "ready")

    lines, _ = brokers.explain_controller(scene.inputs())

    assert lines == [
        "epoch 4: node 2, elected 2023-11-14 22:13:20.000, ready 2023-11-14 22:13:21.000, "
        "resigned 2023-11-14 22:13:22.000 (the ZooKeeper session expired)",
        "epoch 5: node 2, elected 2023-11-14 22:13:23.000, ready 2023-11-14 22:13:24.000, "
        "after 2.00 s without a controller",
        "controller now: broker 2, epoch 4",
        NOTHING_PENDING,
    ]


def test_explain_controller_prints_the_standby_nodes_and_the_znodes_they_read_again() -> None:
    scene = Scene()
    scene.journal.line("c", "standby", topic_count=3, partition_count=40)
    scene.journal.line("c", "elected")
    scene.journal.line("c", "warm", topic_count=3, partition_count=40, topics_to_read=1, states_to_read=4)

    lines, _ = brokers.explain_controller(scene.inputs())
    assert lines[0].startswith(
        "epoch 4: node 2, elected 2023-11-14 22:13:21.000 (was a standby, read 5 znodes again), not ready"
    )
    assert not [line for line in lines if line.startswith("standby")]

    scene.journal.line("d", "standby", topic_count=3, partition_count=40)
    lines, _ = brokers.explain_controller(scene.inputs())
    assert "standby node 2, 2023-11-14 22:13:23.000: has all 40 partitions in memory" in lines

    scene.journal.line("e", "standby", lost="the ZooKeeper session is disconnected")
    lines, _ = brokers.explain_controller(scene.inputs())
    assert "standby node 2, 2023-11-14 22:13:24.000: lost: the ZooKeeper session is disconnected" in lines

    del scene.now.broker_ownership[BrokerId(2)]
    lines, _ = brokers.explain_controller(scene.inputs())
    assert "standby node 2, 2023-11-14 22:13:24.000: is not registered now" in lines


def test_explain_of_an_unknown_subject_says_which_command_shows_the_known_ones() -> None:
    inputs = Scene().inputs()

    for answer, remedy in (
        (
            partitions.explain_partition(inputs, TopicPartition("orders", 7)),
            "`klamm topics describe --topic orders` shows the partitions of the topic.",
        ),
        (partitions.explain_partition(inputs, TopicPartition("order", 0)), "`klamm topics list` shows the topics."),
        (partitions.explain_topic(inputs, "order"), "`klamm topics list` shows the topics."),
        (partitions.explain_topic(inputs, "group"), "To explain a group, add its name: klamm explain group NAME."),
        (brokers.explain_broker(inputs, BrokerId(7)), "`klamm brokers` shows the brokers."),
    ):
        assert (answer.is_known, len(answer.lines)) == (False, 1)
        assert answer.lines[0].endswith(remedy)


def test_explain_reassignment_names_the_brokers_for_which_the_reassignment_waits() -> None:
    scene = Scene()
    scene.place(ReplicaAssignment(ids(2, 3, 9), adding=ids(9)), LeaderAndIsr(BrokerId(2), 9, ids(2, 3), 4))
    cause = scene.journal.event("ApiPartitionReassignment")
    scene.journal.line(cause, "reassignment", step="begun", topic="orders", partition=0, adding=[9], awaited=[9])

    lines, _ = brokers.explain_reassignments(scene.inputs())

    assert lines[0].endswith("adding 9, removing none")
    assert lines[1].endswith("orders-0: reassignment begun, adding [9], awaited [9]")
    assert lines[-2:] == [
        "warning: orders-0: stuck reassignment, it waits for broker 9, not alive",
        "    remedy: start broker 9, or klamm reassign cancel --topic orders",
    ]


def test_explain_does_not_print_unanswered_requests_to_a_dead_broker() -> None:
    scene = Scene()
    scene.journal.request("c", 1, "LEADER_AND_ISR", {}, count=12)
    scene.broker_died()

    lines, _ = brokers.explain_controller(scene.inputs())

    assert not [line for line in lines if "unanswered" in line]
