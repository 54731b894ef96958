"""`klamm explain`: a partition's story from the journals, each step under the event that caused it."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from posixpath import join
from typing import Any, Final

from klamm.cli.speech import say
from klamm.cli.topic_reading import read_values
from klamm.model.errors import KlammError
from klamm.model.ids import TopicPartition, parse_topic_partition
from klamm.runtime.disk import Disk, RealDisk
from klamm.runtime.main_loop import run_loop
from klamm.runtime.world import real_world
from klamm.telemetry.journal_reader import (
    Entry,
    distinct,
    entries_of,
    leader_changes,
    read_journals,
    story_of,
    why_of,
)

JOURNAL_TOPIC: Final = "__klamm_journal"
"""The one that `klamm up` has its nodes write."""
_KNOWN: Final = {"topic", "partition", "partitions", "causes"}


class NoStory(KlammError):
    pass


def explain(
    partition: str, data: str, journals: Sequence[str], bootstrap: str | None = None, disk: Disk | None = None
) -> int:
    """Print the story, from the topic of the cluster at `bootstrap` or from files; exit status 1 where there is none.

    Raises NoStory for what cannot be read.
    """
    disk = disk or RealDisk()
    try:
        wanted = parse_topic_partition(partition)
    except ValueError as error:
        raise NoStory(str(error)) from None
    entries, where = _from_topic(bootstrap) if bootstrap else _from_files(disk, data, journals)
    story = story_of(entries, wanted)
    if not story:
        known = sorted({str(change.partition) for change in leader_changes(entries)})
        hint = f"; they speak of {', '.join(known[:6])}{' ...' if len(known) > 6 else ''}" if known else ""
        say(f"the journals in {where} do not speak of {wanted}{hint}")
        return 1
    for line in told(story):
        say(line)
    if state := last_state(story):
        say(f"{wanted} now: {state}")
    return 0


def _from_files(disk: Disk, data: str, journals: Sequence[str]) -> tuple[list[Entry], str]:
    directories = list(journals) or journal_directories(disk, data)
    for directory in directories:
        if not disk.is_directory(directory):
            raise NoStory(f"there is no directory {directory}: name a node's journal with --journal")
    return list(read_journals(disk, directories)), ", ".join(directories)


def _from_topic(bootstrap: str, topic: str = JOURNAL_TOPIC) -> tuple[list[Entry], str]:
    addresses = [parse_address(text) for text in bootstrap.split(",")]
    values = run_loop(read_values(real_world(), addresses, TopicPartition(topic, 0)))
    return distinct(entries_of(b"\n".join(values))), f"topic {topic}"


def parse_address(text: str) -> tuple[str, int]:
    """`host:port`. Raises NoStory."""
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdigit():
        raise NoStory(f"--bootstrap-server {text!r} is not HOST:PORT, for example 127.0.0.1:9092")
    return host.strip("[]"), int(port)


def journal_directories(disk: Disk, data: str) -> list[str]:
    """The journals of the nodes of a `klamm up`. Raises NoStory where there are none."""
    nodes = disk.list_directory(data) if disk.is_directory(data) else []
    found = [join(data, name, "logs") for name in nodes if name.startswith("node-")]
    existing = [directory for directory in found if disk.is_directory(directory)]
    if not existing:
        raise NoStory(
            f"there are no journals in {data}: name the directory of a `klamm up` with --data, "
            "or a node's journal with --journal"
        )
    return existing


def told(story: Iterable[Entry]) -> list[str]:
    """The story as lines: an event at the margin, what it led to below it, the state it left at the end."""
    lines: list[str] = []
    for event, steps in groupby(story, key=lambda entry: entry.kind == "event"):
        if event:
            lines += [_event(entry) for entry in steps]
        else:
            lines += [f"    {step}" for step in _steps(list(steps))]
    return lines


def last_state(story: Iterable[Entry]) -> str | None:
    """Who leads since when, by the last decision that ZooKeeper took; None where there is none."""
    state = None
    for entry in story:
        facts = entry.facts
        if entry.kind == "decision" and facts.get("leader_to") is not None:
            isr = ", ".join(map(str, facts.get("isr") or ()))
            state = f"{_leader(facts['leader_to'])}, leader epoch {facts.get('leader_epoch')}, ISR {isr or 'unknown'}"
    return state


def _event(entry: Entry) -> str:
    when = datetime.fromtimestamp(entry.ts_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
    controller = f"controller {entry.node}, epoch {entry.controller_epoch}"
    return f"{when.removesuffix('+00:00')}  {controller}: {why_of(entry)}"


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
