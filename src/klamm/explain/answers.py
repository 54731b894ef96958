"""Explain a partition, topic, broker, the controller or the reassignments: journal and snapshot in, lines out.

Each answer ends with what is pending, what is wrong with its subject and how to repair it (the audit's findings).
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from msgspec.json import encode

from klamm.audit.findings import Finding, Severity, findings
from klamm.audit.snapshot import Snapshot
from klamm.explain.rejected_replicas import rejections
from klamm.explain.sources import ExplainInputs
from klamm.explain.timeline import last_events, last_state, timeline_lines, utc_time
from klamm.explain.unanswered import unanswered
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

NOTHING_PENDING: Final = "next: nothing is pending, and nothing is wrong"
_SHOWN: Final = 12
_SLOW_MS: Final = 2_000
"""A control request that is unanswered for longer than this is reported."""
_LISTED: Final = 20
"""A topic with more partitions is summarized."""
_OMITTED_FACTS: Final = ("partition", "partitions", "topic", "topics")


class Answer(NamedTuple):
    lines: list[str]
    is_known: bool
    """Whether the journal or ZooKeeper knows the subject."""


# ---- a partition


def partition(inputs: ExplainInputs, subject: TopicPartition, most_events: int | None = None) -> Answer:
    """Its history, or the last events of it; its leader now and since when; what is pending or wrong."""
    story = story_of(inputs.entries, subject)
    state = _state_now(inputs.now, subject)
    if not story and state is None:
        return Answer([f"There is nothing about {subject} in {inputs.where}{_known(inputs)}."], False)
    events, omitted = last_events(story, most_events)
    lines = [f"({omitted:,} earlier events: --all shows them)"] if omitted else []
    lines += timeline_lines(events)
    if state is not None:
        lines.append(f"{subject} now: {state}")
        if (change := leaders_since(inputs.entries).get(subject)) and _leads_still(inputs.now, change):
            lines.append(f"since {utc_time(change.ts_ms)}, by {change.why or 'an event that is not in the journal'}")
            lines += _isr_since(inputs.now, subject, story, change.ts_ms)
        lines += _unanswered_by_replicas(inputs, inputs.now.assignments.get(subject) if inputs.now else None)
    elif (remembered := last_state(story)) is not None:
        is_now = inputs.zookeeper_problem is None and not inputs.may_be_stale
        lines.append(f"{subject} {'now' if is_now else 'then'}: {remembered}")
    rejected = rejections(inputs, lambda r: r.partition == subject)
    return Answer(
        [*lines, *_pending(inputs.now, _of_partition(subject), rejected), *_restore_command(inputs, subject, story)],
        True,
    )


def _isr_since(now: Snapshot | None, p: TopicPartition, story: Sequence[Entry], led_since_ms: int) -> list[str]:
    """The event that set the current ISR, if that was after the leader election."""
    changes = [e for e in story if e.kind == "decision" and e.facts.get("isr") not in (None, e.facts.get("isr_from"))]
    state = now.states.get(p) if now else None
    if not changes or changes[-1].ts_ms <= led_since_ms or (state and tuple(changes[-1].facts["isr"]) != state.isr):
        return []
    events = (why_of(e) for e in story if e.kind == "event" and e.cause == changes[-1].cause)
    why = next(events, "an event that is not in the journal")
    return [f"with this ISR since {utc_time(changes[-1].ts_ms)}, by {why}"]


def _unanswered_by_replicas(inputs: ExplainInputs, assignment: ReplicaAssignment | None) -> list[str]:
    """Requests that its brokers have not answered: they may still act on the previous state."""
    waiting = unanswered(inputs.entries, inputs.now.taken_ms if inputs.now else None)
    replicas = assignment.replicas if assignment else ()
    return [
        f"broker {u.broker} has not answered {u.api} for {u.age_ms / 1000:.1f} s: "
        f"see klamm explain broker {u.broker}; restart the broker if it hangs"
        for u in waiting
        if u.broker in replicas and u.age_ms >= _SLOW_MS
    ]


def _leads_still(now: Snapshot | None, change: LeaderChange) -> bool:
    """Whether the last leader in the journal is the one in ZooKeeper."""
    state = now.states.get(change.partition) if now else None
    return state is None or state.leader == change.leader_to


def _of_partition(p: TopicPartition) -> set[str]:
    """Subjects of findings about the partition, its topic and their znodes."""
    return {str(p), znodes.state_path(p), *_of_topic(p.topic)}


def _of_topic(name: str) -> set[str]:
    return {name, znodes.topic_path(name), znodes.topic_config_path(name), znodes.delete_topic_path(name)}


def _restore_command(inputs: ExplainInputs, p: TopicPartition, story: Iterable[Entry]) -> list[str]:
    """If the state znode is lost or malformed: the command that restores it from the journal."""
    now, path = inputs.now, znodes.state_path(p)
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
        f"    the state in the journal at {utc_time(last.ts_ms)}, with the next leader epoch:",
        f"    klamm zk set {path} '{encode(state).decode()}' --zookeeper {now.connect}",
    ]


def _known(inputs: ExplainInputs) -> str:
    known = sorted({str(change.partition) for change in leader_changes(inputs.entries)})
    return f"; it has {', '.join(known[:6])}{' ...' if len(known) > 6 else ''}" if known else ""


def _state_now(now: Snapshot | None, p: TopicPartition) -> str | None:
    if now is None:
        return None
    if (why := now.malformed.get(znodes.topic_path(p.topic))) is not None:
        return f"unknown: the znode of its topic is malformed ({why})"
    if p not in now.assignments:
        return None
    assignment, state = now.assignments[p], now.states.get(p)
    if (why := now.malformed.get(znodes.state_path(p))) is not None:
        return f"replicas {_list(assignment.replicas)}; the state znode is malformed ({why})"
    if state is None:
        return f"replicas {_list(assignment.replicas)}, no leader yet"
    leader = f"leader is node {state.leader}" if state.leader >= 0 else "no leader"
    if state.leader >= 0 and state.leader not in now.live:
        leader = f"leader is node {state.leader}, which is not alive"
    first = assignment.replicas[0] if assignment.replicas else None
    preferred = "" if first in (None, state.leader) else f" (preferred: {first})"
    moving = ""
    if assignment.is_being_reassigned:
        moving = f", adding {_list(assignment.adding) or 'none'}, removing {_list(assignment.removing) or 'none'}"
    return (
        f"{leader}{preferred}, leader epoch {state.leader_epoch}, ISR {_list(state.isr)} "
        f"of replicas {_list(assignment.replicas)}{moving}"
    )


# ---- a topic


def topic(inputs: ExplainInputs, name: str) -> Answer:
    """A line for each partition, or only the unhealthy ones of many; and what happened to the topic."""
    about = [e for e in in_order(inputs.entries) if _is_about_topic(e, name)]
    partitions = sorted(p for p in (inputs.now.assignments if inputs.now else ()) if p.topic == name)
    if not about and not partitions:
        return Answer([f"There is no topic {name} in {inputs.where} or in ZooKeeper."], False)
    lines = _partitions(inputs, name, partitions)
    if inputs.now is not None and not partitions:
        why = inputs.now.malformed.get(znodes.topic_path(name))
        lines.append(f"topic {name} does not exist now" if why is None else f"the znode of {name} is malformed: {why}")
    steps = [e for e in about if e.kind in ("deletion", "new-partitions", "reassignment", "refused")]
    lines += _steps(steps)[-_SHOWN:]
    subjects = _of_topic(name).union(*({str(p), znodes.state_path(p)} for p in partitions))
    return Answer(
        [*lines, *_pending(inputs.now, subjects, rejections(inputs, lambda r: r.partition.topic == name))], True
    )


def _partitions(inputs: ExplainInputs, name: str, partitions: Sequence[TopicPartition]) -> list[str]:
    now = inputs.now
    if now is None or not partitions:
        return []
    since = leaders_since(inputs.entries)
    if len(partitions) <= _LISTED:
        return [_partition_line(now, p, since) for p in partitions]
    unhealthy = [p for p in partitions if not _is_healthy(now, p)]
    led = sum(p in now.states and now.states[p].leader in now.live for p in partitions)
    more = len(unhealthy) - _SHOWN
    return [
        f"{name}: {len(partitions):,} partitions, {led:,} led by a live node, "
        f"{len(partitions) - len(unhealthy):,} with all replicas in sync" + ("; the others:" if unhealthy else ""),
        *(_partition_line(now, p, since) for p in unhealthy[:_SHOWN]),
        *(
            [f"and {more:,} more: klamm topics describe --topic {name} --under-replicated-partitions"]
            if more > 0
            else []
        ),
    ]


def _partition_line(now: Snapshot, p: TopicPartition, since: dict[TopicPartition, LeaderChange]) -> str:
    change = since.get(p)
    known = f", since {utc_time(change.ts_ms)} by {change.why}" if change and _leads_still(now, change) else ""
    return f"{p}: {_state_now(now, p)}{known}"


def _is_healthy(now: Snapshot, p: TopicPartition) -> bool:
    state = now.states.get(p)
    return state is not None and state.leader in now.live and set(now.assignments[p].replicas) <= set(state.isr)


def _is_about_topic(entry: Entry, name: str) -> bool:
    listed = entry.facts.get("partitions")
    topics = entry.facts.get("topics")
    return (
        entry.facts.get("topic") == name
        or (isinstance(listed, dict) and name in listed)
        or (isinstance(topics, list) and name in topics)
    )


def _steps(entries: Iterable[Entry]) -> list[str]:
    """Repeated steps are one line, with the time of the last one."""
    lines: list[str] = []
    for text, same in groupby(entries, key=_step):
        times = [e.ts_ms for e in same]
        often = f" ({len(times):,} times since {utc_time(times[0])})" if len(times) > 1 else ""
        lines.append(f"{utc_time(times[-1])}  {text}{often}")
    return lines


def _step(entry: Entry) -> str:
    kept = {k: v for k, v in entry.facts.items() if k not in _OMITTED_FACTS and v not in (None, [])}
    what = kept.pop("step", kept.pop("what", ""))
    rest = "".join(f", {k.replace('_', ' ')} {v}" for k, v in kept.items())
    return f"{entry.kind} {what}{rest}".strip()


# ---- a broker


def broker(inputs: ExplainInputs, number: BrokerId) -> Answer:
    """Its registration, leaders and replicas, when it came and went, and requests that it has not answered."""
    lines = _registration(inputs.now, number) if inputs.now is not None else []
    lines += _came_and_went(inputs.entries, number)[-_SHOWN:]
    lines += _unanswered_requests(inputs, number)
    if not lines:
        return Answer([f"There is no broker {number} in {inputs.where} or in ZooKeeper."], False)
    subjects = {f"broker {number}", znodes.broker_path(number), znodes.config_path("brokers", str(number))}
    if inputs.now is not None:
        subjects |= {str(p) for p, a in inputs.now.assignments.items() if _is_missed(inputs.now, p, a, number)}
    return Answer([*lines, *_pending(inputs.now, subjects, rejections(inputs, lambda r: r.broker == number))], True)


def _is_missed(now: Snapshot, p: TopicPartition, assignment: ReplicaAssignment, number: BrokerId) -> bool:
    """Whether its replica there is not in sync, or the partition has no live leader."""
    state = now.states.get(p)
    return number in assignment.replicas and (state is None or number not in state.isr or state.leader not in now.live)


def _registration(now: Snapshot, number: BrokerId) -> list[str]:
    held = sum(number in a.replicas for a in now.assignments.values())
    led = sum(s.leader == number for s in now.states.values())
    preferred = sum(bool(a.replicas) and a.replicas[0] == number for a in now.assignments.values())
    registered = now.broker_ownership.get(number)
    if registered is None and not held:
        return []
    there = f"registered, epoch {registered.czxid}" if registered else "not registered"
    if registered and registered.owner_session == 0:
        there += ", but the znode is not ephemeral"
    controller = ", the controller" if now.controller == number else ""
    return [
        f"broker {number} now: {there}{controller}; leads {led:,} partitions (preferred for {preferred:,}), "
        f"has {held:,} replicas"
    ]


def _came_and_went(entries: Iterable[Entry], number: int) -> list[str]:
    """The active controller records changes; a new one records the live brokers."""
    lines: list[str] = []
    is_there: bool | None = None
    for e in in_order(entries):
        if e.kind == "found" and number in _brokers(e):
            happened, is_there = _came_or_went(e, number), number not in (e.facts.get("dead") or ())
        elif e.kind == "ready" and (number in e.facts.get("brokers", ())) is not bool(is_there):
            is_there = not is_there
            happened = "was alive" if is_there else "was gone"
        elif e.kind == "controlled-shutdown" and e.facts.get("broker") == number:
            happened = "began a controlled shutdown"
        else:
            continue
        lines.append(
            f"{utc_time(e.ts_ms)}  broker {number} {happened} (controller {e.node}, epoch {e.controller_epoch}"
            f"{', newly elected' if e.kind == 'ready' else ''})"
        )
    return lines


def _brokers(entry: Entry) -> set[int]:
    return {b for name in ("new", "dead", "bounced") for b in entry.facts.get(name) or () if isinstance(b, int)}


def _came_or_went(entry: Entry, number: int) -> str:
    words = {"new": "registered", "dead": "is gone", "bounced": "restarted"}
    return next(words[name] for name in words if number in (entry.facts.get(name) or ()))


def _unanswered_requests(inputs: ExplainInputs, number: int | None = None) -> list[str]:
    """To one broker, or to all."""
    return [
        f"{u.api} to broker {u.broker} unanswered for {u.age_ms / 1000:.1f} s: {u.partitions} partitions"
        + (f", merged from {u.merged} events" if u.merged > 1 else "")
        + (f"; the last attempt failed: {u.failed}" if u.failed else "")
        for u in unanswered(inputs.entries, inputs.now.taken_ms if inputs.now else None)
        if number in (None, u.broker)
    ]


# ---- the controller


def controller(inputs: ExplainInputs) -> Answer:
    """Its terms, the gaps between them, who is controller now, and unanswered requests."""
    terms = controller_terms(inputs.entries)
    lines: list[str] = []
    for before, term in list(zip([None, *terms], terms, strict=False))[-_SHOWN:]:
        gap = _without(inputs.entries, before, term) if before is not None else ""
        ready = f"ready {utc_time(term.ready_ms)}" if term.ready_ms else "not ready"
        end = ""
        if term.resigned_ms is not None:
            end = f", resigned {utc_time(term.resigned_ms)}{_why_resigned(inputs.entries, term.controller_epoch)}"
        lines.append(
            f"epoch {term.controller_epoch}: node {term.node}, elected {utc_time(term.elected_ms)}, {ready}{gap}{end}"
        )
    now = inputs.now
    if now is not None:
        who = f"broker {now.controller}" if now.controller is not None else "none"
        lines.append(f"controller now: {who}, epoch {now.controller_epoch}")
    lines += _unanswered_requests(inputs)
    if not lines:
        return Answer([f"There is no controller in {inputs.where}."], False)
    return Answer([*lines, *_pending(now, {"/controller", "/controller_epoch"})], True)


def _without(entries: Iterable[Entry], before: Term, after: Term) -> str:
    """How long there was no controller; an upper bound if the end of the previous term is unknown."""
    own = (e.ts_ms for e in entries if e.controller_epoch == before.controller_epoch and e.ts_ms <= after.elected_ms)
    absent = controller_absence_ms(before, after, max(own, default=before.elected_ms))
    most = "" if was_handed_over(before, after) else "at most "
    return f", after {most}{absent / 1000:.2f} s without a controller" if absent is not None else ""


def _why_resigned(entries: Iterable[Entry], epoch: int) -> str:
    why = [e.facts.get("why") for e in entries if e.kind == "resigned" and e.controller_epoch == epoch]
    return f" ({why[-1]})" if why and why[-1] else ""


# ---- reassignments


def reassignment(inputs: ExplainInputs) -> Answer:
    """Every partition that is being reassigned, and the last steps of reassignments."""
    lines: list[str] = []
    moving = []
    if inputs.now is not None:
        moving = sorted(p for p, a in inputs.now.assignments.items() if a.is_being_reassigned)
        lines += [f"{p}: {_state_now(inputs.now, p)}" for p in moving[:_LISTED]]
        if len(moving) > _LISTED:
            lines.append(f"and {len(moving) - _LISTED:,} more: klamm reassign list")
        if not moving:
            lines.append("no partition is being reassigned")
    steps = [e for e in in_order(inputs.entries) if e.kind == "reassignment"]
    for e in steps[-_SHOWN:]:
        lines.append(f"{utc_time(e.ts_ms)}  {e.facts.get('topic')}-{e.facts.get('partition')}: {_step(e)}")
    if not lines:
        return Answer([f"There is no reassignment in {inputs.where}."], False)
    return Answer([*lines, *_pending(inputs.now, {*map(str, moving), "/admin/reassign_partitions"})], True)


# ---- what is pending or wrong


def _pending(now: Snapshot | None, subjects: set[str], rejected: Sequence[str] = ()) -> list[str]:
    """Pending deletions, findings and remedies for these subjects; a missing controller concerns all."""
    if now is None:
        return [*rejected]
    lines = [_deletion(now, topic) for topic in now.deletions if topic in subjects]
    about = [f for f in findings(now) if not subjects.isdisjoint(f.subjects) or _concerns_all(f)]
    lines += [line for f in about[:_SHOWN] for line in _finding(f, subjects)]
    if len(about) > _SHOWN:
        lines.append(f"and {len(about) - _SHOWN:,} more: klamm audit --zookeeper {now.connect}")
    return [*lines, *rejected] or [NOTHING_PENDING]


def _concerns_all(finding: Finding) -> bool:
    return finding.severity is Severity.CRITICAL and znodes.CONTROLLER in finding.subjects


def _deletion(now: Snapshot, topic: str) -> str:
    """What a pending deletion waits for."""
    holders = {b for p, a in now.assignments.items() if p.topic == topic for b in a.replicas}
    dead = sorted(holders - now.live)
    gone = f", when broker {_list(dead)} is back (klamm's controller waits 60 s at most)" if dead else ""
    return f"next: {topic} is deleted (requested at {utc_time(now.deletions[topic])}){gone}"


def zookeeper_problem(inputs: ExplainInputs) -> list[str]:
    """A warning if ZooKeeper did not answer, or if it was not named and the journal may be stale."""
    if inputs.zookeeper_problem is None:
        if inputs.now is not None or not inputs.may_be_stale or not inputs.entries:
            return []
        last = max(e.ts_ms for e in inputs.entries)
        return [
            f"this is the state of {utc_time(last)}, the last entry of the {inputs.where}: "
            "add --zookeeper HOST:PORT/chroot for the current state"
        ]
    return [
        f"critical: {inputs.zookeeper_problem}",
        "    this is the last state in the journal; without ZooKeeper leaders continue, but none is elected",
        "    remedy: start ZooKeeper, or find out why this machine cannot reach it",
    ]


def _finding(finding: Finding, subjects: set[str]) -> list[str]:
    named = [s for s in finding.subjects if s in subjects]
    which = f"{', '.join(named[:3])}{' ...' if len(named) > 3 else ''}: " if len(subjects) > 1 else ""
    return [f"{finding.severity}: {which}{finding.kind}, {finding.why}", f"    remedy: {finding.remedy}"]


def _list(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers))
