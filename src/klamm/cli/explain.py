"""`klamm explain`: a partition's story from the journals, each step under the event that caused it."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from posixpath import join
from typing import Any

from klamm.cli.speech import say
from klamm.model.errors import KlammError
from klamm.model.ids import parse_topic_partition
from klamm.runtime.disk import Disk, RealDisk
from klamm.telemetry.journal_reader import Entry, leader_changes, read_journals, story_of, why_of


class NoStory(KlammError):
    pass


def explain(partition: str, data: str, journals: Sequence[str], disk: Disk | None = None) -> int:
    """Print the story; exit status 1 where there is none. Raises NoStory for what cannot be read."""
    disk = disk or RealDisk()
    try:
        wanted = parse_topic_partition(partition)
    except ValueError as error:
        raise NoStory(str(error)) from None
    directories = list(journals) or journal_directories(disk, data)
    for directory in directories:
        if not disk.is_directory(directory):
            raise NoStory(f"there is no directory {directory}: name a node's journal with --journal")
    entries = list(read_journals(disk, directories))
    story = story_of(entries, wanted)
    if not story:
        known = sorted({str(change.partition) for change in leader_changes(entries)})
        hint = f"; they speak of {', '.join(known[:6])}{' ...' if len(known) > 6 else ''}" if known else ""
        say(f"the journals in {', '.join(directories)} do not speak of {wanted}{hint}")
        return 1
    for line in told(story):
        say(line)
    return 0


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
    """The story as lines: an event at the margin, what it led to below it."""
    return [_event(entry) if entry.kind == "event" else f"    {_step(entry)}" for entry in story]


def _event(entry: Entry) -> str:
    when = datetime.fromtimestamp(entry.ts_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
    controller = f"controller {entry.node}, epoch {entry.controller_epoch}"
    return f"{when.removesuffix('+00:00')}  {controller}: {why_of(entry)}"


def _step(entry: Entry) -> str:
    facts = dict(entry.facts)
    match entry.kind:
        case "decision":
            return _decision(facts)
        case "write" | "refused":
            what = facts.pop("what", "")
            return f"{'wrote' if entry.kind == 'write' else 'refused'} {what}{_rest(facts)}"
        case "request":
            return f"told node {facts.pop('broker', '?')} by {facts.pop('api', '?')}{_rest(facts)}"
        case "response":
            return f"node {facts.pop('broker', '?')} answered {facts.pop('api', '?')}{_rest(facts)}"
    return f"{entry.kind}{_rest(facts)}"


def _decision(facts: dict[str, Any]) -> str:
    kind, chosen = facts.pop("decision", ""), facts.pop("chosen", None)
    rejected = "; ".join(f"not {broker}: {why}" for broker, why in facts.pop("rejected", None) or ())
    words = f"decided {kind}: {'nobody' if chosen is None else f'node {chosen}'}"
    return f"{words}{f' ({rejected})' if rejected else ''}{_rest(facts)}"


def _rest(facts: dict[str, Any]) -> str:
    """What else an entry holds; the partition itself is known."""
    kept = {k: v for k, v in facts.items() if k not in {"topic", "partition", "partitions"} and v not in (None, [], {})}
    return "".join(f", {key} {value}" for key, value in kept.items())
