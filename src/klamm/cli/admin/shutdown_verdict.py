"""Read from the cluster what the shutdown of a broker would do to its partitions."""

from typing import Final

from klamm.cli.admin.client import Admin, CannotAsk
from klamm.cli.admin.cluster import read_cluster
from klamm.cli.admin.configs import read_configs
from klamm.config.entities import TOPIC, Configs, Entity
from klamm.controller.decisions.shutdown_verdict import PartitionFacts, Verdict, assess_shutdown
from klamm.model.ids import BrokerId, TopicPartition

MIN_ISR: Final = "min.insync.replicas"


async def read_shutdown_verdict(admin: Admin, broker: BrokerId) -> Verdict:
    """Return which partitions would be at risk if the broker shut down now.

    Raises CannotAsk, also where a topic's `min.insync.replicas` cannot be read.
    """
    cluster = await read_cluster(admin)
    hosted = [t for t in cluster.topics.values() if any(broker in p.replicas for p in t.partitions.values())]
    configs, refused = await read_configs(admin, [Entity(TOPIC, t.name) for t in hosted], [MIN_ISR])
    if refused:
        raise CannotAsk(f"cannot read {MIN_ISR}: {refused[0]}")
    facts = [
        PartitionFacts(
            TopicPartition(topic.name, number),
            p.leader,
            p.replicas,
            p.isr,
            min_isr(configs.get(Entity(TOPIC, topic.name), {})),
        )
        for topic in hosted
        for number, p in topic.partitions.items()
    ]
    return assess_shutdown(broker, frozenset(cluster.brokers), facts)


def min_isr(configs: Configs) -> int:
    """Return `min.insync.replicas` of the topic; 1 if its configs are unknown."""
    text = configs[MIN_ISR].value if MIN_ISR in configs else None
    return int(text) if text and text.isdigit() else 1
