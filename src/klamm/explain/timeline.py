"""Journal entries as lines of text: each step below the event that caused it."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final

from klamm.telemetry.journal import STATE_FOUND
from klamm.telemetry.journal_reader import Entry, describe_event

_KNOWN: Final = {"topic", "partition", "partitions", "causes"}


def timeline_lines(story: Iterable[Entry]) -> list[str]:
    """Lines for the journal entries: events at the left margin, their steps indented below them."""
    lines: list[str] = []
    for event, steps in groupby(story, key=lambda entry: entry.kind == "event"):
        if event:
            lines += [_event_line(entry) for entry in steps]
        else:
            lines += [f"    {step}" for step in _step_texts(list(steps))]
    return lines


def last_events(story: Sequence[Entry], most_events: int | None) -> tuple[Sequence[Entry], int]:
    """The last events with their steps, and how many events came before them."""
    at = [i for i, entry in enumerate(story) if entry.kind == "event"]
    if most_events is None or len(at) <= most_events:
        return story, 0
    return story[at[-most_events] :], len(at) - most_events


def last_state(story: Iterable[Entry]) -> str | None:
    """Leader, leader epoch and ISR from the last decision in the journal; None when there is no decision."""
    state = None
    for entry in story:
        facts = entry.facts
        if entry.kind == "decision" and facts.get("leader_to") is not None:
            isr = ", ".join(map(str, facts.get("isr") or ()))
            state = (
                f"{_leader_text(facts['leader_to'])}, leader epoch {facts.get('leader_epoch')}, ISR {isr or 'unknown'}"
            )
        elif entry.kind == "deletion" and facts.get("step") == "completed":
            state = "deleted with its topic"
    return state


def utc_time(ts_ms: int) -> str:
    """A time as text, for example `2023-11-14 22:13:22.000`."""
    return datetime.fromtimestamp(ts_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


def _event_line(entry: Entry) -> str:
    """Return one line about the controller event: time, controller, epoch, description."""
    return f"{utc_time(entry.ts_ms)}  controller {entry.node}, epoch {entry.controller_epoch}: {describe_event(entry)}"


def _step_texts(entries: Sequence[Entry]) -> list[str]:
    """Lines for the steps of an event; requests of one kind to several nodes share the line of the first."""
    nodes: dict[str, list[int]] = {}
    for entry in entries:
        if entry.kind == "request":
            nodes.setdefault(entry.facts["api"], []).append(entry.facts["broker"])
    steps: list[str] = []
    for entry in entries:
        if entry.kind != "request":
            steps.append(_step_text(entry))
        elif brokers := nodes.pop(entry.facts["api"], None):
            steps.append(f"sent {entry.facts['api']} to {_nodes_text(brokers)}")
    return steps


def _step_text(entry: Entry) -> str:
    """A decision, write, request or response as text."""
    facts = dict(entry.facts)
    match entry.kind:
        case "decision":
            return _decision_text(facts)
        case "write":
            return f"wrote {facts.pop('what', '')} to ZooKeeper{_other_facts_text(facts)}"
        case "refused":
            what, why = facts.pop("what", ""), facts.pop("why", "")
            return f"refused {what}: {why}{_rejected_text(facts)}{_other_facts_text(facts)}"
        case "response":
            return f"node {facts.pop('broker', '?')} answered {facts.pop('api', '?')}{_other_facts_text(facts)}"
    return f"{entry.kind.replace('-', ' ')}{_other_facts_text(facts)}"


def _decision_text(facts: dict[str, Any]) -> str:
    """Return a phrase about the decision for a partition. Removes the facts that it uses from `facts`."""
    kind, chosen = facts.pop("decision", ""), facts.pop("chosen", None)
    before, after, epoch = (facts.pop(name, None) for name in ("leader_from", "leader_to", "leader_epoch"))
    if after is None:
        words = "none" if chosen is None else f"node {chosen}"
    elif before == after:
        words = f"leader is still {_node_text(after)}" if after >= 0 else "still no leader"
    else:
        words = f"{_leader_text(after)} (was {_node_text(before)})"
    isr_before, isr = facts.pop("isr_from", None), facts.pop("isr", None)
    facts.pop("replicas", None)  # `rejected` has those that are not in the ISR
    if epoch is not None:
        words += f", leader epoch {epoch}"
    if isr is not None:
        words += f", ISR {_comma_separated(isr)}" + (
            f" (was {_comma_separated(isr_before)})" if isr_before and isr_before != isr else ""
        )
    begin = "found in ZooKeeper" if kind == STATE_FOUND else f"decided {kind}"
    return f"{begin}: {words}{_rejected_text(facts)}{_other_facts_text(facts)}"


def _rejected_text(facts: dict[str, Any]) -> str:
    """The rejected candidates of a decision with the reasons, in parentheses."""
    rejected = "; ".join(f"not {broker}: {why}" for broker, why in facts.pop("rejected", None) or ())
    return f" ({rejected})" if rejected else ""


def _leader_text(broker: int | None) -> str:
    """Return `leader is node <id>`, or `no leader`."""
    return "no leader" if broker is None or broker < 0 else f"leader is node {broker}"


def _node_text(broker: int | None) -> str:
    """Return `node <id>`, or `none`."""
    return "none" if broker is None or broker < 0 else f"node {broker}"


def _nodes_text(brokers: Sequence[int]) -> str:
    """Return `node` or `nodes` with the distinct ids in order."""
    distinct = sorted(set(brokers))
    return f"node{'s' if len(distinct) > 1 else ''} {_comma_separated(distinct)}"


def _comma_separated(numbers: Sequence[int]) -> str:
    """Return the numbers as text with commas."""
    return ", ".join(map(str, numbers))


def _other_facts_text(facts: dict[str, Any]) -> str:
    """Text for the facts of an entry that no other part of the line shows."""
    kept = {k: v for k, v in facts.items() if k not in _KNOWN and v not in (None, [], {}, False)}
    return "".join(f", {key.replace('_', ' ')} {value}" for key, value in kept.items())
