"""Explain a partition or a topic: journal and snapshot in, lines out."""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.json import encode

from klamm.audit.snapshot import Snapshot
from klamm.explain.answer import (
    MAX_LINES,
    MAX_PARTITIONS,
    Answer,
    listed,
    pending_and_wrong,
    step_lines,
)
from klamm.explain.rejected_replicas import rejection_lines
from klamm.explain.sources import ExplainInputs
from klamm.explain.timeline import last_events, last_state, timeline_lines, utc_time
from klamm.explain.unanswered import unanswered
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import TopicPartition
from klamm.telemetry.journal_reader import (
    Entry,
    LeaderChange,
    current_leader_changes,
    describe_event,
    in_order,
    leader_changes,
    lines_about_partition,
)
from klamm.zk import znodes

_TOPICS: Final = "`klamm topics list` shows the topics."
_KINDS: Final = ("group", "transaction")
"""A subject is one of these words and a name; the word alone is taken for a topic."""
_SLOW_MS: Final = 2_000
"""A control request that is unanswered for longer than this is reported."""


def explain_partition(inputs: ExplainInputs, subject: TopicPartition, most_events: int | None = None) -> Answer:
    """Explain a partition: its (last) events, its leader now and since when, and what is pending or wrong."""
    story = lines_about_partition(inputs.entries, subject)
    state = state_now(inputs.now, subject)
    if not story and state is None:
        known = _known_partitions_text(inputs)
        return Answer([f"There is nothing about {subject} in {inputs.where}{known}. {_remedy(inputs, subject)}"], False)
    events, omitted = last_events(story, most_events)
    lines = [f"({omitted:,} earlier events: --all shows them)"] if omitted else []
    lines += timeline_lines(events)
    if state is not None:
        lines.append(f"{subject} now: {state}")
        if (change := current_leader_changes(inputs.entries).get(subject)) and _is_still_leader(inputs.now, change):
            lines.append(f"since {utc_time(change.ts_ms)}, by {change.why or 'an event that is not in the journal'}")
            lines += _isr_since(inputs.now, subject, story, change.ts_ms)
        lines += _unanswered_by_replicas(inputs, inputs.now.assignments.get(subject) if inputs.now else None)
    elif (remembered := last_state(story)) is not None:
        is_now = inputs.zookeeper_problem is None and not inputs.may_be_stale
        lines.append(f"{subject} {'now' if is_now else 'then'}: {remembered}")
    rejected = rejection_lines(inputs, lambda r: r.partition == subject)
    return Answer(
        [
            *lines,
            *pending_and_wrong(inputs.now, _partition_subjects(subject), rejected),
            *_restore_command(inputs, subject, story),
        ],
        True,
    )


def _isr_since(now: Snapshot | None, p: TopicPartition, story: Sequence[Entry], led_since_ms: int) -> list[str]:
    """Describe since when, and by which event, the partition has its ISR, if it changed after the leader election."""
    changes = [e for e in story if e.kind == "decision" and e.facts.get("isr") not in (None, e.facts.get("isr_from"))]
    state = now.states.get(p) if now else None
    if not changes or changes[-1].ts_ms <= led_since_ms or (state and tuple(changes[-1].facts["isr"]) != state.isr):
        return []
    events = (describe_event(e) for e in story if e.kind == "event" and e.cause == changes[-1].cause)
    why = next(events, "an event that is not in the journal")
    return [f"with this ISR since {utc_time(changes[-1].ts_ms)}, by {why}"]


def _unanswered_by_replicas(inputs: ExplainInputs, assignment: ReplicaAssignment | None) -> list[str]:
    """Lines about requests that the partition's brokers have not answered: they may still use the previous state."""
    waiting = unanswered(inputs.entries, inputs.now.taken_ms if inputs.now else None)
    replicas = assignment.replicas if assignment else ()
    return [
        f"broker {u.broker} has not answered {u.api} for {u.age_ms / 1000:.1f} s: "
        f"see klamm explain broker {u.broker}; restart the broker if it hangs"
        for u in waiting
        if u.broker in replicas and u.age_ms >= _SLOW_MS
    ]


def _is_still_leader(now: Snapshot | None, change: LeaderChange) -> bool:
    """Whether the last leader in the journal is still the leader in ZooKeeper."""
    state = now.states.get(change.partition) if now else None
    return state is None or state.leader == change.leader_to


def _partition_subjects(p: TopicPartition) -> set[str]:
    """The subjects that findings about the partition, its topic and their znodes have."""
    return {str(p), znodes.state_path(p), *topic_subjects(p.topic)}


def topic_subjects(name: str) -> set[str]:
    """The subjects that findings about the topic and its znodes have."""
    return {name, znodes.topic_path(name), znodes.topic_config_path(name), znodes.delete_topic_path(name)}


def _restore_command(inputs: ExplainInputs, p: TopicPartition, story: Iterable[Entry]) -> list[str]:
    """Return the command that restores a lost or malformed state znode from the journal.

    The list is empty where the znode is intact or the journal has no leader of it.
    """
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


def _known_partitions_text(inputs: ExplainInputs) -> str:
    """Name some partitions that the journal has, for the error about an unknown one."""
    known = sorted({str(change.partition) for change in leader_changes(inputs.entries)})
    return f"; it has {', '.join(known[:6])}{' ...' if len(known) > 6 else ''}" if known else ""


