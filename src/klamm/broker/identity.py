"""The identity of a node: log directories, broker id, cluster id, process id.

Source: BrokerMetadataCheckpoint.scala, KafkaServer.getOrGenerateBrokerId (3.9).
"""

import contextlib
from posixpath import join
from typing import Final

import structlog

from klamm.broker.lifecycle import CannotStart
from klamm.config.node_config import NodeConfig
from klamm.config.properties import BadProperties, parse_properties
from klamm.model.ids import BrokerId
from klamm.runtime.disk import Disk
from klamm.runtime.network import reason_of
from klamm.runtime.small_files import create_directory
from klamm.zk.admin_znodes import encode_cluster_id
from klamm.zk.store import Store
from klamm.zk.znodes import CLUSTER_ID

META_PROPERTIES: Final = "meta.properties"
PID_FILE: Final = "node.pid"
LOCK_FILE: Final = ".lock"
_KRAFT: Final = "1"
log = structlog.get_logger("node")


def check_log_directories(disk: Disk, config: NodeConfig) -> None:
    """Create missing log directories. Raises CannotStart where none can be used; one of several may have failed."""
    failures: list[tuple[str, OSError]] = []
    for directory in config.log_directories:
        try:
            create_directory(disk, directory)
            disk.list_directory(directory)
        except OSError as failure:
            failures.append((directory, failure))
            log.error(
                "log directory cannot be used",
                directory=directory,
                reason=reason_of(failure),
                action="Repair the directory or its permissions, and restart the node.",
            )
    if len(failures) == len(config.log_directories):
        directory, error = failures[0]
        raise CannotStart(
            f"Cannot use the log directory {directory}: {reason_of(error)}. Give this user the right to write"
            f" there, or change {config.where(_directories_key(config))}."
        ) from error


def _directories_key(config: NodeConfig) -> str:
    """The config key to name in error messages: log.dir if only that is set, else log.dirs."""
    return "log.dir" if "log.dir" in config.places and "log.dirs" not in config.places else "log.dirs"


async def choose_broker_id(disk: Disk, config: NodeConfig, cluster_id: str, store: Store) -> BrokerId:
    """The configured id, else the one in meta.properties, else a new one from ZooKeeper.

    Raises CannotStart where a directory belongs to another broker or cluster.
    """
    ids: dict[str, int] = {}
    unreadable: dict[str, OSError] = {}
    dirs = config.where(_directories_key(config))
    for directory in config.log_directories:
        try:
            known = read_meta_properties(disk, directory)
        except OSError as failure:
            unreadable[directory] = failure
            continue
        theirs = known.get("cluster.id")
        if theirs is not None and theirs != cluster_id:
            zookeeper = f"{config.zookeeper_hosts}{config.zookeeper_chroot}"
            raise CannotStart(
                f"{join(directory, META_PROPERTIES)} belongs to the cluster {theirs}, but {zookeeper} holds the cluster"
                f" {cluster_id}. Change {config.where('zookeeper.connect')} or {dirs}. If the data in ZooKeeper was"
                f" restored without the cluster id, restore it: klamm zk set {CLUSTER_ID}"
                f" '{encode_cluster_id(theirs).decode()}' --zookeeper {zookeeper}"
            )
        if known.get("broker.id", "").isdigit():
            ids[directory] = int(known["broker.id"])
    if len(set(ids.values())) > 1:
        listed = ", ".join(f"{directory}: {number}" for directory, number in ids.items())
        raise CannotStart(f"The log directories belong to different brokers ({listed}). Change {dirs}.")
    for directory, number in ids.items():
        if config.broker_id not in (-1, number):
            raise CannotStart(
                f"{join(directory, META_PROPERTIES)} belongs to broker {number}, but broker.id={config.broker_id}."
                f" Change {config.where('broker.id')} or {dirs}."
            )
        return BrokerId(number)
    if config.broker_id >= 0:
        return BrokerId(config.broker_id)
    for directory, error in unreadable.items():
        raise CannotStart(
            f"Cannot read {join(directory, META_PROPERTIES)}: {reason_of(error)}. Repair the disk, or set broker.id."
        ) from error
    return await store.generate_broker_id(config.reserved_broker_max_id)


def read_meta_properties(disk: Disk, directory: str) -> dict[str, str]:
    """The entries of the directory's meta.properties; empty where it is new. Raises CannotStart, OSError."""
    path = join(directory, META_PROPERTIES)
    try:
        entries = {p.key: p.value for p in parse_properties(disk.read(path))}
    except FileNotFoundError:
        return {}
    except BadProperties as error:
        raise CannotStart(f"Cannot read {path}: {error}. Correct the file, or restore it from a backup.") from error
    if entries.get("version") == _KRAFT:
        raise CannotStart(f"{path} was written in KRaft mode. Use a log directory of a broker in ZooKeeper mode.")
    return entries


def write_pid(disk: Disk, directory: str, process_id: int) -> None:
    """Write the process id; call it while this process holds the directory's lock.

    Raises OSError; the id of an earlier process is removed then.
    """
    path = f"{directory}/{PID_FILE}"
    try:
        disk.write_atomically(path, f"{process_id}\n".encode())
    except OSError:
        with contextlib.suppress(OSError):
            disk.remove(path)
        raise


def read_pid(disk: Disk, directory: str) -> int | None:
    """The id of the process that locks the directory; None if there is none or it is unknown."""
    if not disk.is_directory(directory):
        return None
    lock = disk.lock(f"{directory}/{LOCK_FILE}")
    if lock is not None:
        lock.release()
        return None
    try:
        text = disk.read(f"{directory}/{PID_FILE}").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
