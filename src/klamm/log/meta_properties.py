"""`meta.properties` and `.kafka_cleanshutdown`: the owner of a log directory, and whether its shutdown was clean.

Source: MetaProperties.java, MetaPropertiesEnsemble.java, CleanShutdownFileHandler.java.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from klamm.log.errors import BadLogDirectory, CorruptFile
from klamm.runtime.disk import Disk

META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
NO_BROKER_EPOCH: Final = -1

_VERSION: Final = "0"


_RESTORE: Final = (
    "Restore it (version=0, broker.id, cluster.id as in the node's other log directories), "
    "or remove this directory from log.dirs."
)


class MetaProperties(NamedTuple):
    """Fields of meta.properties, None where missing; `others` are preserved when the file is written again."""

    broker_id: int | None
    cluster_id: str | None
    others: tuple[tuple[str, str], ...] = ()


def read_meta(disk: Disk, directory: str) -> MetaProperties | None:
    """The content of meta.properties; None where there is no file. Raises OSError, CorruptFile, BadLogDirectory."""
    path = f"{directory}/{META_PROPERTIES}"
    try:
        content = disk.read(path)
    except FileNotFoundError:
        return None
    fields = _properties(content.decode(errors="replace"))
    version = fields.pop("version", None)
    if version is None:
        raise CorruptFile(f"{path} is damaged: it has no line version=0. {_RESTORE}")
    if version != _VERSION:
        raise BadLogDirectory(
            f"{path} has version={version}, but a log directory in ZooKeeper mode has version={_VERSION}. "
            "Change log.dirs to a directory that no KRaft node has formatted."
        )
    broker_id = fields.pop("broker.id", None)
    if broker_id is not None and not broker_id.isdigit():
        raise CorruptFile(f"{path} is damaged: broker.id={broker_id} is not a number. {_RESTORE}")
    cluster_id = fields.pop("cluster.id", None)
    return MetaProperties(None if broker_id is None else int(broker_id), cluster_id, tuple(sorted(fields.items())))


def _properties(text: str) -> dict[str, str]:
    """The keys and values of a Java properties file."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
    return {key.strip(): value.strip().replace("\\:", ":").replace("\\=", "=") for key, _, value in pairs}


def read_all_meta(disk: Disk, directories: Sequence[str]) -> Mapping[str, MetaProperties]:
    """The meta.properties of each directory, by path; missing and unreadable ones are left out.

    Raises BadLogDirectory where two of them disagree.
    """
    found = {}
    for directory in directories:
        try:
            meta = read_meta(disk, directory)
        except (OSError, CorruptFile):
            continue  # loading takes such a directory offline
        if meta is not None:
            found[directory] = meta
    for what in ("broker_id", "cluster_id"):
        values = {
            getattr(meta, what): directory for directory, meta in found.items() if getattr(meta, what) is not None
        }
        if len(values) > 1:
            places = "; ".join(f"{directory} has {value}" for value, directory in values.items())
            raise BadLogDirectory(
                f"The log directories have different {what.replace('_', '.')}s in {META_PROPERTIES}: {places}. "
                "List only directories of one node in log.dirs."
            )
    return found


def check_meta(directory: str, meta: MetaProperties, broker_id: int, cluster_id: str) -> None:
    """Raise BadLogDirectory where the directory belongs to another broker or cluster."""
    path = f"{directory}/{META_PROPERTIES}"
    if meta.broker_id is not None and meta.broker_id != broker_id:
        raise BadLogDirectory(
            f"{path} belongs to broker {meta.broker_id}, but this node is broker {broker_id}. "
            "Correct broker.id or log.dirs."
        )
    if meta.cluster_id is not None and meta.cluster_id != cluster_id:
        raise BadLogDirectory(
            f"{path} belongs to cluster {meta.cluster_id}, but zookeeper.connect leads to cluster {cluster_id}. "
            "Correct zookeeper.connect, or use another directory."
        )


def write_meta(disk: Disk, directory: str, meta: MetaProperties) -> None:
    """Write `meta.properties` of the log directory atomically: version, broker id, cluster id if known, other keys."""
    fields = {"version": _VERSION, "broker.id": str(meta.broker_id), **dict(meta.others)}
    if meta.cluster_id is not None:
        fields["cluster.id"] = meta.cluster_id
    text = "#\n" + "".join(f"{key}={value}\n" for key, value in fields.items())
    disk.write_atomically(f"{directory}/{META_PROPERTIES}", text.encode())


class _CleanShutdown(msgspec.Struct, rename="camel"):
    """The JSON content of `.kafka_cleanshutdown`."""

    version: int = 0
    broker_epoch: int = NO_BROKER_EPOCH


def remove_clean_shutdown(disk: Disk, directory: str) -> int | None:
    """Remove the clean-shutdown marker and return its broker epoch; None where there was none. Raises OSError.

    It is removed before any log is loaded, so that a crash while loading is not taken for a clean shutdown.
    """
    path = f"{directory}/{CLEAN_SHUTDOWN}"
    if not disk.exists(path):
        return None
    content = disk.read(path)
    disk.remove(path)
    disk.sync_directory(directory)
    try:
        return msgspec.json.decode(content, type=_CleanShutdown).broker_epoch
    except (msgspec.DecodeError, UnicodeDecodeError):
        return NO_BROKER_EPOCH  # brokers before 3.7 leave an empty file


def write_clean_shutdown(disk: Disk, directory: str, broker_epoch: int) -> None:
    """Write the clean-shutdown marker with the broker epoch."""
    content = msgspec.json.encode(_CleanShutdown(broker_epoch=broker_epoch))
    disk.write_atomically(f"{directory}/{CLEAN_SHUTDOWN}", content)
