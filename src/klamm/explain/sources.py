"""Read what explanations need: the journal, from files or from the topic, and a snapshot of ZooKeeper."""

import re
from collections.abc import Sequence
from posixpath import join
from typing import Final, NamedTuple

from klamm.audit.snapshot import CannotAudit, Snapshot, take_snapshot
from klamm.config.properties import parse_properties
from klamm.explain.live import GroupNow, TransactionNow
from klamm.explain.topic_reading import read_values
from klamm.model.errors import KlammError
from klamm.model.ids import TopicPartition
from klamm.runtime.disk import Disk
from klamm.runtime.main_loop import run_loop
from klamm.runtime.world import real_world
from klamm.telemetry.journal import JOURNAL_TOPIC
from klamm.telemetry.journal_reader import Entry, Wanted, distinct, parse_lines, read_journals

_ZOOKEEPER_TIMEOUT_S: Final = 3.0
_NOT_OF_CONTROLLERS: Final = (
    b'"kind":"decision"', b'"kind":"write"', b'"kind":"group"', b'"kind":"transaction"'
)  # fmt: skip
_ADDRESS: Final = re.compile(r"://([^,\s]+:\d+)")


class CannotExplain(KlammError):
    """The journal cannot be read; the text says which option to add."""


class Sources(NamedTuple):
    """What the command line names."""

    data: str
    journals: Sequence[str] = ()
    bootstrap: str | None = None
    zookeeper: str | None = None


class ExplainInputs(NamedTuple):
    entries: list[Entry]
    where: str
    """Where the journal was read."""
    now: Snapshot | None
    """None when ZooKeeper is not named or does not answer."""
    zookeeper_problem: str | None = None
    """Why ZooKeeper did not answer."""
    may_be_stale: bool = False
    """The journal is from the topic, which may lack the newest entries."""
    live: GroupNow | TransactionNow | None = None
    """What the coordinator answers now; None where it was not asked, or does not answer."""
    live_problem: str | None = None
    """Why the coordinator did not answer."""


def read_inputs(sources: Sources, disk: Disk, wanted: Wanted | None = None) -> ExplainInputs:
    """Read the journal entries that match `wanted`, and ZooKeeper.

    Raises CannotExplain when neither can be read.
    """
    now, zookeeper_problem = _snapshot_or_problem(sources, disk)
    try:
        entries, where = _read_journal(sources, disk, wanted)
    except CannotExplain as error:
        if now is None and zookeeper_problem is not None:
            raise CannotExplain(
                f"Neither the journal nor ZooKeeper can be read. {error} {zookeeper_problem}"
            ) from error
        if now is None or sources.journals or sources.bootstrap:
            raise
        entries, where = [], sources.data  # the snapshot alone is useful for any cluster
    return ExplainInputs(entries, where, now, zookeeper_problem, bool(sources.bootstrap))


def read_entries(sources: Sources, disk: Disk) -> list[Entry]:
    """Read all journal entries except those per partition. Raises CannotExplain."""
    return _read_journal(sources, disk, is_not_partition_line)[0]


def is_not_partition_line(line: bytes) -> bool:
    """Whether a journal line is not of the kinds that are most of the journal.

    Those are not needed for brokers and controllers.
    """
    head = line[:160]
    return not any(kind in head for kind in _NOT_OF_CONTROLLERS)


def _read_journal(sources: Sources, disk: Disk, wanted: Wanted | None) -> tuple[list[Entry], str]:
    """Return the journal entries, and whether they come from the topic or from files of nodes. Raises CannotExplain."""
    if sources.bootstrap:
        addresses = [parse_address(text) for text in sources.bootstrap.split(",")]
        values = run_loop(read_values(real_world(), addresses, TopicPartition(JOURNAL_TOPIC, 0)))
        return distinct(parse_lines(b"\n".join(values), wanted)), f"topic {JOURNAL_TOPIC}"
    directories = chosen_directories(disk, sources.data, sources.journals)
    return list(read_journals(disk, directories, wanted)), ", ".join(directories)


def chosen_directories(disk: Disk, data: str, journals: Sequence[str]) -> list[str]:
    """The directories in `journals`, or those of the nodes of `klamm up` if there are none.

    Raises CannotExplain where one does not exist.
    """
    for directory in journals:
        if not disk.is_directory(directory):
            raise CannotExplain(
                f"There is no directory {directory}. Name the journal directory of a node with --journal."
            )
    return list(journals) or journal_directories(disk, data)


def journal_directories(disk: Disk, data: str) -> list[str]:
    """The journal directories of the nodes of `klamm up`. Raises CannotExplain when there are none."""
    found = [join(node, "logs") for node in _node_directories(disk, data)]
    existing = [directory for directory in found if disk.is_directory(directory)]
    if not existing:
        raise CannotExplain(
            f"There is no journal in {data}. Name the data directory of `klamm up` with --data, the journal directory "
            "of a node with --journal, or a cluster with --bootstrap-server."
        )
    return existing


def parse_address(text: str) -> tuple[str, int]:
    """Parse `host:port`. Raises CannotExplain."""
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdigit():
        raise CannotExplain(f"--bootstrap-server {text!r} is not HOST:PORT. Give for example 127.0.0.1:9092.")
    return host.strip("[]"), int(port)


def _snapshot_or_problem(sources: Sources, disk: Disk) -> tuple[Snapshot | None, str | None]:
    """Read the named ZooKeeper, or that of `klamm up`; if it does not answer, return why."""
    connect = sources.zookeeper
    if not connect and not sources.journals and not sources.bootstrap:
        connect = _zookeeper_of_cluster(disk, sources.data)
    if not connect:
        return None, None
    try:
        return take_snapshot(connect, _ZOOKEEPER_TIMEOUT_S), None
    except CannotAudit as error:
        return None, str(error)


def _zookeeper_of_cluster(disk: Disk, data: str) -> str | None:
    """Return `zookeeper.connect` of the nodes of `klamm up`; None if there is no such node."""
    for node in _node_directories(disk, data):
        path = join(node, "server.properties")
        if disk.exists(path):
            return {p.key: p.value for p in parse_properties(disk.read(path))}.get("zookeeper.connect")
    return None


def bootstrap_of_cluster(disk: Disk, data: str) -> str | None:
    """The addresses of the nodes of `klamm up`, for `--bootstrap-server`; None if there is no such node."""
    found: list[str] = []
    for node in _node_directories(disk, data):
        path = join(node, "server.properties")
        if disk.exists(path):
            listeners = {p.key: p.value for p in parse_properties(disk.read(path))}.get("listeners", "")
            found += _ADDRESS.findall(listeners)[:1]
    return ",".join(found) or None


def _node_directories(disk: Disk, data: str) -> list[str]:
    """Return the paths of the nodes' directories below `data`; empty where there is none."""
    names = disk.list_directory(data) if disk.is_directory(data) else []
    return [join(data, name) for name in names if name.startswith("node-")]
