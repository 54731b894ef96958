"""Control requests without an answer, by the journal: to which broker, how old, merged from how many events."""

from collections.abc import Iterable
from typing import NamedTuple

from klamm.telemetry.journal_reader import Entry, in_order


class Unanswered(NamedTuple):
    broker: int
    api: str
    age_ms: int
    partitions: int
    merged: int
    """How many events' changes the request contains."""
    failed: str = ""
    """Why the last attempt to send it failed."""


def unanswered(entries: Iterable[Entry], now_ms: int | None = None) -> list[Unanswered]:
    """Return, for each broker and API, the last request that has no answer.

    Ages are relative to `now_ms`, or to the last journal entry.
    """
    waiting: dict[tuple[int, str], tuple[Entry, str]] = {}
    last_ms = 0
    for e in in_order(entries):
        last_ms = max(last_ms, e.ts_ms)
        key = (e.facts.get("broker", -1), e.facts.get("api", ""))
        if e.kind == "request":
            waiting[key] = e, ""
        elif e.kind == "response" and "failed" not in e.facts:
            waiting.pop(key, None)
        elif e.kind == "response" and key in waiting:
            waiting[key] = waiting[key][0], str(e.facts["failed"])
        elif e.kind in ("elected", "resigned"):
            waiting.clear()  # a new term has new channels
        elif e.kind == "found":  # the queue of a dead broker is gone
            gone = {*(e.facts.get("dead") or ()), *(e.facts.get("bounced") or ())}
            waiting = {to: sent for to, sent in waiting.items() if to[0] not in gone}
    at_ms = last_ms if now_ms is None else now_ms
    return [
        Unanswered(
            to, api, max(0, at_ms - e.ts_ms), e.facts.get("count", 0), max(1, len(e.facts.get("causes") or ())), why
        )
        for (to, api), (e, why) in sorted(waiting.items(), key=lambda item: item[0])
    ]
