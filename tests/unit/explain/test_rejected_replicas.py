"""Replicas that a broker rejected, in the answers of `klamm explain`."""

import pytest
from tests.unit.explain.scene import P, Scene, ids

from klamm.explain import brokers, partitions
from klamm.explain.answer import NOTHING_PENDING
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId
from klamm.model.leader_and_isr import LeaderAndIsr


def test_explain_partition_prints_when_the_current_isr_was_set() -> None:
    scene = Scene()
    scene.broker_died()
    cause = scene.journal.event("AlterPartitionReceived", waited_ms=0.1, version=3)
    facts = {"leader_from": 3, "leader_to": 3, "leader_epoch": 9, "isr_from": [3], "isr": [3, 2]}
    scene.journal.decision(cause, "alter-partition", P, 3, rejected=[], **facts)

    lines, _ = partitions.explain_partition(scene.inputs(), P)

    assert "since 2023-11-14 22:13:22.000, by BrokerChange: dead [1]" in lines
    assert "with this ISR since 2023-11-14 22:13:24.000, by AlterPartitionReceived: version 3" in lines

    scene.place(ReplicaAssignment(ids(1, 2, 3)), LeaderAndIsr(BrokerId(3), 9, ids(3), 4))  # by whom, no journal tells
    assert not any(line.startswith("with this ISR") for line in partitions.explain_partition(scene.inputs(), P).lines)


def rejected(scene: Scene, broker: int, error: str = "INCONSISTENT_TOPIC_ID") -> None:
    """Add a journal entry in which the broker rejects a replica."""
    cause = scene.journal.event("LeaderAndIsrResponseReceived")
    scene.journal.refused(cause, "LEADER_AND_ISR", "why", broker=broker, error=error, partitions={"orders": [0]})


def test_explain_reports_a_replica_rejected_with_inconsistent_topic_id_and_a_remedy() -> None:
    scene = Scene()
    scene.place(ReplicaAssignment(ids(2, 3)), LeaderAndIsr(BrokerId(2), 9, ids(2, 3), 4))
    rejected(scene, 2)  # which leads, as ZooKeeper has it

    for lines, _ in (
        partitions.explain_partition(scene.inputs(), P),
        partitions.explain_topic(scene.inputs(), "orders"),
        brokers.explain_broker(scene.inputs(), BrokerId(2)),
    ):
        assert lines[-2].startswith("warning: orders-0: broker 2 rejects its replica (INCONSISTENT_TOPIC_ID)")
        back, _, fresh = lines[-1].partition("; otherwise ")
        assert back.startswith("    remedy: to keep that log")
        assert (
            'klamm zk set /brokers/topics/orders \'{"removing_replicas":{},"partitions":{"0":[2,3]},"topic_id":"ID"'
            in back
        )
        assert fresh.startswith("stop broker 2, move the directory orders-0 out of its log.dirs")
        assert NOTHING_PENDING not in lines
    assert brokers.explain_broker(scene.inputs(), BrokerId(3)).lines[-1] == NOTHING_PENDING
    assert partitions.explain_partition(scene.inputs(now=False), P).lines[-1].startswith("    remedy: to keep that log")


def test_explain_refers_to_the_brokers_log_for_a_replica_rejected_with_another_error() -> None:
    scene = Scene()
    rejected(scene, 3, "UNKNOWN_SERVER_ERROR")

    assert (
        partitions.explain_partition(scene.inputs(), P)
        .lines[-1]
        .startswith("    remedy: find the reason in the log of")
    )


@pytest.mark.parametrize(
    "listed",
    [{"orders": [0]}, {}],
    ids=["a request that lists the partition", "a request with too many partitions to list"],
)
def test_explain_drops_a_brokers_replica_rejection_after_a_later_leader_and_isr(listed: dict[str, list[int]]) -> None:
    scene = Scene()
    scene.place(ReplicaAssignment(ids(2, 3)), LeaderAndIsr(BrokerId(2), 9, ids(2, 3), 4))
    rejected(scene, 2)
    scene.journal.request("c", 3, "LEADER_AND_ISR", listed, count=1)
    assert NOTHING_PENDING not in partitions.explain_partition(scene.inputs(), P).lines

    scene.journal.request("c", 2, "LEADER_AND_ISR", listed, count=1)
    assert partitions.explain_partition(scene.inputs(), P).lines[-1] == NOTHING_PENDING


def test_explain_does_not_report_rejected_replicas_of_in_sync_followers_or_deleted_topics() -> None:
    scene = Scene()
    scene.place(ReplicaAssignment(ids(2, 3)), LeaderAndIsr(BrokerId(2), 9, ids(2, 3), 4))
    rejected(scene, 3)
    assert partitions.explain_partition(scene.inputs(), P).lines[-1] == NOTHING_PENDING

    rejected(scene, 2)
    scene.journal.line("c", "deletion", step="completed", partitions={"orders": [0]})
    assert partitions.explain_partition(scene.inputs(), P).lines[-1] == NOTHING_PENDING
