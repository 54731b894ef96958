"""Control requests that were sent and not answered, as journals tell: to whom, how old, how many joined in one."""

from collections.abc import Iterable
from typing import NamedTuple

from klamm.telemetry.journal_reader import Entry, in_order


class Unanswered(NamedTuple):
    broker: int
    api: str
    age_ms: int
    partitions: int
    merged: int
    """Events whose changes travel in it together."""
    failed: str = ""
    """Why the last try to send it failed."""


def unanswered(entries: Iterable[Entry], now_ms: int | None = None) -> list[Unanswered]:
    """By broker and API, the last one sent of each; how old they are now, or were at the journals' last line."""
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
            waiting.clear()  # another term, other channels
        elif e.kind == "found":  # whoever went took its queue along
            gone = {*(e.facts.get("dead") or ()), *(e.facts.get("bounced") or ())}
            waiting = {to: sent for to, sent in waiting.items() if to[0] not in gone}
    at_ms = last_ms if now_ms is None else now_ms
    return [
        Unanswered(
            to, api, max(0, at_ms - e.ts_ms), e.facts.get("count", 0), max(1, len(e.facts.get("causes") or ())), why
        )
        for (to, api), (e, why) in sorted(waiting.items(), key=lambda item: item[0])
    ]
