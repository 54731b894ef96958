"""Payloads of znodes that operators, tools and brokers write. Source: ZkData.scala (3.9).

Reassignment and preferred election requests, notifications, configs and their changes, the cluster id, finalized
features, the producer id block, and the KRaft migration.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from klamm.model.ids import BrokerId, TopicPartition
from klamm.zk.znodes import (
    CLUSTER_ID,
    CONFIG_CHANGES,
    FEATURE,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    MAX_INT64,
    PREFERRED_ELECTION,
    PRODUCER_ID_BLOCK,
    REASSIGN_PARTITIONS,
    Int16,
    Int32,
    MalformedZnode,
    config_path,
    decode_json,
    encode_json,
)

LOG_DIR_FAILURE: Final = 1
FEATURE_ENABLED: Final = 1
FEATURE_DISABLED: Final = 0


class _TopicPartition(msgspec.Struct):
    topic: str
    partition: Int32


class _Partitions(msgspec.Struct):
    partitions: list[_TopicPartition]


def _encode_partitions(partitions: Sequence[TopicPartition]) -> bytes:
    """Return the JSON content of a znode that lists these partitions."""
    listed = [{"topic": p.topic, "partition": p.partition} for p in partitions]
    return encode_json({"version": 1, "partitions": listed})


def _decode_partitions(path: str, payload: bytes | None) -> list[TopicPartition]:
    """Return the partitions that the znode's JSON content lists. Raises MalformedZnode."""
    return [TopicPartition(p.topic, p.partition) for p in decode_json(path, payload, _Partitions).partitions]


# ---- /admin/reassign_partitions, /admin/preferred_replica_election


