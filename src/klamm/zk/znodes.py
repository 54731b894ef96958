"""Paths of Kafka's znodes, and the payloads that the controller reads and writes. Pure functions.

Decoders ignore unknown keys and the order of keys, and raise `MalformedZnode` for what they cannot read. Registrations
are in `registrations.py`, configs, notifications and admin requests in `admin_znodes.py`. Every payload is compact
JSON. Source: ZkData.scala (3.9).
"""

import uuid
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from klamm.model.assignment import ReplicaAssignment, assignment_of
from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId, shared_ids
from klamm.model.leader_and_isr import LeaderAndIsr, LeaderRecoveryState
from klamm.model.topic_ids import id_from_text, id_to_text

T = TypeVar("T")
MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1
Int16 = Annotated[int, msgspec.Meta(ge=-(2**15), le=2**15 - 1)]
Int32 = Annotated[int, msgspec.Meta(ge=-MAX_INT32 - 1, le=MAX_INT32)]
"""A number outside this range fits JSON, but not the wire protocol: as in Kafka, such a payload is malformed."""

CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_ELECTION: Final = "/admin/preferred_replica_election"
ISR_CHANGES: Final = "/isr_change_notification"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX: Final = "log_dir_event_"
CONFIG: Final = "/config"
CONFIG_CHANGES: Final = "/config/changes"
CLUSTER_ID: Final = "/cluster/id"
FEATURE: Final = "/feature"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
PENDING_DELETIONS: Final = "/klamm/pending_deletions"
"""Klamm's own: replicas that brokers have to delete and may still hold. Apache Kafka ignores it."""
PROCESS_ENDS: Final = "/klamm/process_ends"
"""Klamm's own: how the processes of brokers ended, as their crash guards recorded it."""
NEXT_CONTROLLER: Final = "/klamm/next_controller"
"""Klamm's own: the broker that an operator wants as controller. It exists for seconds."""

TOP_LEVEL: Final = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
)
"""The znodes that every broker creates at its start, persistent and with null data."""


class PartitionLike(Protocol):
    """Anything with topic and partition number: a `TopicPartition`, or the controller's own object."""

    @property
    def topic(self) -> str:
        """The name of the topic."""

    @property
    def partition(self) -> int:
        """The number of the partition in its topic."""


class MalformedZnode(KlammError):
    """The content of a znode cannot be decoded: `cannot read the znode PATH: REASON`."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"cannot read the znode {path}: {reason}")
        self.path = path
        self.reason = reason


# ---- paths


def broker_path(broker: int) -> str:
    """Return the path of the registration of a broker."""
    return f"/brokers/ids/{broker}"


def topic_path(topic: str) -> str:
    """Return the path of the topic's znode, which has its assignment."""
    return f"/brokers/topics/{topic}"


def partitions_path(topic: str) -> str:
    """Return the path of the parent of the topic's partition znodes."""
    return f"/brokers/topics/{topic}/partitions"


def partition_path(partition: PartitionLike) -> str:
    """Return the path of the partition's znode."""
    return f"/brokers/topics/{partition.topic}/partitions/{partition.partition}"


def state_path(partition: PartitionLike) -> str:
    """Return the path of the znode with leader and ISR of the partition."""
    return f"/brokers/topics/{partition.topic}/partitions/{partition.partition}/state"


def delete_topic_path(topic: str) -> str:
    """Return the path of the znode that requests the deletion of the topic."""
    return f"/admin/delete_topics/{topic}"


def pending_deletion_path(broker: int, topic_id: uuid.UUID) -> str:
    """Return the path of the record that the broker still has to delete its replicas of the topic."""
    return f"{PENDING_DELETIONS}/{broker}/{id_to_text(topic_id)}"


def consumer_offset_path(group_id: str, partition: PartitionLike) -> str:
    """Return the path of the group's offset of the partition, as version 0 of OffsetCommit stores it."""
    return f"/consumers/{group_id}/offsets/{partition.topic}/{partition.partition}"


def config_path(entity_type: str, entity: str) -> str:
    """Return the path of the entity's configs.

    The type is topics, clients, users, brokers or ips; the entity `<default>` has the defaults.
    """
    return f"/config/{entity_type}/{entity}"


def topic_config_path(topic: str) -> str:
    """Return the path of the topic's configs."""
    return f"/config/topics/{topic}"


def broker_id_of(child: str) -> BrokerId | None:
    """The broker id in a child's name; None if Kafka would not write this name."""
    if not (child.isascii() and child.isdigit() and len(child) <= 10):
        return None
    number = int(child)
    return BrokerId(number) if number <= MAX_INT32 and str(number) == child else None


# ---- reading and writing JSON


