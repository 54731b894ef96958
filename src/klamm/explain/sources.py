"""Where explanations come from: journals, as files or as a topic, and the tree in ZooKeeper as it stands."""

from collections.abc import Sequence
from posixpath import join
from typing import Final, NamedTuple

from klamm.audit.snapshot import CannotAudit, Snapshot, take_snapshot
from klamm.config.properties import parse_properties
from klamm.explain.topic_reading import read_values
from klamm.model.errors import KlammError
from klamm.model.ids import TopicPartition
from klamm.runtime.disk import Disk
from klamm.runtime.main_loop import run_loop
from klamm.runtime.world import real_world
from klamm.telemetry.journal import JOURNAL_TOPIC
from klamm.telemetry.journal_reader import Entry, Wanted, distinct, entries_of, read_journals

_PATIENCE_S: Final = 3.0


class NoStory(KlammError):
    """What was asked for cannot be read; says what to name instead."""


class Sources(NamedTuple):
    """What a command line names."""

    data: str
    journals: Sequence[str] = ()
    bootstrap: str | None = None
    zookeeper: str | None = None


class Found(NamedTuple):
    entries: list[Entry]
    where: str
    """Journals in words."""
    now: Snapshot | None
    """What ZooKeeper holds; None where nobody named it, or it does not answer."""
    silence: str | None = None
    """Why it did not answer, where it was asked."""
    is_behind: bool = False
    """Whether nodes may have written more than this: the topic may be out of reach for them."""


def read(sources: Sources, disk: Disk, wanted: Wanted | None = None) -> Found:
    """Of the journals the lines that are wanted. Raises NoStory where neither they nor ZooKeeper can be read."""
    now, silence = _snapshot(sources, disk)
    try:
        entries, where = _journals(sources, disk, wanted)
    except NoStory as error:
        if now is None and silence is not None:
            raise NoStory(f"{error}; {silence}") from error
        if now is None or sources.journals or sources.bootstrap:
            raise
        entries, where = [], sources.data  # the tree alone tells something, too: any cluster's
    return Found(entries, where, now, silence, bool(sources.bootstrap))


def read_entries(sources: Sources, disk: Disk) -> list[Entry]:
    """The journals alone, but for who leads. Raises NoStory."""
    return _journals(sources, disk, is_no_decision)[0]


def is_no_decision(line: bytes) -> bool:
    """Decisions and writes are most of a journal: one line for each partition."""
    head = line[:160]
    return b'"kind":"decision"' not in head and b'"kind":"write"' not in head


def _journals(sources: Sources, disk: Disk, wanted: Wanted | None) -> tuple[list[Entry], str]:
    if sources.bootstrap:
        addresses = [parse_address(text) for text in sources.bootstrap.split(",")]
        values = run_loop(read_values(real_world(), addresses, TopicPartition(JOURNAL_TOPIC, 0)))
        return distinct(entries_of(b"\n".join(values), wanted)), f"topic {JOURNAL_TOPIC}"
    directories = list(sources.journals) or journal_directories(disk, sources.data)
    for directory in directories:
        if not disk.is_directory(directory):
            raise NoStory(f"there is no directory {directory}: name a node's journal with --journal")
    return list(read_journals(disk, directories, wanted)), ", ".join(directories)


def journal_directories(disk: Disk, data: str) -> list[str]:
    """The journals of the nodes of a `klamm up`. Raises NoStory where there are none."""
    found = [join(node, "logs") for node in _nodes(disk, data)]
    existing = [directory for directory in found if disk.is_directory(directory)]
    if not existing:
        raise NoStory(
            f"there are no journals in {data}: name the directory of a `klamm up` with --data, "
            "a node's journal with --journal, or a cluster with --bootstrap-server"
        )
    return existing


def parse_address(text: str) -> tuple[str, int]:
    """`host:port`. Raises NoStory."""
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdigit():
        raise NoStory(f"--bootstrap-server {text!r} is not HOST:PORT, for example 127.0.0.1:9092")
    return host.strip("[]"), int(port)


def _snapshot(sources: Sources, disk: Disk) -> tuple[Snapshot | None, str | None]:
    """The tree of the ZooKeeper that was named, or of a `klamm up`; where it does not answer, why."""
    connect = sources.zookeeper
    if not connect and not sources.journals and not sources.bootstrap:
        connect = _zookeeper_of(disk, sources.data)
    if not connect:
        return None, None
    try:
        return take_snapshot(connect, _PATIENCE_S), None
    except CannotAudit as error:
        return None, str(error)


def _zookeeper_of(disk: Disk, data: str) -> str | None:
    for node in _nodes(disk, data):
        path = join(node, "server.properties")
        if disk.exists(path):
            return {p.key: p.value for p in parse_properties(disk.read(path))}.get("zookeeper.connect")
    return None


def _nodes(disk: Disk, data: str) -> list[str]:
    names = disk.list_directory(data) if disk.is_directory(data) else []
    return [join(data, name) for name in names if name.startswith("node-")]
