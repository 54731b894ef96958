"""Differences that are on purpose: each with its reason, and in `wanted/` exactly what they are.

The reasons stand in `docs/differences.md` at more length.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.differential.plays import Difference
from tests.differential.said import BROKERS

MEMORY_WAS_OLD = "BAD_VERSION of a later one"
WANTED = Path(__file__).parent / "wanted"

_FROM_MEMORY = "states are written on what is remembered; they are read where the write is refused"
_OLDER = "the node around our controller speaks 3.9 in these plays, only the controller speaks the older protocol"
REASONS = {
    "unclean_allowed_when_it_is_too_late": "changes of configurations are not followed yet",
    "an_isr_change_that_zookeeper_refuses": _FROM_MEMORY,
    "a_state_that_nobody_can_read": _FROM_MEMORY,
    "a_newer_controller_has_written": _FROM_MEMORY,
    "an_isr_change_to_nobody": "an ISR is never empty: INVALID_REQUEST",
    "isr_changes_beyond_the_assignment": "who holds no replica is ineligible, like a dead broker",
    "isr_changes_by_a_broker_that_does_not_lead": "only the leader changes the ISR: INVALID_REQUEST",
    "an_isr_change_with_an_unknown_recovery_state": "INVALID_REQUEST for that partition; the others are served",
    "a_small_life_in_2_8": _OLDER,
    "a_small_life_in_2_4": _OLDER,
    "a_small_life_in_2_2": _OLDER,
    "a_small_life_in_1_0": _OLDER,
    "a_small_life_in_0_10_2": _OLDER,
}
"""By script. Its differences are in the file of that name."""

NOT_YET = frozenset(Path(__file__).with_name("not_yet.txt").read_text().split())
"""Scripts about what our controller does not do yet, or not yet as Apache Kafka does."""


def unwanted(script: str, found: Iterable[Difference]) -> list[Difference]:
    """Those that nobody asked for."""
    listed = wanted(script)
    return [d for d in found if not is_always_wanted(d) and d not in listed]


def wanted(script: str) -> list[Difference]:
    if script not in REASONS:
        return []
    return [Difference(*entry.values()) for entry in json.loads(_file(script).read_text())]


def accept(script: str, found: Iterable[Difference]) -> None:
    """From now on these are on purpose. Raises KeyError where nobody gave a reason."""
    assert REASONS[script]
    entries = [d._asdict() for d in found if not is_always_wanted(d)]
    _file(script).write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n")


def _file(script: str) -> Path:
    return WANTED / f"{script}.json"


def is_always_wanted(difference: Difference) -> bool:
    """In whatever script."""
    return is_newer_broker_list(difference) or is_tried_from_memory(difference)


def is_tried_from_memory(difference: Difference) -> bool:
    """Kafka reads each state before it writes it; ours reads where its own knowledge turned out to be old."""
    if difference.place != "refused":
        return False
    theirs, ours = (
        [why for why in each or [] if why != MEMORY_WAS_OLD] for each in (difference.kafka, difference.klamm)
    )
    return theirs == ours


def is_newer_broker_list(difference: Difference) -> bool:
    """Ours is taken when a request leaves, not when it is queued: a list that is old by then is never told."""
    if not difference.place.endswith(f" {BROKERS}") or not difference.klamm or not difference.kafka:
        return False
    return difference.klamm[-1] == difference.kafka[-1] and _is_within(difference.klamm, difference.kafka)


def _is_within(part: Sequence[str], whole: Sequence[str]) -> bool:
    rest = iter(whole)
    return all(item in rest for item in part)
