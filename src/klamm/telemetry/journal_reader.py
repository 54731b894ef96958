"""Reading journals: the lines about a partition, leader changes and their causes, controller terms."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from klamm.model.ids import TopicPartition
from klamm.telemetry.journal_files import JournalDisk, journal_files


class Entry(NamedTuple):
    """One journal line; `facts` has the keys of its kind."""

    ts_ms: int
    node: int
    controller_epoch: int
    seq: int
    cause: str
    kind: str
    facts: Mapping[str, Any]

    def concerns(self, partition: TopicPartition) -> bool:
        """Whether the line is about this partition."""
        if self.facts.get("topic") == partition.topic and self.facts.get("partition") == partition.partition:
            return True
        listed = self.facts.get("partitions")
        return isinstance(listed, dict) and partition.partition in listed.get(partition.topic, ())


class LeaderChange(NamedTuple):
    ts_ms: int
    partition: TopicPartition
    leader_from: int  # -1: nobody led
    leader_to: int
    leader_epoch: int
    why: str  # the event that led to it, for example "BrokerChange: dead [1]"
    rejected: tuple[tuple[int, str], ...]
    unclean: bool


class Term(NamedTuple):
    """One controller's term according to its journal; `resigned_ms` is None if the controller was killed."""

    controller_epoch: int
    node: int
    elected_ms: int
    ready_ms: int | None
    resigned_ms: int | None
    last_line_ms: int
    read_again: int | None = None
    """Znodes of topics and partitions that a standby read at its election; None where everything was read."""


Wanted = Callable[[bytes], bool]
"""Whether a line, as it is written, has to be read; journals may hold millions of others."""

_BULK: Final = (
    b'"kind":"decision"', b'"kind":"write"', b'"kind":"request"', b'"kind":"group"', b'"kind":"transaction"'
)  # fmt: skip
"""What thousands of lines may be of one event: each names what it is about."""
_NOT_LISTED: Final = b'"partitions":{}'
"""A request may be about too many partitions to list them."""
_HEAD: Final = 160
PROMPT_RESIGNATION_MS: Final = 250
"""A controller that hears of its successor so soon after the election was not frozen."""
"""The kind is within this many bytes of a line."""


def about(*words: str) -> Wanted:
    """A filter for journal lines that contain one of these words as a JSON string; lines of rare kinds always pass."""
    quoted = [_NOT_LISTED, *map(msgspec.json.encode, words)]
    return lambda line: any(word in line for word in quoted) or not any(k in line[:_HEAD] for k in _BULK)


def only_about(kinds: Iterable[str], *words: str) -> Wanted:
    """A filter for lines of these kinds with one of these words as JSON string."""
    heads = [f'"kind":"{kind}"'.encode() for kind in kinds]
    quoted = [msgspec.json.encode(word) for word in words]
    return lambda line: any(head in line[:_HEAD] for head in heads) and any(word in line for word in quoted)


def read_journals(disk: JournalDisk, directories: Iterable[str], wanted: Wanted | None = None) -> Iterator[Entry]:
    """Yield every journal line of every node, file by file.

    An incomplete last line, as a kill leaves it, is left out.
    """
    for directory in directories:
        for _, _, path in journal_files(disk, directory):
            yield from parse_lines(disk.read(path), wanted)


def parse_lines(content: bytes, wanted: Wanted | None = None) -> Iterator[Entry]:
    """The complete lines of one file that pass the filter."""
    for line in content.split(b"\n"):
        if wanted is not None and not wanted(line):
            continue
        try:
            facts = msgspec.json.decode(line)
            head = {name: facts.pop(name) for name in Entry._fields[:-1]}
        except (msgspec.DecodeError, KeyError, AttributeError):
            continue
        yield Entry(**head, facts=facts)


def distinct(entries: Iterable[Entry]) -> list[Entry]:
    """Remove repeated journal lines: the journal topic may have duplicates."""
    seen: set[tuple[int, str, int, int, str]] = set()
    found: list[Entry] = []
    for e in entries:
        key = (e.node, e.cause.rpartition(".")[0], e.seq, e.ts_ms, e.kind)
        if key not in seen:
            seen.add(key)
            found.append(e)
    return found


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """The lines by controller epoch, then in the order in which that controller wrote them."""
    return sorted(entries, key=lambda e: (e.controller_epoch, e.ts_ms if not e.controller_epoch else 0, e.seq))


def lines_about_partition(entries: Iterable[Entry], partition: TopicPartition) -> list[Entry]:
    """The lines that concern one partition, each preceded by the event that caused it."""
    ordered = in_order(entries)
    events = events_by_cause(ordered)
    own = [e for e in ordered if e.concerns(partition)]
    decided = {e.cause for e in own if e.kind == "decision"}
    own += [e for e in ordered if e.cause in decided and _has_only_partition_count(e)]
    causes = {e.cause: events[e.cause] for e in own if e.cause in events}
    return in_order((*own, *causes.values()))


def _has_only_partition_count(entry: Entry) -> bool:
    """Whether the line is about a request with so many partitions that it has only their number, not their names."""
    return entry.kind == "request" and not entry.facts.get("partitions") and entry.facts.get("count", 0) > 0