class _Reassigned(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition: Int32
    replicas: tuple[Int32, ...]


class _Reassignment(msgspec.Struct, forbid_unknown_fields=True):
    partitions: list[_Reassigned]
    version: int = 1


def encode_reassignment(targets: Mapping[TopicPartition, Sequence[BrokerId]]) -> bytes:
    """Return the content of `/admin/reassign_partitions` with these target replicas."""
    listed = [{"topic": p.topic, "partition": p.partition, "replicas": list(r)} for p, r in targets.items()]
    return encode_json({"version": 1, "partitions": listed})


def decode_reassignment(payload: bytes | None) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """The target replicas by partition; unlike in other payloads, an unknown key is an error. Raises MalformedZnode."""
    read = decode_json(REASSIGN_PARTITIONS, payload, _Reassignment)
    return {TopicPartition(p.topic, p.partition): tuple(map(BrokerId, p.replicas)) for p in read.partitions}


def encode_preferred_election(partitions: Sequence[TopicPartition]) -> bytes:
    """Return the content of `/admin/preferred_replica_election` with these partitions."""
    return _encode_partitions(partitions)


def decode_preferred_election(payload: bytes | None) -> list[TopicPartition]:
    """Return the partitions that `/admin/preferred_replica_election` lists. Raises MalformedZnode."""
    return _decode_partitions(PREFERRED_ELECTION, payload)


# ---- notifications


def encode_isr_change(partitions: Sequence[TopicPartition]) -> bytes:
    """Return the content of a znode below `/isr_change_notification` for these partitions."""
    return _encode_partitions(partitions)


def decode_isr_change(child: str, payload: bytes | None) -> list[TopicPartition]:
    """The partitions that an ISR change notification lists. Raises MalformedZnode."""
    return _decode_partitions(f"{ISR_CHANGES}/{child}", payload)


class _LogDirEvent(msgspec.Struct):
    broker: Int32
    event: Int32 = LOG_DIR_FAILURE


def encode_log_dir_event(broker: BrokerId) -> bytes:
    """Return the content of a znode below `/log_dir_event_notification`: a log directory of the broker has failed."""
    return encode_json({"version": 1, "broker": broker, "event": LOG_DIR_FAILURE})


def decode_log_dir_event(child: str, payload: bytes | None) -> BrokerId:
    """The broker that announced a failed log directory. Raises MalformedZnode."""
    return BrokerId(decode_json(f"{LOG_DIR_EVENTS}/{child}", payload, _LogDirEvent).broker)


# ---- configs


class _Config(msgspec.Struct):
    config: dict[str, str] | None = None


def encode_config(config: Mapping[str, str]) -> bytes:
    """Return the content of a config znode with these keys and values."""
    return encode_json({"version": 1, "config": dict(config)})


def decode_config(entity_type: str, entity: str, payload: bytes | None) -> dict[str, str]:
    """The entries of a config znode; empty for null data or without a `config` object. Raises MalformedZnode."""
    if not payload:
        return {}
    return decode_json(config_path(entity_type, entity), payload, _Config).config or {}


class _ConfigChange(msgspec.Struct):
    version: int
    entity_path: str | None = None
    entity_type: str | None = None
    entity_name: str | None = None


def encode_config_change(entity_path: str) -> bytes:
    """Return the content of a config change notification; `entity_path` is like `topics/orders` or `users/anna`."""
    return encode_json({"version": 2, "entity_path": entity_path})


def decode_config_change(child: str, payload: bytes | None) -> str:
    """The path below `/config` of the entity that changed. Version 1 of the payload has only topics and clients."""
    path = f"{CONFIG_CHANGES}/{child}"
    read = decode_json(path, payload, _ConfigChange)
    if read.version == 1 and read.entity_type in ("topics", "clients") and read.entity_name:
        return f"{read.entity_type}/{read.entity_name}"
    if read.version == 2 and read.entity_path and not read.entity_path.startswith("/"):
        return read.entity_path
    raise MalformedZnode(path, reason=f"the entry has version {read.version} and no valid entity")


# ---- cluster id, features, producer ids, migration


class _ClusterId(msgspec.Struct):
    id: str


def encode_cluster_id(cluster_id: str) -> bytes:
    """Return the content of `/cluster/id`."""
    return encode_json({"version": "1", "id": cluster_id})


def decode_cluster_id(payload: bytes | None) -> str:
    """The cluster id in `/cluster/id`, as text: some clusters have ids that are not 16 bytes in base64."""
    return decode_json(CLUSTER_ID, payload, _ClusterId).id


class FinalizedFeatures(NamedTuple):
    """The content of `/feature`."""

    version: int  # of the payload: 2 since inter.broker.protocol.version 3.3-IV0
    enabled: bool
    levels: dict[str, int]  # feature -> finalized (maximum) level


class _Feature(msgspec.Struct):
    version: int
    status: int
    features: dict[str, dict[str, Int16]]


def encode_features(features: FinalizedFeatures) -> bytes:
    """The payload of `/feature`; version 1 also has a minimum level."""

    def levels(level: int) -> dict[str, int]:
        """Return the finalized level of a feature as the fields of the znode's format version."""
        return {"max_version_level": level} if features.version >= 2 else _both_levels(level)

    content: dict[str, Any] = {
        "version": features.version,
        "status": FEATURE_ENABLED if features.enabled else FEATURE_DISABLED,
        "features": {name: levels(level) for name, level in features.levels.items()},
    }
    return encode_json(content)


def _both_levels(level: int) -> dict[str, int]:
    """The minimum and maximum level of a feature, as version 1 of `/feature` has them."""
    return {"min_version_level": 1, "max_version_level": level}


def decode_features(payload: bytes | None) -> FinalizedFeatures:
    """The finalized features in the payload of `/feature`. Raises MalformedZnode."""
    read = decode_json(FEATURE, payload, _Feature)
    if read.version not in (1, 2) or read.status not in (FEATURE_DISABLED, FEATURE_ENABLED):
        raise MalformedZnode(
            FEATURE, reason=f"version {read.version} or status {read.status} of the features is not valid"
        )
    levels = {name: facts.get("max_version_level", 0) for name, facts in read.features.items()}
    wrong = [f"{name} {level}" for name, level in levels.items() if level < 1]
    if wrong:
        raise MalformedZnode(
            FEATURE, reason=f"the max_version_level of a feature must be at least 1, not {', '.join(wrong)}"
        )
    return FinalizedFeatures(read.version, read.status == FEATURE_ENABLED, levels)


class ProducerIdBlock(NamedTuple):
    """A block of producer ids from `first` to `last`, both included."""

    broker: BrokerId
    first: int
    last: int


class _ProducerIdBlock(msgspec.Struct):
    version: int
    broker: Int32
    block_start: str
    block_end: str


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    """Return the content of `/latest_producer_id_block` for this block."""
    content = {"version": 1, "broker": block.broker, "block_start": str(block.first), "block_end": str(block.last)}
    return encode_json(content)


def decode_producer_id_block(payload: bytes | None) -> ProducerIdBlock | None:
    """The last allocated block of producer ids; None if there was none. Raises MalformedZnode."""
    if not payload:
        return None
    read = decode_json(PRODUCER_ID_BLOCK, payload, _ProducerIdBlock)
    try:
        first, last = int(read.block_start), int(read.block_end)
    except ValueError as error:
        raise MalformedZnode(PRODUCER_ID_BLOCK, str(error)) from error
    if not 0 <= first <= last <= MAX_INT64:
        raise MalformedZnode(PRODUCER_ID_BLOCK, reason=f"{first} to {last} is not a range of producer ids")
    return ProducerIdBlock(BrokerId(read.broker), first, last)
