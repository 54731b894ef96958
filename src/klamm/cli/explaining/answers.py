"""What is said about a partition, a topic, a broker, the controller, and what moves: journals and tree in, lines out.

Each answer ends with what is wrong with its subject, what comes next and which command would help; these are the
audit's findings.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from klamm.cli.audit.findings import Finding, findings
from klamm.cli.audit.snapshot import Snapshot
from klamm.cli.explaining.sources import Found
from klamm.cli.explaining.story import last_state, told, when
from klamm.cli.explaining.under_way import unanswered
from klamm.model.ids import BrokerId, TopicPartition
from klamm.telemetry.journal_reader import (
    Entry,
    LeaderChange,
    controller_absence_ms,
    controller_terms,
    in_order,
    leader_changes,
    story_of,
)

NOTHING_DUE: Final = "next: nothing is due"
_SHOWN: Final = 12
_SAID_ALREADY: Final = ("partition", "partitions", "topic", "topics")


class Answer(NamedTuple):
    lines: list[str]
    is_known: bool
    """Whether anything was found about the subject."""


# ---- a partition


def partition(found: Found, wanted: TopicPartition) -> Answer:
    """Its story; who leads now and since when; what is due."""
    story = story_of(found.entries, wanted)
    state = _state_now(found.now, wanted)
    if not story and state is None:
        return Answer([f"the journals in {found.where} do not speak of {wanted}{_known(found)}"], False)
    lines = told(story)
    if state is not None:
        lines.append(f"{wanted} now: {state}")
        if change := _last_change(found.entries, wanted):
            lines.append(f"since {when(change.ts_ms)}, by {change.why or 'an event that the journals do not hold'}")
    elif (remembered := last_state(story)) is not None:
        lines.append(f"{wanted} now: {remembered}")
    return Answer([*lines, *_due(found.now, {str(wanted), wanted.topic})], True)


def _known(found: Found) -> str:
    known = sorted({str(change.partition) for change in leader_changes(found.entries)})
    return f"; they speak of {', '.join(known[:6])}{' ...' if len(known) > 6 else ''}" if known else ""


def _state_now(now: Snapshot | None, p: TopicPartition) -> str | None:
    if now is None or p not in now.assignments:
        return None
    assignment, state = now.assignments[p], now.states.get(p)
    if state is None:
        return f"replicas {_list(assignment.replicas)}, nobody leads yet"
    leader = f"node {state.leader} leads" if state.leader >= 0 else "nobody leads"
    first = assignment.replicas[0] if assignment.replicas else None
    preferred = "" if first in (None, state.leader) else f" (preferred is {first})"
    moving = ""
    if assignment.is_being_reassigned:
        moving = f", adding {_list(assignment.adding) or 'none'}, removing {_list(assignment.removing) or 'none'}"
    return (
        f"{leader}{preferred}, leader epoch {state.leader_epoch}, ISR {_list(state.isr)} "
        f"of replicas {_list(assignment.replicas)}{moving}"
    )


def _last_change(entries: Iterable[Entry], p: TopicPartition) -> LeaderChange | None:
    changes = [c for c in leader_changes(entries) if c.partition == p]
    return changes[-1] if changes else None


# ---- a topic


def topic(found: Found, name: str) -> Answer:
    """Each partition on a line, and what happened to the topic as a whole."""
    about = [e for e in in_order(found.entries) if _speaks_of(e, name)]
    partitions = sorted(p for p in (found.now.assignments if found.now else ()) if p.topic == name)
    if not about and not partitions:
        return Answer([f"neither the journals in {found.where} nor ZooKeeper know of a topic {name}"], False)
    lines = [f"{p}: {_state_now(found.now, p)}{_since(found.entries, p)}" for p in partitions]
    if found.now is not None and not partitions:
        lines.append(f"there is no topic {name} now")
    steps = [e for e in about if e.kind in ("deletion", "new-partitions", "reassignment", "refused")]
    lines += [f"{when(e.ts_ms)}  {_step(e)}" for e in steps[-_SHOWN:]]
    subjects = {name, *map(str, partitions)}
    return Answer([*lines, *_due(found.now, subjects)], True)


def _speaks_of(entry: Entry, name: str) -> bool:
    listed = entry.facts.get("partitions")
    topics = entry.facts.get("topics")
    return (
        entry.facts.get("topic") == name
        or (isinstance(listed, dict) and name in listed)
        or (isinstance(topics, list) and name in topics)
    )


def _since(entries: Iterable[Entry], p: TopicPartition) -> str:
    change = _last_change(entries, p)
    return f", since {when(change.ts_ms)} by {change.why}" if change else ""


def _step(entry: Entry) -> str:
    kept = {k: v for k, v in entry.facts.items() if k not in _SAID_ALREADY and v not in (None, [])}
    what = kept.pop("step", kept.pop("what", ""))
    rest = "".join(f", {k.replace('_', ' ')} {v}" for k, v in kept.items())
    return f"{entry.kind} {what}{rest}".strip()


# ---- a broker


def broker(found: Found, number: BrokerId) -> Answer:
    """Is it there, what does it lead and hold, what came and went, and what it was not yet told."""
    lines = _registration(found.now, number) if found.now is not None else []
    seen = [e for e in in_order(found.entries) if e.kind == "found" and number in _brokers(e)]
    lines += [f"{when(e.ts_ms)}  {_came_or_went(e, number)}" for e in seen[-_SHOWN:]]
    lines += _under_way(found.entries, number)
    if not lines:
        return Answer([f"neither the journals in {found.where} nor ZooKeeper know of a broker {number}"], False)
    return Answer([*lines, *_due(found.now, {f"broker {number}", f"/brokers/ids/{number}"})], True)


def _registration(now: Snapshot, number: BrokerId) -> list[str]:
    held = sum(number in a.replicas for a in now.assignments.values())
    led = sum(s.leader == number for s in now.states.values())
    preferred = sum(bool(a.replicas) and a.replicas[0] == number for a in now.assignments.values())
    registered = now.broker_held.get(number)
    if registered is None and not held:
        return []
    there = f"registered, epoch {registered.czxid}" if registered else "not registered"
    controller = ", the controller" if now.controller == number else ""
    return [
        f"broker {number} now: {there}{controller}; leads {led:,} ({preferred:,} prefer it), holds {held:,} replicas"
    ]


def _brokers(entry: Entry) -> set[int]:
    return {b for name in ("new", "dead", "bounced") for b in entry.facts.get(name) or () if isinstance(b, int)}


def _came_or_went(entry: Entry, number: int) -> str:
    words = {"new": "came", "dead": "went", "bounced": "came back at once: another process"}
    happened = next(words[name] for name in words if number in (entry.facts.get(name) or ()))
    return f"broker {number} {happened} (controller {entry.node}, epoch {entry.controller_epoch})"


def _under_way(entries: Iterable[Entry], number: int | None = None) -> list[str]:
    """To one broker, or to all."""
    return [
        f"{u.api} to broker {u.broker} unanswered for {u.age_ms / 1000:.1f} s: {u.partitions} partitions"
        + (f", joined from {u.merged} events" if u.merged > 1 else "")
        for u in unanswered(entries)
        if number in (None, u.broker)
    ]


# ---- the controller


def controller(found: Found) -> Answer:
    """Who it is, its terms and the times without one, and what brokers did not answer yet."""
    terms = controller_terms(found.entries)
    lines: list[str] = []
    for before, term in zip([None, *terms], terms, strict=False):
        absent = controller_absence_ms(before, term) if before is not None else None
        gap = f", after {absent / 1000:.2f} s without a controller" if absent is not None else ""
        ready = f"ready {when(term.ready_ms)}" if term.ready_ms else "not ready"
        end = ""
        if term.resigned_ms is not None:
            end = f", resigned {when(term.resigned_ms)}{_why_resigned(found.entries, term.controller_epoch)}"
        lines.append(
            f"epoch {term.controller_epoch}: node {term.node}, elected {when(term.elected_ms)}, {ready}{gap}{end}"
        )
    lines = lines[-_SHOWN:]
    now = found.now
    if now is not None:
        who = f"broker {now.controller}" if now.controller is not None else "nobody"
        lines.append(f"controller now: {who}, epoch {now.controller_epoch}")
    lines += _under_way(found.entries)
    if not lines:
        return Answer([f"the journals in {found.where} tell of no controller"], False)
    return Answer([*lines, *_due(now, {"/controller", "/controller_epoch"})], True)


def _why_resigned(entries: Iterable[Entry], epoch: int) -> str:
    why = [e.facts.get("why") for e in entries if e.kind == "resigned" and e.controller_epoch == epoch]
    return f" ({why[-1]})" if why and why[-1] else ""


# ---- what moves


def reassignment(found: Found) -> Answer:
    """Every partition that moves: from where to where, what it waits for, what became of it."""
    lines: list[str] = []
    moving = []
    if found.now is not None:
        moving = sorted(p for p, a in found.now.assignments.items() if a.is_being_reassigned)
        lines += [f"{p}: {_state_now(found.now, p)}" for p in moving]
        if not moving:
            lines.append("no partition moves now")
    steps = [e for e in in_order(found.entries) if e.kind == "reassignment"]
    for e in steps[-_SHOWN:]:
        lines.append(f"{when(e.ts_ms)}  {e.facts.get('topic')}-{e.facts.get('partition')}: {_step(e)}")
    if not lines:
        return Answer([f"the journals in {found.where} tell of no reassignment"], False)
    return Answer([*lines, *_due(found.now, {*map(str, moving), "/admin/reassign_partitions"})], True)


# ---- what is due


def _due(now: Snapshot | None, subjects: set[str]) -> list[str]:
    """What is wrong with these, and what mends it."""
    if now is None:
        return []
    about = [f for f in findings(now) if not subjects.isdisjoint(f.subjects)]
    return [line for f in about for line in _finding(f, subjects)] or [NOTHING_DUE]


def _finding(finding: Finding, subjects: set[str]) -> list[str]:
    named = [s for s in finding.subjects if s in subjects]
    which = f"{', '.join(named[:3])}{' ...' if len(named) > 3 else ''}: " if len(subjects) > 1 else ""
    return [f"{finding.severity}: {which}{finding.kind}, {finding.why}", f"    helps: {finding.remedy}"]


def _list(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers))
