"""Brokers of one kind replaced by the other on the same log directories, one after another, under load."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support.coordinator_workload import CoordinatorWorkload
from tests.support.dump_log import dump_log_directories
from tests.support.mixed_checks import Checked, check_files_of_all
from tests.support.mixed_cluster import MixedCluster, log_dirs_of
from tests.support.replica_verification import verify_running
from tests.support.stored_batches import StoredLogs, cleaned_up_to
from tests.support.workload import Workload

from klamm.cli.admin.elections import ElectionType, elect
from klamm.embedded.nodes import NodeProcess

BROKERS: Final = (1, 2, 3)
SOURCE, TARGET, KEYED, SINGLE = "source", "copy", "keyed", "single"
INTERNAL: Final = ("__consumer_offsets", "__transaction_state")
COMPACTED: Final = (KEYED, *INTERNAL)
PARTITIONS: Final = 3
KEYS: Final = 40
ROTATED: Final = {p: tuple(BROKERS[(p + n) % 3] for n in range(3)) for p in range(PARTITIONS)}
CONFIGS: Final = {
    SOURCE: {"min.insync.replicas": "2", "segment.bytes": "60000"},
    TARGET: {"min.insync.replicas": "2", "segment.bytes": "60000"},
    KEYED: {
        "min.insync.replicas": "2",
        "cleanup.policy": "compact",
        "segment.bytes": "20000",
        "min.cleanable.dirty.ratio": "0.01",
    },
    SINGLE: {"segment.bytes": "60000"},
}
"""The topics of the load; each partition of `single` has one replica, so nobody can restore what its broker loses."""
OVERRIDES: Final = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.segment.bytes": "60000",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.segment.bytes": "60000",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.dedupe.buffer.size": "10000000",
    "min.compaction.lag.ms": "0",
    "replica.fetch.max.bytes": "1048576",
}
HEAL_S: Final = 90.0


def three_brokers(directory: Path, protocol: str = "3.9") -> MixedCluster:
    """Three brokers of Apache Kafka, not started; one has two log directories."""
    cluster = MixedCluster(directory, protocol, kafka=BROKERS, klamm=(), overrides=OVERRIDES)
    cluster.add_log_directory(2)
    return cluster


class Load:
    """Producers, transactional copiers and a consumer group that run while brokers are replaced."""

    def __init__(self, directory: Path, cluster: MixedCluster, rate: int, seed: int) -> None:
        self._cluster = cluster
        bootstrap = cluster.bootstrap
        # one request in flight, because librdkafka may write records again when a broker vanishes
        self.producers = [
            Workload(bootstrap, SOURCE, PARTITIONS, rate, in_flight=1),
            Workload(bootstrap, KEYED, PARTITIONS, rate, size=200, in_flight=1, keys=KEYS),
            Workload(bootstrap, SINGLE, len(BROKERS), rate, size=100, in_flight=1),
        ]
        self.clients = CoordinatorWorkload(directory, cluster, SOURCE, TARGET, PARTITIONS, seed)

    def start(self) -> None:
        """Create the topics and start all clients, and wait until each has done something."""
        for topic in (SOURCE, TARGET, KEYED):
            self._cluster.create(topic, ROTATED, CONFIGS[topic])
        self._cluster.create(SINGLE, {p: (b,) for p, b in enumerate(BROKERS)}, CONFIGS[SINGLE])
        for producer in self.producers:
            producer.start()
        self.clients.start()
        for topic in INTERNAL:
            self._cluster.wait_until_in_sync(topic, 3, 3)
        self.wait_for_progress()

    def wait_for_progress(self) -> None:
        """Wait until every producer, the copiers and the group have got something acknowledged."""
        before = self._counts()
        self._cluster.wait_until(
            "all clients of the load make progress",
            lambda: all(now > then for now, then in zip(self._counts(), before, strict=True)),
            HEAL_S,
        )

    def _counts(self) -> list[int]:
        """The progress of each client."""
        return [*(len(producer.acknowledged) for producer in self.producers), *self.clients.counts()]

    def longest_gap_s(self, since: float) -> float:
        """The longest time without an acknowledgement of a partition that has replicas on other brokers."""
        return max(producer.longest_gap_s(since) for producer in self.producers[:2])

    def finish(self) -> tuple[list[str], list[str]]:
        """End the load in order and read everything back: what was done, and what is wrong, as text."""
        for producer in self.producers:
            producer.stop()
        self.clients.finish()
        said, wrong = [], []
        for producer in self.producers:
            verdict = producer.check()
            said.append(f"{producer.topic}: {verdict}")
            found = (*verdict.lost, *verdict.duplicated, *verdict.reordered, *verdict.misplaced, *producer.failures)
            wrong += [f"{producer.topic}: {text}" for text in found]
        copied = self.clients.check()
        wrong += [f"{what}: {text}" for what, found in copied.anomalies.items() for text in found]
        said += [str(copied), *(f"a client was started again: {text}" for text in self.clients.crashes)]
        return said, wrong

    def close(self) -> None:
        self.clients.close()


class RollingReplacement:
    """Replaces brokers of a cluster; each step returns what it found wrong instead of raising."""

    def __init__(self, cluster: MixedCluster, load: Load) -> None:
        self.cluster = cluster
        self.load = load

    def replace(self, broker_id: int, *, kill: bool) -> Checked:
        """End a broker, by controlled shutdown or SIGKILL, and start the other kind on its log directory."""
        cluster, node, began = self.cluster, self.cluster.node(broker_id), time.monotonic()
        was_kafka = broker_id in cluster.kafka_ids
        ends = self._high_watermarks(node)
        if kill:
            node.kill()
        else:
            cluster.stop_node(broker_id)
        log_dirs = log_dirs_of(node)
        stored = StoredLogs(log_dirs, ends)
        problems = stored.short()
        segments = 0
        if not was_kafka:
            segments, complaints = dump_log_directories(log_dirs, COMPACTED, was_killed=kill)
            problems += complaints
            cluster.wait_until_forgotten(broker_id)  # klamm waits for that itself, Apache Kafka's broker ends
        cleaned = self._cleaned(node)
        cluster.replace_node(broker_id)
        cluster.start_node(broker_id)
        self._wait_until_healed()
        took, gap = time.monotonic() - began, self.load.longest_gap_s(began)
        problems += stored.changed()
        self._move_controller(broker_id)
        cluster.wait_until(f"the cleaner of {node.name} works", lambda: self._has_cleaned(node, cleaned), HEAL_S)
        self.load.wait_for_progress()
        verified = verify_running(cluster.bootstrap)
        problems += verified.problems
        kinds = ("Apache Kafka", "klamm") if was_kafka else ("klamm", "Apache Kafka")
        return Checked(
            f"broker {broker_id}: {kinds[0]} {'killed' if kill else 'stopped'}, {kinds[1]} in sync after {took:.1f} s, "
            f"gap {gap:.1f} s; {verified}" + (f", {segments} segments dumped" if segments else ""),
            problems,
        )

    def finish(self) -> Checked:
        """End the load and the cluster, and check the records, the replicas and all files."""
        said, problems = self.load.finish()
        files = check_files_of_all(self.cluster, COMPACTED)
        return Checked("\n".join([*said, files.text]), [*problems, *files.problems])

    def elect_preferred_leaders(self) -> None:
        """Let each broker lead what it prefers to lead, so that both kinds lead and follow."""
        self.cluster.ask(lambda admin: elect(admin, ElectionType.PREFERRED, None))

    def _move_controller(self, broker_id: int) -> None:
        """Make a broker of this one's kind the controller."""
        kafka_ids = self.cluster.kafka_ids
        if broker_id not in kafka_ids:
            self.cluster.reelect(broker_id)
        elif self.cluster.controller_id not in kafka_ids:
            self.cluster.move_controller(kafka_ids)

    def _high_watermarks(self, node: NodeProcess) -> dict[str, int]:
        """The high watermarks now of the partitions that the node has and that are not compacted, by directory name."""
        found = {}
        for topic in (SOURCE, TARGET, SINGLE):
            for p, (_, end) in self.cluster.offsets(topic).items():
                if node.broker_id in self.cluster.state(topic, p)["isr"]:
                    found[f"{topic}-{p}"] = end
        return found

    def _wait_until_healed(self) -> None:
        """Wait until all replicas are in sync, and each broker leads what it prefers."""
        self.cluster.wait_until_complete(HEAL_S)
        for topic in (SOURCE, TARGET, KEYED, *INTERNAL):
            self.cluster.wait_until_in_sync(topic, PARTITIONS, 3, HEAL_S)
        self.cluster.wait_until_in_sync(SINGLE, len(BROKERS), 1, HEAL_S)
        self.elect_preferred_leaders()

    def _cleaned(self, node: NodeProcess) -> list[int]:
        """Up to where the node's cleaner has cleaned each partition of the keyed topic."""
        return [cleaned_up_to(node.properties["log.dirs"], KEYED, p) for p in range(PARTITIONS)]

    def _has_cleaned(self, node: NodeProcess, before: Sequence[int]) -> bool:
        """Whether the cleaner of the node has gone on in all partitions."""
        return all(now > then for now, then in zip(self._cleaned(node), before, strict=True))
