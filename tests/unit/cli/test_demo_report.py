"""What the demo says about leaders."""

from klamm.cli.demo.report import without_pauses
from klamm.model.ids import TopicPartition
from klamm.telemetry.journal_reader import LeaderChange


def change(ts_ms: int, partition: int, leader_from: int, leader_to: int) -> LeaderChange:
    return LeaderChange(ts_ms, TopicPartition("flights", partition), leader_from, leader_to, 1, "why", (), False)


def test_a_pause_without_a_leader_is_part_of_one_change() -> None:
    changes = [change(1, 4, 2, -1), change(1, 1, 2, -1), change(2, 1, -1, 3), change(2, 4, -1, 1), change(3, 4, 1, 2)]

    joined = [(c.partition.partition, c.leader_from, c.leader_to) for c in without_pauses(changes)]

    assert joined == [(1, 2, 3), (4, 2, 1), (4, 1, 2)]


def test_who_stays_without_a_leader_is_told() -> None:
    assert without_pauses([change(1, 0, 2, -1)]) == [change(1, 0, 2, -1)]
