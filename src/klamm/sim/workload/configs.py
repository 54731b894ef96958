"""Verbs that change configs, as `klamm config set` and Kafka's tools do in ZooKeeper."""

from collections.abc import Mapping
from typing import Final

from klamm.sim.actions import ClusterUnderTest, Draw
from klamm.sim.history.trace import ConfigChangeEnded
from klamm.zk import znodes
from klamm.zk.configs import DEFAULT_ENTITY

UNCLEAN: Final = "unclean.leader.election.enable"
_TOPIC_KEY: Final = "retention.ms"
_BROKER_KEY: Final = "log.retention.ms"
_MAX_VALUE_MS: Final = 1_000_000


async def set_config(cluster: ClusterUnderTest, entity_type: str, entity: str, entries: Mapping[str, str]) -> None:
    """Set entries of an entity's config, and report that this is done."""
    configs, began_at = cluster.store.configs, cluster.history.at.zxid
    stored = await configs.read(entity_type, entity)
    await configs.write(entity_type, entity, {**stored.config, **entries}, stored.version)
    cluster.report(ConfigChangeEnded(f"{entity_type}/{entity}", began_at))


async def change_config(cluster: ClusterUnderTest, draw: Draw) -> None:
    """A tool sets a config of a topic, of all brokers, or of one broker."""
    topics, brokers = _topics(cluster), [DEFAULT_ENTITY, *map(str, cluster.nodes)]
    entity_type = draw("type", lambda rng: rng.choice(("topics", "brokers")) if topics else "brokers")
    entity = draw("entity", lambda rng: rng.choice(topics if entity_type == "topics" else brokers))
    value = draw("value", lambda rng: rng.randint(1, _MAX_VALUE_MS))
    key = _TOPIC_KEY if entity_type == "topics" else _BROKER_KEY
    cluster.log(f"{key}={value} for {entity_type}/{entity}")
    await set_config(cluster, entity_type, entity, {key: str(value)})


async def allow_unclean(cluster: ClusterUnderTest, draw: Draw) -> None:
    """A topic config allows or forbids unclean leader election."""
    topics = _topics(cluster)
    if not topics:
        return
    topic = draw("topic", lambda rng: rng.choice(topics))
    allowed = draw("allowed", lambda rng: rng.random() < 0.6)
    cluster.log(f"{UNCLEAN}={str(allowed).lower()} for {topic}")
    await set_config(cluster, "topics", topic, {UNCLEAN: str(allowed).lower()})


def _topics(cluster: ClusterUnderTest) -> list[str]:
    """The names of the topics that have a znode."""
    parent = cluster.ensemble.tree.get(znodes.TOPICS)
    return sorted(parent.children) if parent is not None else []
