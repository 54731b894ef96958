"""Who this node is: its log directories, the broker id in them, the cluster they belong to.

Source: BrokerMetadataCheckpoint.scala, KafkaServer.getOrGenerateBrokerId (3.9).
"""

from posixpath import join
from typing import Final

from klamm.broker.lifecycle import CannotStart
from klamm.config.node_config import NodeConfig
from klamm.config.properties import BadProperties, parse_properties
from klamm.model.ids import BrokerId
from klamm.runtime.disk import Disk
from klamm.runtime.processes import own_pid
from klamm.zk.admin_znodes import encode_cluster_id
from klamm.zk.store import Store
from klamm.zk.znodes import CLUSTER_ID

META_PROPERTIES: Final = "meta.properties"
PID_FILE: Final = "node.pid"
LOCK_FILE: Final = ".lock"
_KRAFT: Final = "1"


def check_log_directories(disk: Disk, config: NodeConfig) -> None:
    """Create those that are missing. Raises CannotStart where one cannot be used."""
    for directory in config.log_directories:
        try:
            disk.make_directories(directory)
            disk.list_directory(directory)
        except OSError as error:
            raise CannotStart(
                f"the log directory {directory} cannot be used ({error.strerror or error}); give this user the right to"
                f" write there, or change log.dirs in {config.source}"
            ) from error


async def choose_broker_id(disk: Disk, config: NodeConfig, cluster_id: str, store: Store) -> BrokerId:
    """The configured id, else the one in the log directories, else a new one from ZooKeeper.

    Raises CannotStart where a directory belongs to another broker or cluster.
    """
    found: dict[str, int] = {}
    for directory in config.log_directories:
        known = read_meta_properties(disk, directory)
        theirs = known.get("cluster.id")
        if theirs is not None and theirs != cluster_id:
            raise CannotStart(
                f"{join(directory, META_PROPERTIES)} belongs to the cluster {theirs}, but {config.zookeeper_hosts}"
                f"{config.zookeeper_chroot} holds the cluster {cluster_id}; correct zookeeper.connect or log.dirs in"
                f" {config.source}, or, where that tree was restored without its id: klamm zk set {CLUSTER_ID} "
                f"'{encode_cluster_id(theirs).decode()}' --zookeeper {config.zookeeper_hosts}{config.zookeeper_chroot}"
            )
        if known.get("broker.id", "").isdigit():
            found[directory] = int(known["broker.id"])
    if len(set(found.values())) > 1:
        ids = ", ".join(f"{directory}: {number}" for directory, number in found.items())
        raise CannotStart(f"the log directories belong to different brokers ({ids}); correct log.dirs")
    for directory, number in found.items():
        if config.broker_id not in (-1, number):
            raise CannotStart(
                f"{join(directory, META_PROPERTIES)} belongs to broker {number}, but {config.source} says broker.id="
                f"{config.broker_id}; correct broker.id or log.dirs"
            )
        return BrokerId(number)
    if config.broker_id >= 0:
        return BrokerId(config.broker_id)
    return await store.generate_broker_id(config.reserved_broker_max_id)


def read_meta_properties(disk: Disk, directory: str) -> dict[str, str]:
    """What the directory says of itself; empty where it is new. Raises CannotStart where that cannot be read."""
    path = join(directory, META_PROPERTIES)
    try:
        entries = {p.key: p.value for p in parse_properties(disk.read(path))}
    except FileNotFoundError:
        return {}
    except (OSError, BadProperties) as error:
        raise CannotStart(f"{path} cannot be read: {error}") from error
    if entries.get("version") == _KRAFT:
        raise CannotStart(f"{path} was written in KRaft mode; klamm needs a directory of ZooKeeper mode")
    return entries


def write_pid(disk: Disk, directory: str) -> None:
    """Call it once the directory's lock is ours. Raises OSError."""
    disk.write_atomically(f"{directory}/{PID_FILE}", f"{own_pid()}\n".encode())


def read_pid(disk: Disk, directory: str) -> int | None:
    """The process that holds the directory; None where none does, or it does not say which."""
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