def decode_json(path: str, payload: bytes | None, shape: type[T]) -> T:
    """Decode a payload of this shape. Raises MalformedZnode if it is missing, invalid or has another shape."""
    if payload is None:
        raise MalformedZnode(path, reason="the znode is empty")
    try:
        return msgspec.json.decode(payload, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedZnode(path, str(error)) from error


def encode_json(value: Any) -> bytes:
    """Return the value as compact JSON in UTF-8."""
    return msgspec.json.encode(value)


# ---- /controller and /controller_epoch


class ControllerRegistration(NamedTuple):
    """The broker that `/controller` names."""

    broker: BrokerId
    kraft_controller_epoch: int = -1

    @property
    def is_kraft(self) -> bool:
        """Whether a KRaft controller took over; a ZooKeeper controller must then do nothing."""
        return self.kraft_controller_epoch > 0


class _Controller(msgspec.Struct):
    brokerid: Int32
    kraftControllerEpoch: Int32 = -1  # noqa: N815 - Kafka's key


def encode_controller(broker: BrokerId, now_ms: int) -> bytes:
    """Return the content of `/controller` for this broker."""
    return encode_json({"version": 2, "brokerid": broker, "timestamp": str(now_ms), "kraftControllerEpoch": -1})


def decode_controller(payload: bytes | None) -> ControllerRegistration | None:
    """The content of `/controller`; None if it cannot be decoded, which Kafka treats as "no controller"."""
    try:
        read = decode_json(CONTROLLER, payload, _Controller)
    except MalformedZnode:
        return None
    return ControllerRegistration(BrokerId(read.brokerid), read.kraftControllerEpoch)


def encode_controller_epoch(epoch: int) -> bytes:
    """Return the content of `/controller_epoch`: the number in decimal digits."""
    return str(epoch).encode()


def decode_controller_epoch(payload: bytes | None) -> int:
    """The controller epoch. Raises MalformedZnode."""
    text = (payload or b"").strip()
    if not text.isdigit() or len(text) > 10 or int(text) > MAX_INT32:
        raise MalformedZnode(CONTROLLER_EPOCH, reason=f"{payload!r} is not a whole number from 0 to 2147483647")
    return int(text)


# ---- /brokers/topics/T


class TopicZnode(NamedTuple):
    """A topic's id, and the assignment of each partition."""

    topic_id: uuid.UUID | None
    partitions: dict[int, ReplicaAssignment]
    czxid: int = 0
    """The zxid at which the znode was created: it differs from that of an earlier topic of the same name."""
    mzxid: int = 0
    """The zxid of the znode's last change."""


class _Topic(msgspec.Struct):
    partitions: dict[Int32, tuple[Int32, ...]] = {}
    adding_replicas: dict[Int32, tuple[Int32, ...]] = {}
    removing_replicas: dict[Int32, tuple[Int32, ...]] = {}
    topic_id: str | None = None


def encode_topic(topic_id: uuid.UUID | None, partitions: Mapping[int, ReplicaAssignment]) -> bytes:
    """The content of a topic's znode.

    `topic_id` is left out if it is None; the maps of a reassignment are always there, as in Kafka.
    """
    content: dict[str, Any] = {
        "removing_replicas": {str(p): a.removing for p, a in partitions.items() if a.removing},
        "partitions": {str(p): a.replicas for p, a in partitions.items()},
    }
    if topic_id is not None:
        content["topic_id"] = id_to_text(topic_id)
    content["adding_replicas"] = {str(p): a.adding for p, a in partitions.items() if a.adding}
    content["version"] = 3
    return encode_json(content)


def decode_topic(topic: str, payload: bytes | None) -> TopicZnode:
    """The content of a topic's znode. Raises MalformedZnode."""
    path = topic_path(topic)
    read = decode_json(path, payload, _Topic)
    try:
        topic_id = id_from_text(read.topic_id) if read.topic_id else None
    except ValueError as error:
        raise MalformedZnode(path, str(error)) from error
    adding, removing = read.adding_replicas, read.removing_replicas
    return TopicZnode(
        topic_id if topic_id is None or topic_id.int else None,
        {
            p: assignment_of(_ids(replicas), _ids(adding.get(p, ())), _ids(removing.get(p, ())))
            for p, replicas in sorted(read.partitions.items())
        },
    )


def _ids(numbers: tuple[int, ...]) -> tuple[BrokerId, ...]:
    """Return the same numbers typed as broker ids, without a copy."""
    return numbers  # type: ignore[return-value]  # a BrokerId is an int at run time; no copy for 200,000 partitions


# ---- /brokers/topics/T/partitions/P/state


class _State(msgspec.Struct, gc=False):
    leader: Int32
    leader_epoch: Int32
    isr: tuple[Int32, ...]
    controller_epoch: Int32
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED


_read_state: Final = msgspec.json.Decoder(_State).decode


def encode_state(state: LeaderAndIsr) -> bytes:
    """The content of a state znode. The partition epoch is not part of it, since it is the znode's version."""
    leader, leader_epoch, isr, controller_epoch, _, recovery = state
    last = f',"leader_recovery_state":{recovery:d}' if recovery else ""
    return (
        f'{{"controller_epoch":{controller_epoch},"leader":{leader},"version":1,"leader_epoch":{leader_epoch},'
        f'"isr":{_json_list(isr)}{last}}}'
    ).encode()


@lru_cache(maxsize=4_096)
def _json_list(ids: tuple[int, ...]) -> str:
    """Broker ids as a JSON list."""
    return f"[{','.join(map(str, ids))}]"


def decode_state(partition: PartitionLike, payload: bytes | None, version: int) -> LeaderAndIsr:
    """The partition state in a state znode; `version` is the znode's version, which is the partition epoch.

    Raises MalformedZnode.
    """
    try:
        return _decode_state(payload or b"", version)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedZnode(state_path(partition), str(error)) from error


@lru_cache(maxsize=4_096)
def _decode_state(payload: bytes, version: int) -> LeaderAndIsr:
    """Decode a state; equal states of many partitions become one object."""
    read = _read_state(payload)
    return LeaderAndIsr(
        BrokerId(read.leader),
        read.leader_epoch,
        shared_ids(_ids(read.isr)),
        read.controller_epoch,
        version,
        read.leader_recovery_state,
    )
