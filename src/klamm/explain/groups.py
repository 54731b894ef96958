"""Explain a consumer group: members, who has what since when, why it rebalanced, lag, who is stuck."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from klamm.coordinator.decision_journal import COORDINATED_PARTITION, GROUP
from klamm.coordinator.topic_partitions import OFFSETS_TOPIC, partition_for
from klamm.explain.answer import Answer
from klamm.explain.live import GroupNow, LagNow, MemberNow
from klamm.explain.sources import ExplainInputs
from klamm.explain.timeline import utc_time
from klamm.model.ids import TopicPartition
from klamm.telemetry.journal_reader import Entry

MAX_REBALANCES: Final = 5
MAX_MEMBERS: Final = 30
MAX_STUCK: Final = 10
_DEAD: Final = "Dead"
_NO_CLIENT_REASON: Final = "; client reason: not provided"
_REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance")


def explain_group(inputs: ExplainInputs, name: str) -> Answer:
    """Explain a group from the journal of its coordinators and from what its coordinator says now."""
    story = sorted(
        (e for e in inputs.entries if e.kind == GROUP and e.facts.get("group") == name), key=lambda e: (e.ts_ms, e.seq)
    )
    now = inputs.live if isinstance(inputs.live, GroupNow) else None
    is_known = bool(story) or (now is not None and now.state != _DEAD)
    if not is_known:
        problem = [inputs.live_problem] if inputs.live_problem else []
        where = f"{inputs.where} or in the cluster. `klamm groups list` shows the groups."
        return Answer([f"There is no group {name} in {where}", *problem], False)
    lines = [_headline(name, now, story, inputs.live_problem)]
    lines += _coordinator_lines(inputs, name)
    now = None if now is None else _with_earlier_assignment(now, story)
    lines += [] if now is None else _member_lines(now, story)
    lines += _rebalance_lines(story)
    lines += [] if now is None else [*_lag_lines(now), *_stuck_lines(now, story)]
    return Answer([*lines, *_notes(story)], True)


# ---- now


def _headline(name: str, now: GroupNow | None, story: Sequence[Entry], problem: str | None) -> str:
    """Return the first line about the group: state, members, assignor, generation, and since when."""
    last = next((e for e in reversed(story) if e.facts.get("step") in ("assigned", "empty", "group removed")), None)
    since = "" if last is None else f", {last.facts['step']} in generation {last.facts.get('generation')} at "
    since += "" if last is None else utc_time(last.ts_ms)
    if now is None:
        return f"group {name}{since}; its present state is not known{f': {problem}' if problem else ''}"
    assignor = f", assignor {now.assignor}" if now.assignor else ""
    return f"group {name} now: {now.state}, {len(now.members)} members{assignor}{since}"


def _coordinator_lines(inputs: ExplainInputs, name: str) -> list[str]:
    """Which broker coordinates the group, and when others took over; needs ZooKeeper for the number of partitions."""
    snapshot = inputs.now
    if snapshot is None:
        return []
    count = sum(p.topic == OFFSETS_TOPIC for p in snapshot.assignments)
    if not count:
        return []
    partition = TopicPartition(OFFSETS_TOPIC, partition_for(name, count))
    state = snapshot.states.get(partition)
    leader = "none" if state is None or state.leader < 0 else f"broker {state.leader}"
    lines = [f"coordinator: {leader}, the leader of {partition}"]
    moves = [e for e in inputs.entries if e.kind == COORDINATED_PARTITION and e.concerns(partition)]
    for e in sorted(moves, key=lambda e: e.ts_ms)[-MAX_REBALANCES:]:
        took = f" in {e.facts['ms']} ms" if "ms" in e.facts else ""
        lines.append(f"    {utc_time(e.ts_ms)}  broker {e.node} {e.facts.get('step')} {partition}{took}")
    return lines


def _with_earlier_assignment(now: GroupNow, story: Sequence[Entry]) -> GroupNow:
    """Return the group with the last assignment in the journal, if it rebalances: its coordinator names none then."""
    if now.state not in _REBALANCING:
        return now
    earlier: dict[str, list[TopicPartition]] = {}
    for member_id, partition in owners_since(story):
        earlier.setdefault(member_id, []).append(partition)
    members = [m._replace(partitions=m.partitions or tuple(earlier.get(m.member_id, ()))) for m in now.members]
    return now._replace(members=tuple(members))


def _member_lines(now: GroupNow, story: Sequence[Entry]) -> list[str]:
    """Return a line for each member: which partitions it has, since when, and how far it is behind."""
    since = owners_since(story)
    lines: list[str] = []
    for member in now.members[:MAX_MEMBERS]:
        lag = _total(now.lags[p] for p in member.partitions if p in now.lags)
        when = " before this rebalance" if now.state in _REBALANCING else ""
        lines.append(f"member {_member_text(member)}: {len(member.partitions)} partitions{when}, lag {lag:,}")
        times: dict[int | None, list[TopicPartition]] = {}
        for partition in member.partitions:
            times.setdefault(since.get((member.member_id, partition)), []).append(partition)
        for ts_ms, partitions in times.items():
            when = "a time before the journal" if ts_ms is None else utc_time(ts_ms)
            lines.append(f"    since {when}: {_listed(partitions)}")
    if len(now.members) > MAX_MEMBERS:
        lines.append(f"and {len(now.members) - MAX_MEMBERS:,} more members: klamm groups describe --members")
    return lines


def owners_since(story: Iterable[Entry]) -> dict[tuple[str, TopicPartition], int]:
    """Return, for each member and partition, since when (in ms) the member has the partition without a break.

    The times come from the assignments in the journal.
    """
    found: dict[tuple[str, TopicPartition], int] = {}
    for e in story:
        if e.facts.get("step") == "static member replaced":
            old, new = e.facts.get("old_member"), str(e.facts.get("member"))
            found = {(new if m == old else m, p): ts_ms for (m, p), ts_ms in found.items()}
        elif e.facts.get("step") == "assigned":
            owned = {(owner["member"], p) for owner in e.facts.get("owners", ()) for p in _partitions(owner)}
            found = {key: found.get(key, e.ts_ms) for key in owned}
    return found


def _partitions(owner: Mapping[str, Any]) -> list[TopicPartition]:
    """The partitions that an assignment's line lists for a member."""
    listed: Mapping[str, Sequence[int]] = owner.get("partitions") or {}
    return [TopicPartition(topic, n) for topic, numbers in listed.items() for n in numbers]


