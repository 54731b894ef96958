"""Apache Kafka's DumpLogSegments, which reads every kind of file of a log directory and names what is wrong with it."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.kafka_tools import kafka_tools

_MAIN: Final = "kafka.tools.DumpLogSegments"
_LEFT_BY_COMPACTION: Final = re.compile(
    r"^(Non-consecutive offsets in .*|  \d+ is followed by \d+"
    r"|Found timestamp mismatch in .*\n  Index timestamp: \d+, log timestamp: -1)\n",
    re.MULTILINE,
)
"""Offsets that are gone, and batches without records that keep their timestamp; Apache Kafka leaves both, too."""
_INDEXES: Final = (".index", ".timeindex", ".txnindex")
_PARTITION: Final = re.compile(r"(.+)-\d+")
_DECODERS: Final = {"__consumer_offsets": "--offsets-decoder", "__transaction_state": "--transaction-log-decoder"}


class Dump(NamedTuple):
    """What the tool printed, and what it complained of."""

    text: str
    complaints: str


def dump(files: Sequence[Path], *flags: str, is_compacted: bool = False) -> Dump:
    """Run the tool on these files; what compaction leaves is no complaint where the log is compacted."""
    done = kafka_tools().run_class(_MAIN, *flags, "--files", ",".join(map(str, files)))
    complaints = _LEFT_BY_COMPACTION.sub("", done.errors) if is_compacted else done.errors
    if done.status:
        complaints = f"it ended with status {done.status}: {complaints}"
    if "isvalid: false" in done.output:
        complaints += "a batch has a wrong checksum"
    return Dump(done.output, complaints.strip())


class DirectoriesDump(NamedTuple):
    """How many segments were read, and the complaints, each with its partition directory."""

    segments: int
    complaints: list[str]


def dump_log_directories(
    log_dirs: Sequence[str], compacted: Sequence[str], *, was_killed: bool = False
) -> DirectoriesDump:
    """Run the tool on all files of all partitions in the log directories of a stopped broker.

    `compacted` names the compacted topics. After a SIGKILL the indexes of active segments are left out: both kinds of
    broker cut them at their preallocated size, or build them again, when they start.
    """
    segments, complaints = 0, []
    for directory in (d for log_dir in log_dirs for d in _partition_directories(Path(log_dir))):
        topic = directory.name.rpartition("-")[0]
        logs = sorted(directory.glob("*.log"))
        segments += len(logs)
        others = [p for suffix in (*_INDEXES, ".snapshot") for p in sorted(directory.glob(f"*{suffix}"))]
        if was_killed:
            others = [p for p in others if p.suffix not in _INDEXES or p.stem != logs[-1].stem]
        decoder = _DECODERS.get(topic)
        dumps = [dump(logs, "--deep-iteration", is_compacted=topic in compacted)]
        if decoder:
            dumps.append(dump(logs, decoder, is_compacted=topic in compacted))
        if others:
            dumps.append(dump(others, is_compacted=topic in compacted))
        complaints += [f"{directory}: {found.complaints}" for found in dumps if found.complaints]
    return DirectoriesDump(segments, complaints)


def _partition_directories(log_dir: Path) -> Iterator[Path]:
    """The directories of partitions that are in use."""
    yield from sorted(p for p in log_dir.iterdir() if p.is_dir() and _PARTITION.fullmatch(p.name))
