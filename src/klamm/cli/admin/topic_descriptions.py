"""List and describe topics: leader, preferred leader, replicas, ISR and configs."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from klamm.cli.admin.client import Admin, CannotAsk
from klamm.cli.admin.cluster import read_cluster, read_moves
from klamm.cli.admin.configs import read_configs
from klamm.cli.admin.refusals import Refusal
from klamm.cli.admin.shutdown_verdict import min_isr
from klamm.cli.admin.topic_selection import Filters, Row, filter_rows, literal_names, select_topics
from klamm.cli.output import print_json, print_line, print_table
from klamm.config.entities import TOPIC, Config, Configs, Entity
from klamm.config.topic_config import ConfigSource
from klamm.model.assignment import ReplicaAssignment
from klamm.model.cluster import Cluster, Topic, listed
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.model.topic_ids import id_to_text

TOPIC_COLUMNS: Final = ("topic", "topic id", "partitions", "replication factor", "configs")
PARTITION_COLUMNS: Final = ("topic", "partition", "leader", "preferred", "replicas", "isr", "offline", "state")


_CONFIGS_UNKNOWN: Final = Refusal(
    subject="configs and reassignments",
    code=ErrorCode.NETWORK_EXCEPTION,
    message="min ISR counts as 1, because the brokers cannot reach ZooKeeper; see klamm audit --zookeeper",
)


class TopicQuery(NamedTuple):
    pattern: str | None
    topic_id: UUID | None = None
    filters: Filters = Filters()
    exclude_internal: bool = False


class Described(NamedTuple):
    topics: list[Topic]
    configs: Mapping[str, Mapping[str, Config]]
    """Topic -> the configs that are set on it."""
    rows: list[Row]
    """Partitions that match the filters."""


async def list_topics(admin: Admin, query: TopicQuery) -> list[str]:
    """Return the names of the topics that the query selects."""
    cluster = await read_cluster(admin, literal_names(query.pattern) if query.pattern else None)
    return select_topics(cluster, query.pattern, exclude_internal=query.exclude_internal)


async def describe(admin: Admin, query: TopicQuery) -> tuple[Described, list[Refusal]]:
    """Describe the topics that the query selects; also returns the errors of configs that were not returned."""
    cluster = await read_cluster(admin, literal_names(query.pattern) if query.pattern else None)
    topics = [cluster.topics[name] for name in _selected_names(cluster, query)]
    configs, refused = await _read_topic_configs(admin, topics)
    moves = (
        await _read_moves_if_supported(admin) if _CONFIGS_UNKNOWN not in refused else {}
    )  # reading reassignments needs ZooKeeper, too
    by_name = {entity.name: found for entity, found in configs.items()}
    rows = [
        Row(at, p, min_isr(by_name.get(t.name, {})), moves.get(at))
        for t in topics
        for at, p in ((TopicPartition(t.name, n), p) for n, p in t.partitions.items())
    ]
    own = {name: {k: c for k, c in found.items() if c.source is ConfigSource.TOPIC} for name, found in by_name.items()}
    return Described(topics, own, filter_rows(rows, query.filters, cluster.brokers)), refused


def _selected_names(cluster: Cluster, query: TopicQuery) -> list[str]:
    """Return the names of the topics that the query selects by topic id or by pattern."""
    if query.topic_id is not None:
        return [t.name for t in cluster.topics.values() if t.id == query.topic_id]
    return select_topics(cluster, query.pattern, exclude_internal=query.exclude_internal)


async def _read_topic_configs(admin: Admin, topics: Sequence[Topic]) -> tuple[Mapping[Entity, Configs], list[Refusal]]:
    """Read the configs of the topics; also returns the errors.

    A broker that has lost ZooKeeper does not answer: at most a third of the timeout is spent on it, so that the rest of
    the description still has time.
    """
    try:
        async with asyncio.timeout(admin.left_s / 3):
            configs, refused = await read_configs(admin, [Entity(TOPIC, t.name) for t in topics])
    except TimeoutError:
        return {}, [_CONFIGS_UNKNOWN]
    return configs, [r for r in refused if r.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]  # deleted since


async def _read_moves_if_supported(admin: Admin) -> Mapping[TopicPartition, ReplicaAssignment]:
    """The running reassignments; empty for brokers older than 2.4 or without permission, as in Kafka's tool."""
    try:
        return await read_moves(admin)
    except CannotAsk:
        return {}


def print_description(described: Described, filters: Filters, as_json: bool) -> None:
    """Print the topics as tables or as JSON.

    With a filter only the partitions are printed, without the table of topics.
    """
    if as_json:
        print_json(as_data(described))
        return
    if not any(filters):
        print_table(TOPIC_COLUMNS, [_topic_row(t, described.configs.get(t.name, {})) for t in described.topics])
        print_line()
    print_table(PARTITION_COLUMNS, [_partition_row(r) for r in described.rows])


def _topic_row(topic: Topic, configs: Mapping[str, Config]) -> Sequence[object]:
    """Return the topic's row of the table: name, id, partitions, replication factor, configs."""
    return (
        topic.name,
        id_to_text(topic.id) if topic.id else "",
        len(topic.partitions),
        _replication_factor(topic),
        ",".join(f"{c.name}={c.value}" for c in configs.values()),
    )


def _replication_factor(topic: Topic) -> int:
    """Return the number of replicas of partition 0; 0 where it does not exist."""
    return len(topic.partitions[0].replicas) if 0 in topic.partitions else 0


def _partition_row(row: Row) -> Sequence[object]:
    """Return the partition's row of the table: leader, replicas, ISR, offline replicas, states."""
    p = row.partition
    leader = p.leader if p.leader >= 0 else "none"
    return (
        *row.at,
        leader,
        p.preferred,
        listed(p.replicas),
        listed(p.isr),
        listed(p.offline),
        ", ".join(_partition_states(row)),
    )


def _partition_states(row: Row) -> list[str]:
    """The problems of the partition as words, such as `under-replicated`, and its reassignment."""
    problems = []
    if row.partition.leader < 0:
        problems.append("no leader")
    elif row.is_non_preferred:
        problems.append("not preferred")
    if row.is_under_min_isr and row.partition.leader >= 0:
        problems.append("below min ISR")
    elif row.is_under_replicated:
        problems.append("under-replicated")
    if row.move is not None:
        problems.append(f"adding {listed(row.move.adding) or 'none'}, removing {listed(row.move.removing) or 'none'}")
    return problems


def as_data(described: Described) -> list[dict[str, Any]]:
    """Return the description for the JSON output."""
    rows: dict[str, list[dict[str, Any]]] = {t.name: [] for t in described.topics}
    for row in described.rows:
        rows[row.at.topic].append(_row_as_data(row))
    return [
        {
            "topic": t.name,
            "id": id_to_text(t.id) if t.id else None,
            "internal": t.is_internal,
            "partition_count": len(t.partitions),
            "replication_factor": _replication_factor(t),
            "configs": {c.name: c.value for c in described.configs.get(t.name, {}).values()},
            "partitions": rows[t.name],
        }
        for t in described.topics
    ]


def _row_as_data(row: Row) -> dict[str, Any]:
    """Return the partition's description for JSON."""
    p, move = row.partition, row.move
    return {
        "partition": row.at.partition,
        "leader": p.leader if p.leader >= 0 else None,
        "preferred": p.preferred,
        "replicas": p.replicas,
        "isr": p.isr,
        "offline": p.offline,
        "min_isr": row.min_isr,
        "adding": move.adding if move else (),
        "removing": move.removing if move else (),
        "state": _partition_states(row),
    }
