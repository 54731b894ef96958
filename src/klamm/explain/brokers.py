"""Explain a broker, the controller or the reassignments: journal and snapshot in, lines out."""

from collections.abc import Container, Iterable

from klamm.audit.snapshot import Snapshot
from klamm.explain.answer import MAX_LINES, MAX_PARTITIONS, Answer, pending_and_wrong, step_text, unanswered_requests
from klamm.explain.partitions import state_now
from klamm.explain.rejected_replicas import rejection_lines
from klamm.explain.sources import ExplainInputs
from klamm.explain.timeline import utc_time
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.telemetry.journal_reader import (
    Entry,
    Term,
    controller_absence_ms,
    controller_terms,
    in_order,
    was_handed_over,
)
from klamm.zk import znodes


def explain_broker(inputs: ExplainInputs, number: BrokerId) -> Answer:
    """Explain a broker: registration, leaders, replicas, when it came and went, and unanswered requests to it."""
    lines = _registration_line(inputs.now, number) if inputs.now is not None else []
    lines += _registration_changes(inputs.entries, number)[-MAX_LINES:]
    lines += unanswered_requests(inputs, number)
    if not lines:
        absent = f"There is no broker {number} in {inputs.where} or in ZooKeeper."
        return Answer([f"{absent} `klamm brokers` shows the brokers."], False)
    subjects = {f"broker {number}", znodes.broker_path(number), znodes.config_path("brokers", str(number))}
    if inputs.now is not None:
        subjects |= {str(p) for p, a in inputs.now.assignments.items() if _is_affected(inputs.now, p, a, number)}
    return Answer(
        [*lines, *pending_and_wrong(inputs.now, subjects, rejection_lines(inputs, lambda r: r.broker == number))], True
    )


def _is_affected(now: Snapshot, p: TopicPartition, assignment: ReplicaAssignment, number: BrokerId) -> bool:
    """Whether the broker's replica is not in sync, or the partition has no live leader."""
    state = now.states.get(p)
    return number in assignment.replicas and (state is None or number not in state.isr or state.leader not in now.live)


def _registration_line(now: Snapshot, number: BrokerId) -> list[str]:
    """Return one line about the broker's registration and replicas; no line where it is unknown to the cluster."""
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


def _registration_changes(entries: Iterable[Entry], number: int) -> list[str]:
    """Return a line for each time the active controller recorded that the broker registered, restarted or was gone."""
    lines: list[str] = []
    is_there: bool | None = None
    for e in in_order(entries):
        if e.kind == "found" and number in _changed_brokers(e):
            is_gone = number in (e.facts.get("dead") or ())
            if is_gone and is_there is False:
                continue  # a new controller found it gone, as the one before
            happened, is_there = _change_text(e, number), not is_gone
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


def _changed_brokers(entry: Entry) -> set[int]:
    """Return the ids of the brokers that the journal entry names as new, dead or restarted."""
    return {b for name in ("new", "dead", "bounced") for b in entry.facts.get(name) or () if isinstance(b, int)}


def _change_text(entry: Entry, number: int) -> str:
    """Return what the journal entry says about the broker: registered, is gone, or restarted."""
    words = {"new": "registered", "dead": "is gone", "bounced": "restarted"}
    happened = next(words[name] for name in words if number in (entry.facts.get(name) or ()))
    why = (entry.facts.get("ended") or {}).get(str(number))
    return f"{happened} ({why})" if why else happened


# ---- the controller


