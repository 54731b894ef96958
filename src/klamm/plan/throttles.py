"""The configs that throttle a reassignment: which to set before it, and which to remove after it.

Source: ReassignPartitionsCommand.java. Leaders are throttled for the existing replicas, followers for the new ones; the
rate is per broker.
"""

from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from klamm.config.dynamic_keys import (
    FOLLOWER_THROTTLED_REPLICAS,
    LEADER_THROTTLED_REPLICAS,
    LOG_DIR_MOVES_RATE,
    REASSIGNMENT_RATES,
    THROTTLED_RATES,
    THROTTLED_REPLICAS,
)
from klamm.config.entities import BROKER, TOPIC, Configs, Entity
from klamm.config.topic_config import ConfigSource
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition

Changes = dict[Entity, dict[str, str | None]]
Replicas = tuple[BrokerId, ...]


class Copying(NamedTuple):
    sources: Replicas
    targets: Replicas


def plan_copies(
    wanted: Mapping[TopicPartition, Replicas],
    current: Mapping[TopicPartition, Replicas],
    moving: Mapping[TopicPartition, ReplicaAssignment],
) -> dict[TopicPartition, Copying]:
    """Return from which brokers to which each partition is copied by running and wanted reassignments."""
    found = {
        at: Copying(tuple(b for b in move.replicas if b not in move.adding), move.adding) for at, move in moving.items()
    }
    for at, replicas in wanted.items():
        sources = found[at].sources if at in found else current[at]
        found[at] = Copying(sources, tuple(b for b in replicas if b not in sources))
    return found


def plan_throttle(copies: Mapping[TopicPartition, Copying], bytes_per_s: int, live: Container[BrokerId]) -> Changes:
    """Plan the configs to set before the reassignment: throttled replicas of topics, the rate of brokers.

    Only live brokers accept configs; a dead one copies nothing.
    """
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    brokers: set[BrokerId] = set()
    for at, (sources, targets) in sorted(copies.items()):
        leaders.setdefault(at.topic, []).extend(f"{at.partition}:{b}" for b in sorted(sources))
        followers.setdefault(at.topic, []).extend(f"{at.partition}:{b}" for b in sorted(targets))
        brokers.update(sources, targets)
    changes: Changes = {}
    for topic in leaders:
        named = {LEADER_THROTTLED_REPLICAS: leaders[topic], FOLLOWER_THROTTLED_REPLICAS: followers[topic]}
        changes[Entity(TOPIC, topic)] = {name: ",".join(entries) for name, entries in named.items() if entries}
    for broker in sorted(b for b in brokers if b in live):
        changes[Entity(BROKER, str(broker))] = dict.fromkeys(THROTTLED_RATES, str(bytes_per_s))
    return changes


def plan_log_dir_throttle(brokers: Iterable[BrokerId], bytes_per_s: int) -> Changes:
    """Plan the configs that limit what each of these brokers copies between its log directories."""
    return {Entity(BROKER, str(b)): {LOG_DIR_MOVES_RATE: str(bytes_per_s)} for b in sorted(brokers)}


def throttled_entities(topics: Iterable[str], brokers: Iterable[BrokerId]) -> list[Entity]:
    """The topics and brokers that may have throttle configs."""
    return [Entity(TOPIC, t) for t in sorted(set(topics))] + [Entity(BROKER, str(b)) for b in sorted(brokers)]


def plan_removal(found: Mapping[Entity, Configs]) -> Changes:
    """Remove the throttle configs that are set on the topic or broker itself."""
    own = {TOPIC: ConfigSource.TOPIC, BROKER: ConfigSource.DYNAMIC_BROKER}
    changes: Changes = {}
    for entity, configs in found.items():
        names = [
            c.name
            for c in configs.values()
            if c.name in (*REASSIGNMENT_RATES, *THROTTLED_REPLICAS) and c.source is own[entity.type]
        ]
        if names:
            changes[entity] = dict.fromkeys(names)
    return changes
