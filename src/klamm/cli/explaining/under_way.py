"""Control requests that were sent and not answered, as journals tell: to whom, how old, how many joined in one."""

from collections.abc import Iterable
from typing import NamedTuple

from klamm.telemetry.journal_reader import Entry, in_order


class Unanswered(NamedTuple):
    broker: int
    api: str
    age_ms: int
    """At the journals' last line."""
    partitions: int
    merged: int
    """Events whose changes travel in it together."""


def unanswered(entries: Iterable[Entry]) -> list[Unanswered]:
    """By broker and API, the last one sent of each."""
    waiting: dict[tuple[int, str], Entry] = {}
    last_ms = 0
    for e in in_order(entries):
        last_ms = max(last_ms, e.ts_ms)
        key = (e.facts.get("broker", -1), e.facts.get("api", ""))
        if e.kind == "request":
            waiting[key] = e
        elif e.kind == "response" and "failed" not in e.facts:
            waiting.pop(key, None)
        elif e.kind in ("elected", "resigned"):
            waiting.clear()  # another term, other channels
    return [
        Unanswered(to, api, last_ms - e.ts_ms, e.facts.get("count", 0), max(1, len(e.facts.get("causes") or ())))
        for (to, api), e in sorted(waiting.items())
    ]