def explain_controller(inputs: ExplainInputs) -> Answer:
    """Explain the controller: its terms, the gaps between them, who it is now, and unanswered requests."""
    terms = controller_terms(inputs.entries)
    lines: list[str] = []
    for before, term in list(zip([None, *terms], terms, strict=False))[-MAX_LINES:]:
        gap = _absence_text(inputs.entries, before, term) if before is not None else ""
        ready = f"ready {utc_time(term.ready_ms)}" if term.ready_ms else "not ready"
        end = ""
        if term.resigned_ms is not None:
            end = f", resigned {utc_time(term.resigned_ms)}{_resignation_reason(inputs.entries, term.controller_epoch)}"
        elected = f"elected {utc_time(term.elected_ms)}{_standby_text(term)}"
        lines.append(f"epoch {term.controller_epoch}: node {term.node}, {elected}, {ready}{gap}{end}")
    now = inputs.now
    if now is not None:
        who = f"broker {now.controller}" if now.controller is not None else "none"
        lines.append(f"controller now: {who}, epoch {now.controller_epoch}")
    lines += _standby_lines(inputs.entries, None if now is None else now.broker_ownership)
    lines += unanswered_requests(inputs)
    if not lines:
        return Answer([f"There is no controller in {inputs.where}."], False)
    return Answer([*lines, *pending_and_wrong(now, {"/controller", "/controller_epoch"})], True)


def _standby_text(term: Term) -> str:
    """Describe what a controller read again that was a standby before; empty if it read everything."""
    return "" if term.read_again is None else f" (was a standby, read {term.read_again} znodes again)"


def _standby_lines(entries: Iterable[Entry], registered: Container[int] | None) -> list[str]:
    """For each node that kept a mirror for its election: since when, or why it has none.

    `registered`: the brokers that are registered now; None where that is not known.
    """
    newest: dict[int, Entry] = {}
    for e in in_order(entries):
        if e.kind in ("standby", "warm"):
            newest[e.node] = e
    lines = []
    for node, e in sorted(newest.items()):
        if e.kind == "standby":
            why = e.facts.get("lost")
            text = f"has all {e.facts.get('partition_count')} partitions in memory" if why is None else f"lost: {why}"
            if registered is not None and node not in registered:
                text = "is not registered now"
            lines.append(f"standby node {node}, {utc_time(e.ts_ms)}: {text}")
    return lines


def _absence_text(entries: Iterable[Entry], before: Term, after: Term) -> str:
    """Describe how long there was no controller; an upper bound if the end of the previous term is unknown."""
    own = (e.ts_ms for e in entries if e.controller_epoch == before.controller_epoch and e.ts_ms <= after.elected_ms)
    absent = controller_absence_ms(before, after, max(own, default=before.elected_ms))
    most = "" if was_handed_over(before, after) else "at most "
    return f", after {most}{absent / 1000:.2f} s without a controller" if absent is not None else ""


def _resignation_reason(entries: Iterable[Entry], epoch: int) -> str:
    """Return in parentheses why the controller of this epoch resigned; empty where no reason is known."""
    why = [e.facts.get("why") for e in entries if e.kind == "resigned" and e.controller_epoch == epoch]
    return f" ({why[-1]})" if why and why[-1] else ""


# ---- reassignments


def explain_reassignments(inputs: ExplainInputs) -> Answer:
    """Explain reassignments: every partition that is being reassigned, and the last steps."""
    lines: list[str] = []
    moving = []
    if inputs.now is not None:
        moving = sorted(p for p, a in inputs.now.assignments.items() if a.is_being_reassigned)
        lines += [f"{p}: {state_now(inputs.now, p)}" for p in moving[:MAX_PARTITIONS]]
        if len(moving) > MAX_PARTITIONS:
            lines.append(f"and {len(moving) - MAX_PARTITIONS:,} more: klamm reassign list")
        if not moving:
            lines.append("no partition is being reassigned")
    steps = [e for e in in_order(inputs.entries) if e.kind == "reassignment"]
    for e in steps[-MAX_LINES:]:
        lines.append(f"{utc_time(e.ts_ms)}  {e.facts.get('topic')}-{e.facts.get('partition')}: {step_text(e)}")
    if not lines:
        return Answer([f"There is no reassignment in {inputs.where}."], False)
    return Answer([*lines, *pending_and_wrong(inputs.now, {*map(str, moving), "/admin/reassign_partitions"})], True)
