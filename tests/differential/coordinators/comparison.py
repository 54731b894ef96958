"""Two transcripts of one script, line by line."""

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from tests.differential.coordinators.known_differences import ENDING, explain


class Compared(NamedTuple):
    difference: str | None
    """The first one that no rule explains, with its step."""
    known: Counter[str]


def compare(ours: Sequence[str], theirs: Sequence[str]) -> Compared:
    step, known = "", Counter[str]()
    for number, (mine, other) in enumerate(zip_longest(ours, theirs, fillvalue="(nothing)")):
        if not mine.startswith(" "):
            step = mine
        if mine == other:
            continue
        reason = explain(theirs[:number], mine, other)
        if reason is None:
            return Compared(f"{step}\n    klamm: {mine.strip()}\n    Kafka: {other.strip()}", known)
        known[reason] += 1
        if reason in ENDING:
            break
    return Compared(None, known)
