"""Operations with Apache Kafka's tools on a mixed cluster; each one checks the cluster at its end."""

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from tests.support.kafka_tools import KafkaTools
from tests.support.mixed_cluster import Assignment, MixedCluster
from tests.support.workload import Workload

THREE: Final = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2), 3: (1, 3, 2)}
PLENTY: Final = "100000000"
CRAWL: Final = "1"
"""Bytes per second: what moves at this pace has not arrived when something else happens."""
ALL_THROTTLED: Final = {"leader.replication.throttled.replicas": "*", "follower.replication.throttled.replicas": "*"}


class Operator:
    """Runs Apache Kafka's tools on a mixed cluster; `load` is produced to a topic on brokers 1-3 all the time."""

    def __init__(self, cluster: MixedCluster, tools: KafkaTools, load: Workload, directory: Path) -> None:
        self.cluster = cluster
        self.load = load
        self.tools = tools
        self._directory = directory

    def run(self, tool: str, *arguments: str) -> str:
        return self.tools.run(self.cluster.bootstrap, tool, *arguments)

    def load_is_right(self) -> None:
        """Assert that the topic of the load is complete and in sync."""
        self.cluster.wait_until_right(self.load.topic, THREE)
        count = len(self.load.acknowledged)
        self.cluster.wait_until("records are acknowledged", lambda: len(self.load.acknowledged) > count)

    def produce(self, topic: str, partitions: Collection[int], number: int = 400, size: int = 1_000) -> None:
        """Produce numbered records to these partitions with acks=all."""
        errors: list[object] = []
        producer = Producer(
            {"bootstrap.servers": self.cluster.bootstrap, "acks": "all", "batch.size": 10_000, "log_level": 0}
        )
        for partition in partitions:
            for n in range(number):
                value = b"%d" % n + b" " * size
                producer.produce(
                    topic, value, partition=partition, on_delivery=lambda e, _: errors.append(e) if e else None
                )
        assert producer.flush(60) == 0
        assert not errors, errors[0]

    # ---- topics

    def create(self, topic: str, assignment: Assignment, *config: str) -> None:
        configs = [word for pair in config for word in ("--config", pair)]
        self.run("kafka-topics", "--create", "--topic", topic, "--replica-assignment", _listed(assignment), *configs)
        self.cluster.wait_until_right(topic, assignment)
        described = self.run("kafka-topics", "--describe", "--topic", topic)
        for partition, replicas in assignment.items():
            assert f"Partition: {partition}\tLeader: {replicas[0]}\tReplicas: {_joined(replicas)}\t" in described

    def grow(self, topic: str, assignment: Assignment) -> None:
        """Add partitions until the topic has this assignment."""
        self.run(
            "kafka-topics", "--alter", "--topic", topic, "--partitions", str(len(assignment)),
            "--replica-assignment", _listed(assignment),
        )  # fmt: skip
        self.cluster.wait_until_right(topic, assignment)

    def delete(self, topic: str) -> None:
        self.run("kafka-topics", "--delete", "--topic", topic)
        self.cluster.wait_until_gone(topic)

    # ---- moves

    def start_moving(self, topic: str, wanted: Assignment, throttle: str = PLENTY) -> None:
        said = self.run(
            "kafka-reassign-partitions", "--reassignment-json-file", self._plan(topic, wanted),
            "--execute", "--throttle", throttle, "--additional",
        )  # fmt: skip
        assert "Successfully started partition reassignment" in said, said

    def hurry(self, topic: str, wanted: Assignment) -> None:
        """Apply the same plan again with a high throttle."""
        self.start_moving(topic, wanted)

    def wait_until_moved(self, topic: str, wanted: Assignment) -> None:
        """Wait until the reassignment is complete, and let the tool verify it and remove the throttles."""
        self.cluster.wait_until_right(topic, wanted, 90)
        said = self.run("kafka-reassign-partitions", "--reassignment-json-file", self._plan(topic, wanted), "--verify")
        assert said.count("is completed") == len(wanted), said
        assert "Clearing topic-level throttles" in said
        config = self.cluster.znode(f"/config/topics/{topic}")["config"]
        assert not [key for key in config if "throttled" in key]

    def cancel(self, topic: str, wanted: Assignment) -> None:
        said = self.run("kafka-reassign-partitions", "--reassignment-json-file", self._plan(topic, wanted), "--cancel")
        assert "Successfully cancelled partition reassignment" in said, said

    def throttle(self, broker_id: int, rate: str) -> None:
        self.run(
            "kafka-configs", "--alter", "--entity-type", "brokers", "--entity-name", str(broker_id), "--add-config",
            f"leader.replication.throttled.rate={rate},follower.replication.throttled.rate={rate}",
        )  # fmt: skip

    def moving(self) -> str:
        """The running reassignments, as the tool lists them."""
        return self.run("kafka-reassign-partitions", "--list")

    # ---- leaders

    def elect_preferred(self, topic: str, assignment: Assignment) -> None:
        self.run("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
        self.preferred_lead(topic, assignment)

    def preferred_lead(self, topic: str, assignment: Assignment) -> None:
        """Assert that every preferred replica leads."""
        self.cluster.wait_until_right(topic, assignment)
        wanted = {p: replicas[0] for p, replicas in assignment.items()}
        self.cluster.wait_until("the preferred lead", lambda: self.cluster.leaders(topic) == wanted)

    def lose_the_last_in_sync(self, topic: str, first: int, last: int) -> None:
        """Bring partition 0 into a state where the only ISR member is dead and the other replica lags."""
        cluster = self.cluster
        cluster.stop_node(last)
        cluster.wait_until(f"{first} is alone", lambda: cluster.state(topic, 0)["isr"] == [first])
        self.produce(topic, [0], 10)
        cluster.stop_node(first)
        cluster.start_node(last)
        cluster.wait_until("nobody leads", lambda: cluster.state(topic, 0)["leader"] == -1)

    def elect_unclean(self, topic: str, expected: int) -> None:
        """Elect a leader uncleanly with the tool; assert which broker leads."""
        self.run("kafka-leader-election", "--election-type", "unclean", "--topic", topic, "--partition", "0")
        self.cluster.wait_until(f"{expected} leads", lambda: self.cluster.leaders(topic) == {0: expected})
        self.produce(topic, [0], 10)

    def allow_unclean(self, topic: str, expected: int) -> None:
        """Allow unclean elections by topic config; assert which broker leads."""
        self.run(
            "kafka-configs", "--alter", "--entity-type", "topics", "--entity-name", topic,
            "--add-config", "unclean.leader.election.enable=true",
        )  # fmt: skip
        self.cluster.wait_until(f"{expected} leads", lambda: self.cluster.leaders(topic) == {0: expected})
        self.produce(topic, [0], 10)

    def _plan(self, topic: str, wanted: Assignment) -> str:
        """The path of a reassignment plan."""
        path = self._directory / f"{topic}.json"
        listed = [{"topic": topic, "partition": p, "replicas": list(r)} for p, r in wanted.items()]
        path.write_text(json.dumps({"version": 1, "partitions": listed}))
        return str(path)


class HalfDone:
    """A reassignment and a deletion that wait for the dead broker 3, and a throttled reassignment."""

    BEFORE: Final = {0: (1, 2), 1: (2, 1)}
    AFTER: Final = {0: (3, 1), 1: (2, 3)}
    CRAWLING: Final = {0: (1,)}
    CRAWLED: Final = {0: (2,)}

    def __init__(self, operator: Operator, name: str) -> None:
        self._operator = operator
        self._cluster = operator.cluster
        self.moving, self.dying, self.crawling = f"moving-{name}", f"dying-{name}", f"crawling-{name}"

    def begin(self) -> None:
        """Start the reassignments, kill broker 3, and request the deletion."""
        o = self._operator
        for broker_id in (1, 2, 3):  # before anything moves: the tool's own throttle may come after the first fetches
            o.throttle(broker_id, CRAWL)
        self._cluster.create(self.moving, self.BEFORE, ALL_THROTTLED)
        self._cluster.create(self.dying, {0: (3, 1), 1: (1, 2), 2: (2, 3)})
        self._cluster.create(self.crawling, self.CRAWLING, ALL_THROTTLED)
        o.produce(self.moving, self.BEFORE)
        o.produce(self.crawling, self.CRAWLING)
        o.start_moving(self.crawling, self.CRAWLED, CRAWL)
        o.start_moving(self.moving, self.AFTER, CRAWL)  # the tool refuses brokers that are not there
        self._cluster.kill_node(3)
        self._cluster.delete(self.dying)
        self.is_half_done()

    def is_half_done(self) -> None:
        """Assert that the reassignments and the deletion are still unfinished."""
        cluster = self._cluster
        znode = cluster.znode(f"/brokers/topics/{self.moving}")
        assert znode["adding_replicas"] == {"0": [3], "1": [3]}, znode
        assert znode["removing_replicas"] == {"0": [2], "1": [1]}, znode
        assert cluster.znode(f"/brokers/topics/{self.crawling}")["adding_replicas"] == {"0": [2]}
        assert cluster.znodes.exists(f"/admin/delete_topics/{self.dying}")
        assert cluster.znodes.exists(f"/brokers/topics/{self.dying}")
        said = self._operator.moving()
        assert f"{self.crawling}-0: replicas: 2,1. adding: 2. removing: 1." in said, said
        assert f"{self.moving}-0: replicas: 3,1,2. adding: 3. removing: 2." in said, said

    def end(self) -> None:
        """Start broker 3, and assert that everything completes as requested."""
        o = self._operator
        self._cluster.start_node(3)
        o.hurry(self.crawling, self.CRAWLED)
        o.hurry(self.moving, self.AFTER)
        self._cluster.wait_until_right(self.crawling, self.CRAWLED, 90)
        o.wait_until_moved(self.moving, self.AFTER)
        o.wait_until_moved(self.crawling, self.CRAWLED)
        self._cluster.wait_until_gone(self.dying)
        assert "No partition reassignments found" in o.moving()
        o.delete(self.moving)
        o.delete(self.crawling)


class LeftBehind:
    """Work that a controller may leave when it dies: a reassignment with all replicas in sync, and a deletion request.

    Its brokers stay alive and no ISR changes, so only a new controller can complete it.
    """

    def __init__(self, operator: Operator, name: str, stays: int, leaves: int) -> None:
        """The partition of each topic is on both; `leaves` has to give it up."""
        self._operator = operator
        self._cluster = operator.cluster
        self._stays, self._leaves = stays, leaves
        self.moved, self.deleted = f"moved-{name}", f"deleted-{name}"

    def begin(self) -> None:
        """Create the topics."""
        for topic in (self.moved, self.deleted):
            self._cluster.create(topic, {0: (self._stays, self._leaves)})

    @property
    def znodes(self) -> dict[str, Any]:
        """The znodes that the dead controller leaves."""
        path = f"/brokers/topics/{self.moved}"
        under_way = {**self._cluster.znode(path), "removing_replicas": {"0": [self._leaves]}}
        return {path: under_way, f"/admin/delete_topics/{self.deleted}": None}

    def is_ended(self) -> None:
        """Assert that the reassignment and the deletion are complete."""
        self._cluster.wait_until_right(self.moved, {0: (self._stays,)})
        self._cluster.wait_until_gone(self.deleted)
        self._operator.delete(self.moved)


def _joined(replicas: Sequence[int], by: str = ",") -> str:
    return by.join(map(str, replicas))


def _listed(assignment: Assignment) -> str:
    return ",".join(_joined(assignment[p], ":") for p in sorted(assignment))
