"""The JSON files of Kafka's tools: reassignments, topics to move, elections.

Source: ReassignPartitionsCommand.java, LeaderElectionCommand.java. Errors name the place in the file.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from klamm.model.errors import UsageError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.runtime.disk import Disk

ANY_LOG_DIR: Final = "any"
Replicas = tuple[BrokerId, ...]
LogDirs = dict[TopicPartition, dict[BrokerId, str]]
"""The log directory that a replica on a broker is to be in."""


class Reassignment(NamedTuple):
    """What a reassignment file asks for."""

    replicas: dict[TopicPartition, Replicas]
    """The target replicas of each partition, in the order of the file."""
    log_dirs: LogDirs
    """The chosen log directories; replicas with `any` are left out, and so are partitions without a chosen one."""


class _Partition(msgspec.Struct):
    topic: str
    partition: int
    replicas: list[int]
    log_dirs: list[str] | None = None


class _Reassignment(msgspec.Struct):
    partitions: list[_Partition]
    version: int = 1


class _Topic(msgspec.Struct):
    topic: str


class _TopicsToMove(msgspec.Struct):
    topics: list[_Topic]
    version: int = 1


class _Elected(msgspec.Struct):
    topic: str
    partition: int


class _Election(msgspec.Struct):
    partitions: list[_Elected]


_EXAMPLES: Final[Mapping[type[Any], str]] = {
    _Reassignment: '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2]}]}',
    _TopicsToMove: '{"version":1,"topics":[{"topic":"orders"}]}',
    _Election: '{"partitions":[{"topic":"orders","partition":0}]}',
}


def read_file(disk: Disk, option: str, path: str) -> bytes:
    """The content of the file that an option names. Raises UsageError."""
    try:
        return disk.read(path)
    except OSError as error:
        raise UsageError(f"Cannot read {option} {path}: {error.strerror or error}. Check the path.") from error


def parse_reassignment(content: bytes, source: str) -> Reassignment:
    """Parse a reassignment. Raises UsageError."""
    found = Reassignment({}, {})
    for index, entry in enumerate(_decode_json(content, _Reassignment, source).partitions):
        at = TopicPartition(entry.topic, entry.partition)
        replicas = tuple(map(BrokerId, entry.replicas))
        place = f"{source}: partitions[{index}] ({at})"
        if at in found.replicas:
            raise UsageError(f"{place} is listed twice. Remove one.")
        if entry.partition < 0 or any(b < 0 for b in replicas):
            raise UsageError(f"{place} has a negative number. Partitions and brokers count from 0.")
        if not replicas:
            raise UsageError(f"{place} has no replicas. Name at least one broker.")
        if len(set(replicas)) < len(replicas):
            raise UsageError(f"{place} lists a broker twice: {entry.replicas}. List each once.")
        found.replicas[at] = replicas
        if chosen := _chosen_log_dirs(entry, replicas, place):
            found.log_dirs[at] = chosen
    if not found.replicas:
        raise UsageError(f'{source} lists no partition. Add at least one to its "partitions".')
    return found


def _chosen_log_dirs(entry: _Partition, replicas: Replicas, place: str) -> dict[BrokerId, str]:
    """The log directories that the entry names, by broker. Raises UsageError."""
    if entry.log_dirs is None:
        return {}
    if len(entry.log_dirs) != len(entry.replicas):
        raise UsageError(
            f"{place} has {len(entry.replicas)} replicas and {len(entry.log_dirs)} log_dirs. Write one log_dirs entry "
            "for each replica, or omit log_dirs."
        )
    chosen = {b: path for b, path in zip(replicas, entry.log_dirs, strict=True) if path != ANY_LOG_DIR}
    for path in chosen.values():
        if not path.startswith("/"):
            raise UsageError(
                f"{place} has log directory {path!r}, which is no absolute path. Write one of the "
                f"broker's log.dirs, or {ANY_LOG_DIR!r}."
            )
    return chosen


def reassignment_as_data(assignment: Mapping[TopicPartition, Replicas]) -> dict[str, Any]:
    """A reassignment in the format of kafka-reassign-partitions, sorted."""
    return {
        "version": 1,
        "partitions": [
            {"topic": at.topic, "partition": at.partition, "replicas": r, "log_dirs": [ANY_LOG_DIR] * len(r)}
            for at, r in sorted(assignment.items())
        ],
    }


def parse_topics_to_move(content: bytes, source: str) -> list[str]:
    """Parse the names of the topics to move; there is at least one. Raises UsageError."""
    names = [entry.topic for entry in _decode_json(content, _TopicsToMove, source).topics]
    if not names:
        raise UsageError(f'{source} lists no topic. Add at least one to its "topics".')
    if repeated := next((n for n in names if names.count(n) > 1), None):
        raise UsageError(f"{source} lists topic {repeated} twice. List it once.")
    return names


def parse_election(content: bytes, source: str) -> list[TopicPartition]:
    """Parse the partitions of an election. Raises UsageError."""
    found = [TopicPartition(e.topic, e.partition) for e in _decode_json(content, _Election, source).partitions]
    if len(set(found)) < len(found):
        repeated = next(p for p in found if found.count(p) > 1)
        raise UsageError(f"{source} lists {repeated} twice. List it once.")
    return found


def _decode_json(content: bytes, shape: type[Any], source: str) -> Any:
    """Decode JSON of this type, version 1. Raises UsageError."""
    try:
        read = msgspec.json.decode(content, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        example = _EXAMPLES[shape]
        raise UsageError(f"{source} is not valid: {error}. Write for example {example}") from error
    if getattr(read, "version", 1) != 1:
        raise UsageError(f'{source} has version {read.version}. Write "version": 1, the only supported one.')
    return read
