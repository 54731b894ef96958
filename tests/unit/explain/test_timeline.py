"""The last state of a partition in the journal."""

from klamm.explain.timeline import last_state
from klamm.telemetry.journal_reader import Entry


def entry(kind: str, **facts: object) -> Entry:
    return Entry(0, 1, 1, 1, "1.1.1", kind, facts)


LED = entry("decision", leader_to=3, leader_epoch=5, isr=[3, 1])


def test_the_last_decision_gives_the_leader() -> None:
    assert last_state([entry("decision", leader_to=1, leader_epoch=4, isr=[1]), LED]) == (
        "leader is node 3, leader epoch 5, ISR 3, 1"
    )


def test_a_deleted_partition_has_no_leader() -> None:
    assert last_state([LED, entry("deletion", step="begins")]) == "leader is node 3, leader epoch 5, ISR 3, 1"
    assert last_state([LED, entry("deletion", step="completed")]) == "deleted with its topic"
    assert last_state([LED, entry("deletion", step="completed"), LED]) == "leader is node 3, leader epoch 5, ISR 3, 1"