# ---- rebalances


def _rebalance_lines(story: Sequence[Entry]) -> list[str]:
    """Return lines about the last rebalances: what began them, who caused them, their duration, whom they removed."""
    begun = [e for e in story if e.facts.get("step") == "rebalance"]
    if not begun:
        return ["rebalances: the journal has none"]
    shown = begun[-MAX_REBALANCES:]
    lines = [f"the last {len(shown)} rebalances, of {len(begun)} in the journal:"]
    for e in shown:
        steps = [s for s in story if s.cause == e.cause and s is not e]
        lines.append(f"    {utc_time(e.ts_ms)}  {_reason(e.facts)}{_who(e.facts)}{_end(e, steps)}")
        lines += [f"        removed {s.facts.get('member')}: {s.facts.get('why')}" for s in _of(steps, "removed")]
        for s in _of(steps, "waiting"):
            lines.append(f"        at {utc_time(s.ts_ms)} it waited for {_missing_text(s)}")
    return lines


def _reason(facts: Mapping[str, Any]) -> str:
    """Return what began a rebalance, and why, as text."""
    what, why = str(facts.get("what")), str(facts.get("why")).removesuffix(_NO_CLIENT_REASON)
    return why if what in why else f"{what}: {why}"


def _of(steps: Iterable[Entry], step: str) -> list[Entry]:
    """The journal entries of this step, such as `generation` or `removed`."""
    return [s for s in steps if s.facts.get("step") == step]


def _who(facts: Mapping[str, Any]) -> str:
    """The client and the host of the member that caused something, in parentheses."""
    return f" (client {facts['client']}, host {facts['host']})" if "client" in facts else ""


def _end(begun: Entry, steps: Sequence[Entry]) -> str:
    """Return text that says how a rebalance ended."""
    for s in steps:
        if s.facts.get("step") == "assigned":
            members = len(s.facts.get("owners", ())) + int(s.facts.get("omitted") or 0)
            took = (s.ts_ms - begun.ts_ms) / 1000
            return f"; generation {s.facts.get('generation')} of {members} members after {took:.1f} s"
        if s.facts.get("step") == "empty":
            return "; the group is empty"
    return "; not complete before the next line of the journal"


def _missing_text(entry: Entry) -> str:
    """Return the members that a rebalance waits for, as text."""
    return _names(entry.facts.get("missing") or ()) or "member ids that were given out and not used"


def _names(members: Iterable[Mapping[str, Any]]) -> str:
    """Return members of the journal as text."""
    return ", ".join(f"{m['member']}{_who(m)}" for m in members)


# ---- lag


