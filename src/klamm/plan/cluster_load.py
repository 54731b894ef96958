"""A cluster with sizes, rates and history by name, and its JSON file.

The file: `{"brokers":[{"id":1,"rack":"a"}],"partitions":[{"topic":"orders","partition":0,"replicas":[1,2],"bytes":5,
"bytes_per_s":0.5}]}`. `brokers` are those that are alive; `rack`, `bytes` and `bytes_per_s` may be absent, and so may
the history: `failures` and `out_of_isr` of brokers, `behind` and `without_leader` of partitions.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from klamm.model.errors import UsageError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.plan.history import NO_HISTORY, BrokerHistory, History, PartitionHistory
from klamm.plan.json_files import Replicas


class ClusterLoad(NamedTuple):
    racks: Mapping[BrokerId, str | None]
    """Live brokers, each with its rack."""
    replicas: Mapping[TopicPartition, Replicas]
    bytes: Mapping[TopicPartition, float]
    """Size of one replica; empty where unknown."""
    bytes_per_s: Mapping[TopicPartition, float]
    """What is produced; empty where unknown."""
    history: History = NO_HISTORY


class _Broker(msgspec.Struct):
    id: int
    rack: str | None = None
    failures: int = 0
    out_of_isr: float = 0.0


class _Partition(msgspec.Struct):
    topic: str
    partition: int
    replicas: list[int]
    bytes: float = 0.0
    bytes_per_s: float = 0.0
    behind: float = 0.0
    without_leader: float = 0.0


class _Cluster(msgspec.Struct):
    brokers: list[_Broker]
    partitions: list[_Partition]


def parse_cluster(content: bytes, source: str) -> ClusterLoad:
    """The cluster in a JSON file. Raises UsageError."""
    try:
        found = msgspec.json.decode(content, type=_Cluster)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{source} is not valid: {error}.") from error
    replicas: dict[TopicPartition, Replicas] = {}
    for index, entry in enumerate(found.partitions):
        at = TopicPartition(entry.topic, entry.partition)
        place = f"{source}: partitions[{index}] ({at})"
        if at in replicas:
            raise UsageError(f"{place} is listed twice. Remove one.")
        if not entry.replicas or len(set(entry.replicas)) < len(entry.replicas):
            raise UsageError(f"{place} has replicas {entry.replicas}. Name at least one broker, and each once.")
        if min(entry.partition, *entry.replicas, entry.bytes, entry.bytes_per_s) < 0:
            raise UsageError(f"{place} has a negative number.")
        _check_shares(entry, ("behind", "without_leader"), place)
        replicas[at] = tuple(map(BrokerId, entry.replicas))
    for index, broker in enumerate(found.brokers):
        _check_shares(broker, ("out_of_isr",), f"{source}: brokers[{index}] ({broker.id})")
    sizes = {at: p.bytes for at, p in zip(replicas, found.partitions, strict=True) if p.bytes}
    rates = {at: p.bytes_per_s for at, p in zip(replicas, found.partitions, strict=True) if p.bytes_per_s}
    brokers = {BrokerId(b.id): BrokerHistory(b.failures, b.out_of_isr) for b in found.brokers}
    partitions = {
        at: PartitionHistory(p.behind, p.without_leader) for at, p in zip(replicas, found.partitions, strict=True)
    }
    history = History(
        {b: of for b, of in brokers.items() if any(of)}, {at: of for at, of in partitions.items() if any(of)}
    )
    return ClusterLoad({BrokerId(b.id): b.rack for b in found.brokers}, replicas, sizes, rates, history)


def _check_shares(entry: _Broker | _Partition, fields: Sequence[str], place: str) -> None:
    """Raise UsageError where a share of time is not between 0 and 1, or failures are negative."""
    for name in fields:
        if not 0 <= getattr(entry, name) <= 1:
            raise UsageError(f"{place} has {name} {getattr(entry, name)}. Give a share of time from 0 to 1.")
    if isinstance(entry, _Broker) and entry.failures < 0:
        raise UsageError(f"{place} has failures {entry.failures}. Give how often the broker failed.")


def cluster_as_data(load: ClusterLoad) -> dict[str, Any]:
    """The cluster in the format of the JSON file."""
    brokers, partitions = load.history.brokers, load.history.partitions
    return {
        "brokers": [
            {"id": b, "rack": rack, **brokers.get(b, BrokerHistory())._asdict()}
            for b, rack in sorted(load.racks.items())
        ],
        "partitions": [
            {
                **at._asdict(),
                "replicas": of,
                "bytes": load.bytes.get(at, 0),
                "bytes_per_s": load.bytes_per_s.get(at, 0),
                **partitions.get(at, PartitionHistory())._asdict(),
            }
            for at, of in sorted(load.replicas.items())
        ],
    }
