"""What is said about a partition, a topic, a broker, the controller, and what moves: journals and tree in, lines out.

Each answer ends with what is wrong with its subject, what comes next and which command would help; these are the
audit's findings.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from msgspec.json import encode

from klamm.cli.audit.findings import Finding, Severity, findings
from klamm.cli.audit.snapshot import Snapshot
from klamm.cli.explaining.refusals import refusals
from klamm.cli.explaining.sources import Found
from klamm.cli.explaining.story import last_state, latest, told, when
from klamm.cli.explaining.under_way import unanswered
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.telemetry.journal_reader import (
    Entry,
    LeaderChange,
    Term,
    controller_absence_ms,
    controller_terms,
    in_order,
    leader_changes,
    leaders_since,
    story_of,
    was_handed_over,
    why_of,
)
from klamm.zk import znodes

NOTHING_DUE: Final = "next: nothing is due"
_SHOWN: Final = 12
_SLOW_MS: Final = 2_000
"""A broker that takes longer over what it is told."""
_LISTED: Final = 20
"""A topic of more partitions is summed up."""
_SAID_ALREADY: Final = ("partition", "partitions", "topic", "topics")


class Answer(NamedTuple):
    lines: list[str]
    is_known: bool
    """Whether anything was found about the subject."""


# ---- a partition


def partition(found: Found, wanted: TopicPartition, most_events: int | None = None) -> Answer:
    """Its story, or the last events of it; who leads now and since when; what is due."""
    story = story_of(found.entries, wanted)
    state = _state_now(found.now, wanted)
    if not story and state is None:
        return Answer([f"the journals in {found.where} do not speak of {wanted}{_known(found)}"], False)
    told_now, left_out = latest(story, most_events)
    lines = [f"({left_out:,} earlier events: --all tells them)"] if left_out else []
    lines += told(told_now)
    if state is not None:
        lines.append(f"{wanted} now: {state}")
        if (change := leaders_since(found.entries).get(wanted)) and _leads_still(found.now, change):
            lines.append(f"since {when(change.ts_ms)}, by {change.why or 'an event that the journals do not hold'}")
            lines += _isr_since(found.now, wanted, story, change.ts_ms)
        lines += _not_told(found, found.now.assignments.get(wanted) if found.now else None)
    elif (remembered := last_state(story)) is not None:
        is_now = found.silence is None and not found.is_behind
        lines.append(f"{wanted} {'now' if is_now else 'then'}: {remembered}")
    refused = refusals(found, lambda r: r.partition == wanted)
    return Answer(
        [*lines, *_due(found.now, _of_partition(wanted), refused), *_written_back(found, wanted, story)], True
    )


def _isr_since(now: Snapshot | None, p: TopicPartition, story: Sequence[Entry], led_since_ms: int) -> list[str]:
    """By what the ISR became as it is, where that was after its leader came."""
    changes = [e for e in story if e.kind == "decision" and e.facts.get("isr") not in (None, e.facts.get("isr_from"))]
    state = now.states.get(p) if now else None
    if not changes or changes[-1].ts_ms <= led_since_ms or (state and tuple(changes[-1].facts["isr"]) != state.isr):
        return []
    events = (why_of(e) for e in story if e.kind == "event" and e.cause == changes[-1].cause)
    why = next(events, "an event that the journals do not hold")
    return [f"with this ISR since {when(changes[-1].ts_ms)}, by {why}"]


def _not_told(found: Found, assignment: ReplicaAssignment | None) -> list[str]:
    """What its brokers have not answered for a while: they may lead or follow as they did before."""
    waiting = unanswered(found.entries, found.now.taken_ms if found.now else None)
    replicas = assignment.replicas if assignment else ()
    return [
        f"broker {u.broker} has not answered {u.api} for {u.age_ms / 1000:.1f} s: "
        f"klamm explain broker {u.broker} tells more; where it hangs, restart it"
        for u in waiting
        if u.broker in replicas and u.age_ms >= _SLOW_MS
    ]


def _leads_still(now: Snapshot | None, change: LeaderChange) -> bool:
    """What the journals tell last is what ZooKeeper holds: nobody without a journal decided since."""
    state = now.states.get(change.partition) if now else None
    return state is None or state.leader == change.leader_to


def _of_partition(p: TopicPartition) -> set[str]:
    """What findings about it, its topic and their znodes are about."""
    return {str(p), znodes.state_path(p), *_of_topic(p.topic)}


def _of_topic(name: str) -> set[str]:
    return {name, znodes.topic_path(name), znodes.topic_config_path(name), znodes.delete_topic_path(name)}


def _written_back(found: Found, p: TopicPartition, story: Iterable[Entry]) -> list[str]:
    """Where the state cannot be read any more: the command that puts back what the journals know of it."""
    now, path = found.now, znodes.state_path(p)
    if now is None or p in now.states or (p not in now.assignments and path not in now.malformed):
        return []
    decided = [e for e in story if e.kind == "decision" and e.facts.get("leader_to") is not None]
    if not decided:
        return []
    last = decided[-1]
    state = {
        "controller_epoch": last.controller_epoch,
        "leader": last.facts["leader_to"],
        "version": 1,
        "leader_epoch": last.facts.get("leader_epoch", 0) + 1,
        "isr": last.facts.get("isr") or [],
    }
    return [
        f"    as the journals knew it at {when(last.ts_ms)}, one leader epoch higher, for brokers to take it:",
        f"    klamm zk set {path} '{encode(state).decode()}' --zookeeper {now.connect}",
    ]


def _known(found: Found) -> str:
    known = sorted({str(change.partition) for change in leader_changes(found.entries)})
    return f"; they speak of {', '.join(known[:6])}{' ...' if len(known) > 6 else ''}" if known else ""


def _state_now(now: Snapshot | None, p: TopicPartition) -> str | None:
    if now is None:
        return None
    if (why := now.malformed.get(znodes.topic_path(p.topic))) is not None:
        return f"unknown: the znode of its topic cannot be read ({why})"
    if p not in now.assignments:
        return None
    assignment, state = now.assignments[p], now.states.get(p)
    if (why := now.malformed.get(znodes.state_path(p))) is not None:
        return f"replicas {_list(assignment.replicas)}; who leads cannot be read ({why})"
    if state is None:
        return f"replicas {_list(assignment.replicas)}, nobody leads yet"
    leader = f"node {state.leader} leads" if state.leader >= 0 else "nobody leads"
    if state.leader >= 0 and state.leader not in now.live:
        leader = f"node {state.leader} leads, and is not alive"
    first = assignment.replicas[0] if assignment.replicas else None
    preferred = "" if first in (None, state.leader) else f" (preferred is {first})"
    moving = ""
    if assignment.is_being_reassigned:
        moving = f", adding {_list(assignment.adding) or 'none'}, removing {_list(assignment.removing) or 'none'}"
    return (
        f"{leader}{preferred}, leader epoch {state.leader_epoch}, ISR {_list(state.isr)} "
        f"of replicas {_list(assignment.replicas)}{moving}"
    )


# ---- a topic


def topic(found: Found, name: str) -> Answer:
    """Each partition on a line, of many those that are not well; and what happened to the topic as a whole."""
    about = [e for e in in_order(found.entries) if _speaks_of(e, name)]
    partitions = sorted(p for p in (found.now.assignments if found.now else ()) if p.topic == name)
    if not about and not partitions:
        return Answer([f"neither the journals in {found.where} nor ZooKeeper know of a topic {name}"], False)
    lines = _partitions(found, name, partitions)
    if found.now is not None and not partitions:
        why = found.now.malformed.get(znodes.topic_path(name))
        lines.append(f"there is no topic {name} now" if why is None else f"{name} cannot be read: {why}")
    steps = [e for e in about if e.kind in ("deletion", "new-partitions", "reassignment", "refused")]
    lines += _steps(steps)[-_SHOWN:]
    subjects = _of_topic(name).union(*({str(p), znodes.state_path(p)} for p in partitions))
    return Answer([*lines, *_due(found.now, subjects, refusals(found, lambda r: r.partition.topic == name))], True)


def _partitions(found: Found, name: str, partitions: Sequence[TopicPartition]) -> list[str]:
    now = found.now
    if now is None or not partitions:
        return []
    since = leaders_since(found.entries)
    if len(partitions) <= _LISTED:
        return [_partition_line(now, p, since) for p in partitions]
    unwell = [p for p in partitions if not _is_well(now, p)]
    led = sum(p in now.states and now.states[p].leader in now.live for p in partitions)
    more = len(unwell) - _SHOWN
    return [
        f"{name}: {len(partitions):,} partitions, {led:,} led by a live node, {len(partitions) - len(unwell):,} with "
        "all replicas in sync" + ("; the others:" if unwell else ""),
        *(_partition_line(now, p, since) for p in unwell[:_SHOWN]),
        *(
            [f"and {more:,} more: klamm topics describe --topic {name} --under-replicated-partitions"]
            if more > 0
            else []
        ),
    ]


def _partition_line(now: Snapshot, p: TopicPartition, since: dict[TopicPartition, LeaderChange]) -> str:
    change = since.get(p)
    known = f", since {when(change.ts_ms)} by {change.why}" if change and _leads_still(now, change) else ""
    return f"{p}: {_state_now(now, p)}{known}"


def _is_well(now: Snapshot, p: TopicPartition) -> bool:
    state = now.states.get(p)
    return state is not None and state.leader in now.live and set(now.assignments[p].replicas) <= set(state.isr)


def _speaks_of(entry: Entry, name: str) -> bool:
    listed = entry.facts.get("partitions")
    topics = entry.facts.get("topics")
    return (
        entry.facts.get("topic") == name
        or (isinstance(listed, dict) and name in listed)
        or (isinstance(topics, list) and name in topics)
    )


def _steps(entries: Iterable[Entry]) -> list[str]:
    """One line for what came again and again, where it came last."""
    lines: list[str] = []
    for text, same in groupby(entries, key=_step):
        times = [e.ts_ms for e in same]
        often = f" ({len(times):,} times since {when(times[0])})" if len(times) > 1 else ""
        lines.append(f"{when(times[-1])}  {text}{often}")
    return lines


def _step(entry: Entry) -> str:
    kept = {k: v for k, v in entry.facts.items() if k not in _SAID_ALREADY and v not in (None, [])}
    what = kept.pop("step", kept.pop("what", ""))
    rest = "".join(f", {k.replace('_', ' ')} {v}" for k, v in kept.items())
    return f"{entry.kind} {what}{rest}".strip()


# ---- a broker


def broker(found: Found, number: BrokerId) -> Answer:
    """Is it there, what does it lead and hold, what came and went, and what it was not yet told."""
    lines = _registration(found.now, number) if found.now is not None else []
    lines += _came_and_went(found.entries, number)[-_SHOWN:]
    lines += _under_way(found, number)
    if not lines:
        return Answer([f"neither the journals in {found.where} nor ZooKeeper know of a broker {number}"], False)
    subjects = {f"broker {number}", znodes.broker_path(number), znodes.config_path("brokers", str(number))}
    if found.now is not None:
        subjects |= {str(p) for p, a in found.now.assignments.items() if _is_missed(found.now, p, a, number)}
    return Answer([*lines, *_due(found.now, subjects, refusals(found, lambda r: r.broker == number))], True)


def _is_missed(now: Snapshot, p: TopicPartition, assignment: ReplicaAssignment, number: BrokerId) -> bool:
    """Whether a partition has a replica there that is not in sync, or nobody leads it."""
    state = now.states.get(p)
    return number in assignment.replicas and (state is None or number not in state.isr or state.leader not in now.live)


def _registration(now: Snapshot, number: BrokerId) -> list[str]:
    held = sum(number in a.replicas for a in now.assignments.values())
    led = sum(s.leader == number for s in now.states.values())
    preferred = sum(bool(a.replicas) and a.replicas[0] == number for a in now.assignments.values())
    registered = now.broker_held.get(number)
    if registered is None and not held:
        return []
    there = f"registered, epoch {registered.czxid}" if registered else "not registered"
    if registered and registered.owner_session == 0:
        there += ", and nobody holds the registration"
    controller = ", the controller" if now.controller == number else ""
    return [
        f"broker {number} now: {there}{controller}; leads {led:,} ({preferred:,} prefer it), holds {held:,} replicas"
    ]


def _came_and_went(entries: Iterable[Entry], number: int) -> list[str]:
    """A controller tells of changes while it is active; when it becomes active, of those that are there."""
    lines: list[str] = []
    is_there: bool | None = None
    for e in in_order(entries):
        if e.kind == "found" and number in _brokers(e):
            happened, is_there = _came_or_went(e, number), number not in (e.facts.get("dead") or ())
        elif e.kind == "ready" and (number in e.facts.get("brokers", ())) is not bool(is_there):
            is_there = not is_there
            happened = "was there" if is_there else "was gone"
        elif e.kind == "controlled-shutdown" and e.facts.get("broker") == number:
            happened = "leaves in order"
        else:
            continue
        lines.append(
            f"{when(e.ts_ms)}  broker {number} {happened} (controller {e.node}, epoch {e.controller_epoch}"
            f"{', becomes controller' if e.kind == 'ready' else ''})"
        )
    return lines


def _brokers(entry: Entry) -> set[int]:
    return {b for name in ("new", "dead", "bounced") for b in entry.facts.get(name) or () if isinstance(b, int)}


def _came_or_went(entry: Entry, number: int) -> str:
    words = {"new": "came", "dead": "went", "bounced": "came back at once: another process"}
    return next(words[name] for name in words if number in (entry.facts.get(name) or ()))


def _under_way(found: Found, number: int | None = None) -> list[str]:
    """To one broker, or to all."""
    return [
        f"{u.api} to broker {u.broker} unanswered for {u.age_ms / 1000:.1f} s: {u.partitions} partitions"
        + (f", joined from {u.merged} events" if u.merged > 1 else "")
        + (f"; the last try failed: {u.failed}" if u.failed else "")
        for u in unanswered(found.entries, found.now.taken_ms if found.now else None)
        if number in (None, u.broker)
    ]


# ---- the controller


def controller(found: Found) -> Answer:
    """Who it is, its terms and the times without one, and what brokers did not answer yet."""
    terms = controller_terms(found.entries)
    lines: list[str] = []
    for before, term in list(zip([None, *terms], terms, strict=False))[-_SHOWN:]:
        gap = _without(found.entries, before, term) if before is not None else ""
        ready = f"ready {when(term.ready_ms)}" if term.ready_ms else "not ready"
        end = ""
        if term.resigned_ms is not None:
            end = f", resigned {when(term.resigned_ms)}{_why_resigned(found.entries, term.controller_epoch)}"
        lines.append(
            f"epoch {term.controller_epoch}: node {term.node}, elected {when(term.elected_ms)}, {ready}{gap}{end}"
        )
    now = found.now
    if now is not None:
        who = f"broker {now.controller}" if now.controller is not None else "nobody"
        lines.append(f"controller now: {who}, epoch {now.controller_epoch}")
    lines += _under_way(found)
    if not lines:
        return Answer([f"the journals in {found.where} tell of no controller"], False)
    return Answer([*lines, *_due(now, {"/controller", "/controller_epoch"})], True)


def _without(entries: Iterable[Entry], before: Term, after: Term) -> str:
    """How long there was none; at most, where it is not known when the one before died or froze."""
    own = (e.ts_ms for e in entries if e.controller_epoch == before.controller_epoch and e.ts_ms <= after.elected_ms)
    absent = controller_absence_ms(before, after, max(own, default=before.elected_ms))
    most = "" if was_handed_over(before, after) else "at most "
    return f", after {most}{absent / 1000:.2f} s without a controller" if absent is not None else ""


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
        lines += [f"{p}: {_state_now(found.now, p)}" for p in moving[:_LISTED]]
        if len(moving) > _LISTED:
            lines.append(f"and {len(moving) - _LISTED:,} more: klamm reassign list")
        if not moving:
            lines.append("no partition moves now")
    steps = [e for e in in_order(found.entries) if e.kind == "reassignment"]
    for e in steps[-_SHOWN:]:
        lines.append(f"{when(e.ts_ms)}  {e.facts.get('topic')}-{e.facts.get('partition')}: {_step(e)}")
    if not lines:
        return Answer([f"the journals in {found.where} tell of no reassignment"], False)
    return Answer([*lines, *_due(found.now, {*map(str, moving), "/admin/reassign_partitions"})], True)


# ---- what is due


def _due(now: Snapshot | None, subjects: set[str], refused: Sequence[str] = ()) -> list[str]:
    """What is under way with these, what is wrong, what mends it; a cluster without a controller concerns everyone."""
    if now is None:
        return [*refused]
    lines = [_deletion(now, topic) for topic in now.deletions if topic in subjects]
    about = [f for f in findings(now) if not subjects.isdisjoint(f.subjects) or _concerns_all(f)]
    lines += [line for f in about[:_SHOWN] for line in _finding(f, subjects)]
    if len(about) > _SHOWN:
        lines.append(f"and {len(about) - _SHOWN:,} more: klamm audit --zookeeper {now.connect}")
    return [*lines, *refused] or [NOTHING_DUE]


def _concerns_all(finding: Finding) -> bool:
    return finding.severity is Severity.CRITICAL and znodes.CONTROLLER in finding.subjects


def _deletion(now: Snapshot, topic: str) -> str:
    """What a deletion that was asked for waits for."""
    holders = {b for p, a in now.assignments.items() if p.topic == topic for b in a.replicas}
    dead = sorted(holders - now.live)
    gone = f", once broker {_list(dead)} is back, or with klamm's controller 60 s after it went" if dead else ""
    return f"next: {topic} is deleted, as was asked at {when(now.deletions[topic])}{gone}"


def silence(found: Found) -> list[str]:
    """That ZooKeeper did not answer, or was not asked although journals may be behind, and what that means."""
    if found.silence is None:
        if found.now is not None or not found.is_behind or not found.entries:
            return []
        last = max(e.ts_ms for e in found.entries)
        return [f"this is what the {found.where} knew at {when(last)}: --zookeeper HOST:PORT/chroot says what is now"]
    return [
        f"critical: {found.silence}",
        "    this is what the journals knew last; without ZooKeeper leaders go on, but nobody is elected",
        "    helps: start ZooKeeper, or look why this machine does not reach it",
    ]


def _finding(finding: Finding, subjects: set[str]) -> list[str]:
    named = [s for s in finding.subjects if s in subjects]
    which = f"{', '.join(named[:3])}{' ...' if len(named) > 3 else ''}: " if len(subjects) > 1 else ""
    return [f"{finding.severity}: {which}{finding.kind}, {finding.why}", f"    helps: {finding.remedy}"]


def _list(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers))