def _lag_lines(now: GroupNow) -> list[str]:
    """Return a line about the group's total lag, and whether it grows."""
    total = _total(now.lags.values())
    if not now.lags:
        return ["lag: the group has no committed offsets and no partitions"]
    if not now.earlier:
        return [f"lag: {total:,} records in {len(now.lags)} partitions"]
    before = _total(now.earlier.values())
    rate = (total - before) / now.interval_s
    trend = "does not change"
    if rate > 0:
        trend = f"grows by {rate:,.0f} records/s"
    elif rate < 0:
        trend = f"falls by {-rate:,.0f} records/s, gone in about {total / -rate:,.0f} s"
    return [f"lag: {total:,} records in {len(now.lags)} partitions, {now.interval_s:g} s ago {before:,}: it {trend}"]


def _total(lags: Iterable[LagNow]) -> int:
    """The sum of the lags; an offset after the end of a truncated log does not offset the lag of other partitions."""
    return sum(max(found.lag or 0, 0) for found in lags)


def _stuck_lines(now: GroupNow, story: Sequence[Entry]) -> list[str]:
    """Return lines about members that keep a rebalance waiting, and about partitions whose offset does not advance."""
    lines: list[str] = []
    waiting = _of(story, "waiting")
    if now.state in _REBALANCING and waiting and waiting[-1].cause == story[-1].cause:
        lines += _late_lines(waiting[-1], next(e for e in story if e.cause == waiting[-1].cause))
    owners = {p: member for member in now.members for p in member.partitions}
    stuck = [p for p, found in now.lags.items() if (found.lag or 0) > 0 and _is_unmoved(found, now.earlier.get(p))]
    for partition in stuck[:MAX_STUCK]:
        found = now.lags[partition]
        who = f"member {_member_text(owners[partition])} has it" if partition in owners else "no member has it"
        lines.append(
            f"stuck: {partition} at offset {found.committed}, lag {found.lag:,}: {who}, and nothing was committed for "
            f"{now.interval_s:g} s"
        )
    if len(stuck) > MAX_STUCK:
        lines.append(f"and {len(stuck) - MAX_STUCK:,} more partitions without progress")
    return lines


def _late_lines(waiting: Entry, begun: Entry) -> list[str]:
    """Return lines about the members for which a rebalance waits: those that are silent, and those that only beat."""
    since = f"stuck: since {utc_time(waiting.ts_ms)} the rebalance waits for"
    missing = waiting.facts.get("missing") or ()
    if not missing:
        return [f"{since} {_missing_text(waiting)}. Their session timeout removes them."]
    elapsed_ms = waiting.ts_ms - begun.ts_ms
    silent = [m for m in missing if m.get("silent_ms", 0) >= elapsed_ms]
    alive = [m for m in missing if m not in silent]
    lines: list[str] = []
    if silent:
        lines.append(f"{since} {_names(silent)}: no heartbeat came since it began. The session timeout removes them.")
    if alive:
        lines.append(
            f"{since} {_names(alive)}: they send heartbeats and do not join. Their rebalance timeout "
            "(max.poll.interval.ms) removes them."
        )
    return lines


def _is_unmoved(found: LagNow, earlier: LagNow | None) -> bool:
    """Whether the committed offset is the same as a moment before."""
    return earlier is not None and earlier.committed == found.committed


def _notes(story: Iterable[Entry]) -> list[str]:
    """Return lines about other decisions on the group: removed offsets and replaced static members."""
    lines: list[str] = []
    for e in story:
        if e.facts.get("step") == "offsets removed":
            lines.append(f"{utc_time(e.ts_ms)}  {e.facts.get('count')} committed offsets removed: {e.facts.get('why')}")
        elif e.facts.get("step") == "static member replaced":
            lines.append(
                f"{utc_time(e.ts_ms)}  static member {e.facts.get('instance')} came back as {e.facts.get('member')}, "
                "without a rebalance"
            )
    return lines[-MAX_REBALANCES:]


def _member_text(member: MemberNow) -> str:
    """Return the member as text: member id, client id, host, and instance id of a static member."""
    static = f", instance {member.instance_id}" if member.instance_id else ""
    return f"{member.member_id} (client {member.client_id}, host {member.host}{static})"


def _listed(partitions: Sequence[TopicPartition]) -> str:
    """Return the first partitions as text, and how many more there are."""
    more = f" and {len(partitions) - MAX_MEMBERS:,} more" if len(partitions) > MAX_MEMBERS else ""
    return ", ".join(map(str, sorted(partitions)[:MAX_MEMBERS])) + more