def events_by_cause(ordered: Iterable[Entry]) -> dict[str, Entry]:
    """Return the controller events by cause, with what they found.

    An event that won an election has the epoch it won.
    """
    events = {e.cause: e for e in ordered if e.kind == "event"}
    for e in ordered:
        event = events.get(e.cause)
        if event is not None and e.kind == "found":
            event = event._replace(facts={**event.facts, **e.facts})
        if event is not None and event.controller_epoch == 0:
            event = event._replace(controller_epoch=e.controller_epoch)
        if event is not None:
            events[e.cause] = event
    return events


def leader_changes(entries: Iterable[Entry]) -> list[LeaderChange]:
    """Every leader change stored in ZooKeeper, oldest first."""
    ordered = in_order(entries)
    events = events_by_cause(ordered)
    return [
        _leader_change(e, events.get(e.cause)) for e in ordered if e.kind == "decision" and _changed_leader(e.facts)
    ]


def current_leader_changes(entries: Iterable[Entry]) -> dict[TopicPartition, LeaderChange]:
    """Return, for each partition, the change that gave it its present leader; the first election counts, too."""
    ordered = in_order(entries)
    events = events_by_cause(ordered)
    found: dict[TopicPartition, LeaderChange] = {}
    for e in ordered:
        leader = e.facts.get("leader_to")
        if e.kind == "decision" and leader is not None and leader != e.facts.get("leader_from"):
            change = _leader_change(e, events.get(e.cause))
            found[change.partition] = change
    return found


def _changed_leader(facts: Mapping[str, Any]) -> bool:
    """Whether the facts of the journal entry say that the leader changed."""
    return facts.get("leader_from") is not None and facts["leader_from"] != facts.get("leader_to")


def _leader_change(entry: Entry, event: Entry | None) -> LeaderChange:
    """Return the change of leader in the journal entry; `event` is the controller event that caused it, or None."""
    facts = entry.facts
    return LeaderChange(
        entry.ts_ms,
        TopicPartition(facts["topic"], facts["partition"]),
        facts["leader_from"] if facts["leader_from"] is not None else -1,
        facts["leader_to"],
        facts.get("leader_epoch", -1),
        describe_event(event) if event else "",
        tuple((broker, why) for broker, why in facts.get("rejected", ())),
        bool(facts.get("unclean")),
    )


def describe_event(event: Entry) -> str:
    """Describe a controller event in words: its kind and its facts."""
    shown = {k: v for k, v in event.facts.items() if k not in ("event", "waited_ms") and v not in (None, [], {})}
    facts = ", ".join(_fact_text(name, value) for name, value in shown.items())
    return f"{event.facts.get('event', event.kind)}: {facts}" if facts else str(event.facts.get("event", event.kind))


def _fact_text(name: str, value: object) -> str:
    """Return one fact as text; how processes of brokers ended is a sentence for each broker."""
    if name == "ended" and isinstance(value, Mapping):
        return "; ".join(f"broker {broker}: {how}" for broker, how in value.items())
    return f"{name} {value}"


def controller_terms(entries: Iterable[Entry]) -> list[Term]:
    """The terms of all controllers: who was controller, from when to when, in order of epochs."""
    terms: dict[int, Term] = {}
    for e in in_order(entries):
        if e.kind == "elected":
            terms[e.controller_epoch] = Term(e.controller_epoch, e.node, e.ts_ms, None, None, e.ts_ms)
        elif (term := terms.get(e.controller_epoch)) is not None:
            if e.kind == "ready":
                term = term._replace(ready_ms=e.ts_ms)
            elif e.kind == "warm":
                term = term._replace(read_again=e.facts.get("topics_to_read", 0) + e.facts.get("states_to_read", 0))
            elif e.kind == "resigned":
                term = term._replace(resigned_ms=e.ts_ms)
            terms[e.controller_epoch] = term._replace(last_line_ms=max(term.last_line_ms, e.ts_ms))
    return [terms[epoch] for epoch in sorted(terms)]


def was_handed_over(before: Term, after: Term) -> bool:
    """Whether the controller worked until the next was elected, so that the end of its term is known.

    It resigned before, or heard of its successor at once, as after `klamm controller reelect`; a frozen controller
    hears of it later.
    """
    return before.resigned_ms is not None and before.resigned_ms <= after.elected_ms + PROMPT_RESIGNATION_MS


def controller_absence_ms(before: Term, after: Term, lost_at_ms: int | None = None) -> int | None:
    """The ms from the end of one term until the next controller was ready; None if it is not ready yet.

    The end is the time of the resignation or of the next election, whichever was earlier, if the controller worked
    until then: a frozen controller learns of the election when it wakes. For such a controller, and for a killed one,
    pass `lost_at_ms`; without it the time of its last line counts, which may be too early.
    """
    end_ms = lost_at_ms or before.last_line_ms
    if before.resigned_ms is not None and was_handed_over(before, after):
        end_ms = min(before.resigned_ms, after.elected_ms)
    return None if after.ready_ms is None else max(0, after.ready_ms - end_ms)
