"""A story from the journals as lines: each step under the event that caused it."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final

from klamm.telemetry.journal_reader import Entry, why_of

_KNOWN: Final = {"topic", "partition", "partitions", "causes"}


def told(story: Iterable[Entry]) -> list[str]:
    """The story as lines: an event at the margin, what it led to below it, the state it left at the end."""
    lines: list[str] = []
    for event, steps in groupby(story, key=lambda entry: entry.kind == "event"):
        if event:
            lines += [_event(entry) for entry in steps]
        else:
            lines += [f"    {step}" for step in _steps(list(steps))]
    return lines


def latest(story: Sequence[Entry], most_events: int | None) -> tuple[Sequence[Entry], int]:
    """The last events with what they led to, and how many came before them."""
    at = [i for i, entry in enumerate(story) if entry.kind == "event"]
    if most_events is None or len(at) <= most_events:
        return story, 0
    return story[at[-most_events] :], len(at) - most_events


def last_state(story: Iterable[Entry]) -> str | None:
    """Who leads since when, by the last decision that ZooKeeper took, or that it is gone; None where there is none."""
    state = None
    for entry in story:
        facts = entry.facts
        if entry.kind == "decision" and facts.get("leader_to") is not None:
            isr = ", ".join(map(str, facts.get("isr") or ()))
            state = f"{_leader(facts['leader_to'])}, leader epoch {facts.get('leader_epoch')}, ISR {isr or 'unknown'}"
        elif entry.kind == "deletion" and facts.get("step") == "completed":
            state = "deleted with its topic"
    return state


def when(ts_ms: int) -> str:
    """UTC, as everywhere in the journal."""
    return datetime.fromtimestamp(ts_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


def _event(entry: Entry) -> str:
    return f"{when(entry.ts_ms)}  controller {entry.node}, epoch {entry.controller_epoch}: {why_of(entry)}"


def _steps(entries: Sequence[Entry]) -> list[str]:
    """Requests to several nodes are one line, where the first of them was sent."""
    nodes: dict[str, list[int]] = {}
    for entry in entries:
        if entry.kind == "request":
            nodes.setdefault(entry.facts["api"], []).append(entry.facts["broker"])
    steps: list[str] = []
    for entry in entries:
        if entry.kind != "request":
            steps.append(_step(entry))
        elif told := nodes.pop(entry.facts["api"], None):
            steps.append(f"told {_nodes(told)} by {entry.facts['api']}")
    return steps


def _step(entry: Entry) -> str:
    facts = dict(entry.facts)
    match entry.kind:
        case "decision":
            return _decision(facts)
        case "write":
            return f"wrote {facts.pop('what', '')}{_rest(facts)}"
        case "refused":
            what, why = facts.pop("what", ""), facts.pop("why", "")
            return f"refused {what}: {why}{_passed_over(facts)}{_rest(facts)}"
        case "response":
            return f"node {facts.pop('broker', '?')} answered {facts.pop('api', '?')}{_rest(facts)}"
    return f"{entry.kind}{_rest(facts)}"


def _decision(facts: dict[str, Any]) -> str:
    kind, chosen = facts.pop("decision", ""), facts.pop("chosen", None)
    before, after, epoch = (facts.pop(name, None) for name in ("leader_from", "leader_to", "leader_epoch"))
    if after is None:
        words = "nobody" if chosen is None else f"node {chosen}"
    elif before == after:
        words = f"{_leader(after)} still"
    else:
        words = f"{_leader(after)} in place of {_leader(before, alone=True)}"
    isr_before, isr = facts.pop("isr_from", None), facts.pop("isr", None)
    if epoch is not None:
        words += f", leader epoch {epoch}"
    if isr is not None:
        words += f", ISR {_list(isr)}" + (f" (was {_list(isr_before)})" if isr_before and isr_before != isr else "")
    return f"decided {kind}: {words}{_passed_over(facts)}{_rest(facts)}"


def _passed_over(facts: dict[str, Any]) -> str:
    rejected = "; ".join(f"not {broker}: {why}" for broker, why in facts.pop("rejected", None) or ())
    return f" ({rejected})" if rejected else ""


def _leader(broker: int | None, *, alone: bool = False) -> str:
    who = "nobody" if broker is None or broker < 0 else f"node {broker}"
    return who if alone else f"{who} leads"


def _nodes(brokers: Sequence[int]) -> str:
    distinct = sorted(set(brokers))
    return f"node{'s' if len(distinct) > 1 else ''} {_list(distinct)}"


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _rest(facts: dict[str, Any]) -> str:
    """What else an entry holds; the partition itself is known."""
    kept = {k: v for k, v in facts.items() if k not in _KNOWN and v not in (None, [], {}, False)}
    return "".join(f", {key.replace('_', ' ')} {value}" for key, value in kept.items())
