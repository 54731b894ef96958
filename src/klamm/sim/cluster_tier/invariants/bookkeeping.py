"""What nodes tell of themselves at rest, and the tasks that they run: both follow from ZooKeeper."""

import json
from collections.abc import Mapping, Set
from typing import Final, Protocol

from klamm.model.ids import TopicPartition
from klamm.sim.cluster_tier.history import TierHistory
from klamm.sim.zookeeper.tree import Tree

_HEALTH: Final = "kafka_server_replicamanager_"
_MIN_ISR: Final = "min.insync.replicas"


class WatchedCluster(Protocol):
    """What invariants look at."""

    tier: TierHistory

    @property
    def tree(self) -> Tree:
        """The znodes that ZooKeeper has committed."""
        ...

    @property
    def metrics(self) -> Mapping[int, Mapping[str, float]]:
        """By broker: the samples of its metrics page at rest; empty where nodes have none."""
        ...

    @property
    def fetchers(self) -> Mapping[int, Set[tuple[int, int]]]:
        """By broker: leader and number of each fetcher that runs."""
        ...

    @property
    def fetchers_per_leader(self) -> int:
        """num.replica.fetchers."""
        ...


def replica_metrics_match_zookeeper(cluster: WatchedCluster) -> str | None:
    """A node's metrics count the partitions that it has and leads, and how many lack replicas, as ZooKeeper says."""
    for broker, samples in cluster.metrics.items():
        for name, expected in _health(cluster, broker).items():
            found = samples.get(f"{_HEALTH}{name}")
            if found != expected:
                return f"node {broker}: {name} is {found}; by ZooKeeper it is {expected}"
    return None


def _health(cluster: WatchedCluster, broker: int) -> dict[str, int]:
    """The values of the metrics of a node, by the states and assignments in ZooKeeper."""
    zookeeper = cluster.tier.zookeeper
    hosted = [p for p in zookeeper.states.versions if broker in zookeeper.topics.replicas(p)]
    led = {p: state for p in hosted if (state := cluster.tier.state(p)) is not None and state.leader == broker}
    replicas = {p: len(zookeeper.topics.replicas(p)) for p in led}
    least = {p: min(_min_isr(cluster.tree, p), replicas[p]) for p in led}
    return {
        "partitioncount": len(hosted),
        "leadercount": len(led),
        "underreplicatedpartitions": sum(len(state.isr) < replicas[p] for p, state in led.items()),
        "underminisrpartitioncount": sum(len(state.isr) < least[p] for p, state in led.items()),
        "atminisrpartitioncount": sum(len(state.isr) == least[p] for p, state in led.items()),
        "offlinereplicacount": 0,
        "reassigningpartitions": 0,
    }


def _min_isr(tree: Tree, p: TopicPartition) -> int:
    """min.insync.replicas of the topic."""
    node = tree.get(f"/config/topics/{p.topic}")
    return int(json.loads(node.data)["config"].get(_MIN_ISR, 1)) if node is not None and node.data else 1


def followers_use_the_fetcher_of_the_hash(cluster: WatchedCluster) -> str | None:
    """A node has the fetchers that the hash of its partitions chooses, for each leader, and no other."""
    zookeeper, count = cluster.tier.zookeeper, cluster.fetchers_per_leader
    for broker, running in cluster.fetchers.items():
        sound: set[tuple[int, int]] = set()
        possible: set[tuple[int, int]] = set()
        for p in zookeeper.states.versions:
            state = cluster.tier.state(p)
            if state is None or state.leader == broker or broker not in zookeeper.topics.replicas(p):
                continue
            fetcher = int(state.leader), _fetcher_of(p, count)
            possible.add(fetcher)
            if p not in cluster.tier.destroyed and broker in state.isr:
                sound.add(fetcher)
        if not sound <= running <= possible:
            return f"node {broker} runs the fetchers {sorted(running)}; its partitions need {sorted(sound)}"
    return None


def _fetcher_of(p: TopicPartition, count: int) -> int:
    """The number of the fetcher of a partition: `Utils.abs(31 * topic.hashCode + partition) % count` in Kafka."""
    code = 0
    for character in p.topic:
        code = 31 * code + ord(character)
    code = (31 * code + p.partition + 2**31) % 2**32 - 2**31
    return abs(code) % count if code != -(2**31) else 0
