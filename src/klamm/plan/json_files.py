"""The JSON files of Kafka's tools: reassignments, topics to move, elections.

Source: ReassignPartitionsCommand.java, LeaderElectionCommand.java. Errors name the place in the file.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from klamm.model.errors import UsageError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.runtime.disk import Disk

ANY_LOG_DIR: Final = "any"
Replicas = tuple[BrokerId, ...]


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


def read_file(disk: Disk, option: str, path: str) -> bytes:
    """The content of the file that an option names. Raises UsageError."""
    try:
        return disk.read(path)
    except OSError as error:
        raise UsageError(f"Cannot read {option} {path}: {error.strerror or error}. Check the path.") from error


def parse_reassignment(content: bytes, source: str) -> dict[TopicPartition, Replicas]:
    """Parse a reassignment: the target replicas of each partition, in the order of the file. Raises UsageError."""
    found: dict[TopicPartition, Replicas] = {}
    for index, entry in enumerate(_decode_json(content, _Reassignment, source).partitions):
        at = TopicPartition(entry.topic, entry.partition)
        replicas = tuple(map(BrokerId, entry.replicas))
        place = f"{source}: partitions[{index}] ({at})"
        if at in found:
            raise UsageError(f"{place} is listed twice. Remove one.")
        if entry.partition < 0 or any(b < 0 for b in replicas):
            raise UsageError(f"{place} has a negative number. Partitions and brokers count from 0.")
        if not replicas:
            raise UsageError(f"{place} has no replicas. Name at least one broker.")
        if len(set(replicas)) < len(replicas):
            raise UsageError(f"{place} lists a broker twice: {entry.replicas}. List each once.")
        _check_log_dirs(entry, place)
        found[at] = replicas
    if not found:
        raise UsageError(f'{source} lists no partition. Add at least one to its "partitions".')
    return found


def _check_log_dirs(entry: _Partition, place: str) -> None:
    """Raise UsageError for a chosen log directory: moves between log directories are not supported."""
    if entry.log_dirs is None:
        return
    if len(entry.log_dirs) != len(entry.replicas):
        raise UsageError(
            f"{place} has {len(entry.replicas)} replicas and {len(entry.log_dirs)} log_dirs. Write one log_dirs entry "
            "for each replica, or omit log_dirs."
        )
    chosen = [d for d in entry.log_dirs if d != ANY_LOG_DIR]
    if chosen:
        raise UsageError(
            f"{place} has log directory {chosen[0]}. Moves between log directories are not supported: write "
            f"{ANY_LOG_DIR!r}, or omit log_dirs."
        )


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
        raise UsageError(f"{source} is not valid: {error}.") from error
    if getattr(read, "version", 1) != 1:
        raise UsageError(f'{source} has version {read.version}. Write "version": 1, the only supported one.')
    return read