def _remedy(inputs: ExplainInputs, subject: TopicPartition) -> str:
    """What to do about a partition of which nothing is known: its topic has others, or there is no such topic."""
    if inputs.now is not None and any(p.topic == subject.topic for p in inputs.now.assignments):
        return f"`klamm topics describe --topic {subject.topic}` shows the partitions of the topic."
    return _TOPICS


def state_now(now: Snapshot | None, p: TopicPartition) -> str | None:
    """The partition's state in ZooKeeper as text; None without a snapshot, or when the partition does not exist."""
    if now is None:
        return None
    if (why := now.malformed.get(znodes.topic_path(p.topic))) is not None:
        return f"unknown: the znode of its topic is malformed ({why})"
    if p not in now.assignments:
        return None
    assignment, state = now.assignments[p], now.states.get(p)
    if (why := now.malformed.get(znodes.state_path(p))) is not None:
        return f"replicas {listed(assignment.replicas)}; the state znode is malformed ({why})"
    if state is None:
        return f"replicas {listed(assignment.replicas)}, no leader yet"
    leader = f"leader is node {state.leader}" if state.leader >= 0 else "no leader"
    if state.leader >= 0 and state.leader not in now.live:
        leader = f"leader is node {state.leader}, which is not alive"
    first = assignment.replicas[0] if assignment.replicas else None
    preferred = "" if first in (None, state.leader) else f" (preferred: {first})"
    moving = ""
    if assignment.is_being_reassigned:
        moving = f", adding {listed(assignment.adding) or 'none'}, removing {listed(assignment.removing) or 'none'}"
    return (
        f"{leader}{preferred}, leader epoch {state.leader_epoch}, ISR {listed(state.isr)} "
        f"of replicas {listed(assignment.replicas)}{moving}"
    )


# ---- a topic


def explain_topic(inputs: ExplainInputs, name: str) -> Answer:
    """Explain a topic: a line for each partition, or only the unhealthy ones of many, and what happened to it."""
    about = [e for e in in_order(inputs.entries) if _is_about_topic(e, name)]
    partitions = sorted(p for p in (inputs.now.assignments if inputs.now else ()) if p.topic == name)
    if not about and not partitions:
        remedy = f"To explain a {name}, add its name: klamm explain {name} NAME." if name in _KINDS else _TOPICS
        return Answer([f"There is no topic {name} in {inputs.where} or in ZooKeeper. {remedy}"], False)
    lines = _partition_lines(inputs, name, partitions)
    if inputs.now is not None and not partitions:
        why = inputs.now.malformed.get(znodes.topic_path(name))
        lines.append(f"topic {name} does not exist now" if why is None else f"the znode of {name} is malformed: {why}")
    steps = [e for e in about if e.kind in ("deletion", "new-partitions", "reassignment", "refused")]
    lines += step_lines(steps)[-MAX_LINES:]
    subjects = topic_subjects(name).union(*({str(p), znodes.state_path(p)} for p in partitions))
    return Answer(
        [
            *lines,
            *pending_and_wrong(inputs.now, subjects, rejection_lines(inputs, lambda r: r.partition.topic == name)),
        ],
        True,
    )


def _partition_lines(inputs: ExplainInputs, name: str, partitions: Sequence[TopicPartition]) -> list[str]:
    """Return a line for each partition, or for many partitions a summary and the unhealthy ones."""
    now = inputs.now
    if now is None or not partitions:
        return []
    since = current_leader_changes(inputs.entries)
    if len(partitions) <= MAX_PARTITIONS:
        return [_partition_line(now, p, since) for p in partitions]
    unhealthy = [p for p in partitions if not _is_healthy(now, p)]
    led = sum(p in now.states and now.states[p].leader in now.live for p in partitions)
    more = len(unhealthy) - MAX_LINES
    return [
        f"{name}: {len(partitions):,} partitions, {led:,} led by a live node, "
        f"{len(partitions) - len(unhealthy):,} with all replicas in sync" + ("; the others:" if unhealthy else ""),
        *(_partition_line(now, p, since) for p in unhealthy[:MAX_LINES]),
        *(
            [f"and {more:,} more: klamm topics describe --topic {name} --under-replicated-partitions"]
            if more > 0
            else []
        ),
    ]


def _partition_line(now: Snapshot, p: TopicPartition, since: dict[TopicPartition, LeaderChange]) -> str:
    """Return the state of the partition now, and since when and why it has its leader."""
    change = since.get(p)
    known = f", since {utc_time(change.ts_ms)} by {change.why}" if change and _is_still_leader(now, change) else ""
    return f"{p}: {state_now(now, p)}{known}"


def _is_healthy(now: Snapshot, p: TopicPartition) -> bool:
    """Whether the leader is live and every replica is in the ISR."""
    state = now.states.get(p)
    return state is not None and state.leader in now.live and set(now.assignments[p].replicas) <= set(state.isr)


def _is_about_topic(entry: Entry, name: str) -> bool:
    """Whether the journal entry names the topic."""
    listed = entry.facts.get("partitions")
    topics = entry.facts.get("topics")
    return (
        entry.facts.get("topic") == name
        or (isinstance(listed, dict) and name in listed)
        or (isinstance(topics, list) and name in topics)
    )
