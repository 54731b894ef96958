"""How a partition's story ends."""

from klamm.explain.story import last_state
from klamm.telemetry.journal_reader import Entry


def entry(kind: str, **facts: object) -> Entry:
    return Entry(0, 1, 1, 1, "1.1.1", kind, facts)


LED = entry("decision", leader_to=3, leader_epoch=5, isr=[3, 1])


def test_the_last_decision_tells_who_leads() -> None:
    assert last_state([entry("decision", leader_to=1, leader_epoch=4, isr=[1]), LED]) == (
        "node 3 leads, leader epoch 5, ISR 3, 1"
    )


def test_nobody_leads_what_was_deleted() -> None:
    assert last_state([LED, entry("deletion", step="begins")]) == "node 3 leads, leader epoch 5, ISR 3, 1"
    assert last_state([LED, entry("deletion", step="completed")]) == "deleted with its topic"
    assert last_state([LED, entry("deletion", step="completed"), LED]) == "node 3 leads, leader epoch 5, ISR 3, 1"
