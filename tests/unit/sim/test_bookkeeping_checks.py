"""What the tier of whole nodes asks of fetchers and of metrics."""

from dataclasses import dataclass, field

import pytest
from tests.unit.sim.test_cluster_tier_checks import ORDERS, Resting

from klamm.model.ids import BrokerId
from klamm.sim.cluster_tier.history import TierHistory
from klamm.sim.cluster_tier.invariants.bookkeeping import (
    followers_use_the_fetcher_of_the_hash,
    replica_metrics_match_zookeeper,
)
from klamm.sim.zookeeper.tree import CreateChange, Tree

PREFIX = "kafka_server_replicamanager_"
SOUND = {
    "partitioncount": 1,
    "leadercount": 1,
    "underreplicatedpartitions": 0,
    "underminisrpartitioncount": 0,
    "atminisrpartitioncount": 0,
    "offlinereplicacount": 0,
    "reassigningpartitions": 0,
}


@dataclass
class Watched:
    """`orders-0` is led by broker 1 and followed by broker 2."""

    tier: TierHistory
    tree: Tree = field(default_factory=Tree)
    metrics: dict[int, dict[str, float]] = field(default_factory=dict)
    fetchers: dict[int, set[tuple[int, int]]] = field(default_factory=dict)
    fetchers_per_leader: int = 2


def watched(*isr: int) -> Watched:
    return Watched(Resting(isr=isr or (1, 2)).tier)


def samples(**changed: float) -> dict[str, float]:
    return {PREFIX + name: value for name, value in (SOUND | changed).items()}


def test_metrics_that_count_other_partitions_than_zookeeper_has_are_a_violation() -> None:
    cluster = watched()
    cluster.metrics[1] = samples()
    assert replica_metrics_match_zookeeper(cluster) is None

    for name in SOUND:
        cluster.metrics[1] = samples(**{name: 7})
        assert name in str(replica_metrics_match_zookeeper(cluster))


def test_a_follower_counts_no_partition_as_led() -> None:
    cluster = watched()
    cluster.metrics[2] = samples(leadercount=0)
    assert replica_metrics_match_zookeeper(cluster) is None

    cluster.metrics[2] = samples()

    assert "leadercount is 1" in str(replica_metrics_match_zookeeper(cluster))


@pytest.mark.parametrize(("least", "under", "at"), [(1, 0, 1), (2, 1, 0)])
def test_metrics_of_small_isrs_depend_on_the_config_of_the_topic(least: int, under: int, at: int) -> None:
    cluster = watched(1)
    config = b'{"version":1,"config":{"min.insync.replicas":"%d"}}' % least
    for path, data in (("/config", b""), ("/config/topics", b""), ("/config/topics/orders", config)):
        cluster.tree.apply(CreateChange(path, data, (), 0), 1, 0)
    cluster.metrics[1] = samples(
        underreplicatedpartitions=1, underminisrpartitioncount=under, atminisrpartitioncount=at
    )

    assert replica_metrics_match_zookeeper(cluster) is None


@pytest.mark.parametrize(
    ("running", "is_wrong"), [({(1, 1)}, False), ({(1, 0)}, True), (set(), True), ({(1, 1), (3, 0)}, True)]
)
def test_a_follower_without_the_fetcher_of_its_partition_or_with_another_is_a_violation(
    running: set[tuple[int, int]], is_wrong: bool
) -> None:
    cluster = watched()
    cluster.fetchers = {1: set(), 2: running}

    assert (followers_use_the_fetcher_of_the_hash(cluster) is not None) is is_wrong


def test_a_damaged_partition_needs_no_fetcher_and_may_have_one() -> None:
    cluster = watched()
    cluster.tier.on_destroyed(ORDERS, 0)
    for running in (set[tuple[int, int]](), {(1, 1)}):
        cluster.fetchers = {BrokerId(2): running}
        assert followers_use_the_fetcher_of_the_hash(cluster) is None
