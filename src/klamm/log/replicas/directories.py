"""The replicas in log directories, as directory names and checkpoint files show them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from klamm.log.checkpoints import CLEANED_OFFSETS, HIGH_WATERMARKS, LOG_STARTS, parse_offsets
from klamm.log.errors import BadLogDirectory
from klamm.log.meta_properties import META_PROPERTIES, read_meta
from klamm.log.names import PARTITION_METADATA, parse_directory
from klamm.log.partition_metadata import read_topic_id
from klamm.model.ids import TopicPartition
from klamm.model.topic_ids import id_to_text
from klamm.runtime.disk import Disk

_NOT_LOGS: Final = {"__cluster_metadata-0"}


class StoredReplica(NamedTuple):
    """One replica in a log directory. `high_watermark` is None where no checkpoint has it yet."""

    partition: TopicPartition
    log_dir: str
    broker_id: int | None
    high_watermark: int | None
    checkpointed_log_start: int

    @property
    def checkpoint(self) -> str:
        """The file with the high watermarks of its log directory."""
        return f"{self.log_dir}/{HIGH_WATERMARKS}"

    @property
    def directory(self) -> str:
        """The directory with the replica's files."""
        return f"{self.log_dir}/{self.partition}"


class StoredDirectory(NamedTuple):
    """One entry of `log.dirs`: whose it is, and the replicas in it; future, deleted and stray ones are left out."""

    path: str
    broker_id: int | None
    cluster_id: str | None
    replicas: Mapping[TopicPartition, StoredReplica]


def read_directory(disk: Disk, path: str) -> StoredDirectory:
    """List the replicas of one log directory, which a running broker may have locked.

    Raises BadLogDirectory for a path that is not a log directory, CorruptFile for a damaged checkpoint, OSError.
    """
    path = path.rstrip("/") or "/"
    if not disk.is_directory(path):
        raise BadLogDirectory(f"there is no directory {path} on this machine. Correct the path.")
    names = disk.list_directory(path)
    partitions = [p for name in names if (p := _live_partition(name)) is not None and disk.is_directory(f"{path}/{p}")]
    meta = read_meta(disk, path)
    if meta is None:
        raise BadLogDirectory(f"{path} is not a log directory: it has no {META_PROPERTIES}. {_remedy(disk, path)}")
    high_watermarks = _checkpointed(disk, f"{path}/{HIGH_WATERMARKS}")
    log_starts = _checkpointed(disk, f"{path}/{LOG_STARTS}")
    replicas = {
        p: StoredReplica(p, path, meta.broker_id, high_watermarks.get(p), log_starts.get(p, 0)) for p in partitions
    }
    return StoredDirectory(path, meta.broker_id, meta.cluster_id, replicas)


def read_directories(disk: Disk, paths: Iterable[str]) -> list[StoredDirectory]:
    """List the replicas of several log directories of one cluster. Raises as `read_directory`, and for two clusters."""
    found = [read_directory(disk, path) for path in paths]
    known = [d for d in found if d.cluster_id is not None]
    for other in known[1:]:
        if other.cluster_id != known[0].cluster_id:
            raise BadLogDirectory(
                f"{known[0].path} belongs to the cluster {known[0].cluster_id}, but {other.path} to "
                f"{other.cluster_id}. Give directories of one cluster."
            )
    return found


def replicas_of(directories: Iterable[StoredDirectory]) -> dict[TopicPartition, list[StoredReplica]]:
    """The replicas of each partition, in order of partition and directory."""
    found: dict[TopicPartition, list[StoredReplica]] = {}
    for directory in directories:
        for partition, replica in directory.replicas.items():
            found.setdefault(partition, []).append(replica)
    return dict(sorted(found.items()))


def most_advanced(replicas: Sequence[StoredReplica]) -> StoredReplica:
    """The replica with the greatest high watermark; of equal ones the first."""
    return max(replicas, key=lambda replica: -1 if replica.high_watermark is None else replica.high_watermark)


def topic_id_of(disk: Disk, replica: StoredReplica) -> UUID | None:
    """The topic id of the replica; None where brokers before 2.8 wrote none. Raises OSError, CorruptFile."""
    return read_topic_id(disk, f"{replica.directory}/{PARTITION_METADATA}")


def common_topic_id(disk: Disk, replicas: Iterable[StoredReplica]) -> UUID | None:
    """The topic id that all replicas of one topic have; None where none has one.

    Raises BadLogDirectory where two differ: one of them is left from a deleted topic.
    """
    first: tuple[StoredReplica, UUID] | None = None
    for replica in replicas:
        topic_id = topic_id_of(disk, replica)
        if topic_id is None:
            continue
        if first is None:
            first = replica, topic_id
        elif topic_id != first[1]:
            raise BadLogDirectory(
                f"{first[0].directory} has topic id {id_to_text(first[1])}, but {replica.directory} has "
                f"{id_to_text(topic_id)}: the topic was deleted and created again. Leave out the log directory that "
                "has the old one."
            )
    return None if first is None else first[1]


def was_cleaned(disk: Disk, log_dir: str, partition: TopicPartition) -> bool:
    """Whether compaction has ever finished on this replica, so that offsets may be missing. Raises OSError."""
    return partition in _checkpointed(disk, f"{log_dir}/{CLEANED_OFFSETS}")


def _checkpointed(disk: Disk, path: str) -> Mapping[TopicPartition, int]:
    """The offsets in a checkpoint file; none where there is no file, or an empty one. Raises CorruptFile, OSError.

    Apache Kafka's brokers create the files when they start, and write them later.
    """
    try:
        content = disk.read(path)
    except FileNotFoundError:
        return {}
    return parse_offsets(content, path) if content else {}


def _live_partition(name: str) -> TopicPartition | None:
    """The partition of a directory in use; None for other names."""
    try:
        parsed = parse_directory(name)
    except ValueError:
        return None
    is_live = name == str(parsed.partition)  # others have a suffix
    return parsed.partition if is_live and name not in _NOT_LOGS else None


def _remedy(disk: Disk, path: str) -> str:
    """What to do about a path that is not a log directory."""
    parent = path.rpartition("/")[0]
    if disk.exists(f"{parent}/{META_PROPERTIES}"):
        return f"It is the directory of a partition: give {parent}."
    return "Give the directories that the broker has in log.dirs."
