"""Runs Apache Kafka's tools on three brokers of any kind, and returns their output in comparable form."""

import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import PartitionMetadata
from tests.support.cluster import Cluster
from tests.support.kafka_tools import KafkaTools

from klamm.embedded.nodes import NodeProcess

TOPIC: Final = "talk"
_TRACE: Final = re.compile(r"\n\s+at [^\n]*|\nCaused by: [^\n]*|\n\s*\.\.\. \d+ more")
_NORMAL: Final = (
    (re.compile(r"TopicId: [\w-]{22}"), "TopicId: ID"),
    (re.compile(r"127\.0\.0\.1:\d+"), "HOST:PORT"),
    (re.compile(r"(?<=\()(java|org)\.[\w.$]*\)"), "CLASS)"),
    (re.compile(r",?file\.delete\.delay\.ms=\d+"), ""),
    (re.compile(r"(?<=Error while executing topic command : )[^']*('[^']*')?.*"), r"SENTENCE \1"),
    (re.compile(r"(?<=Exception: )(?!The partition does not exist|Unable to find partition).*"), "SENTENCE"),
)
"""Apache Kafka and klamm word their refusals in sentences of their own; the kind of error is the same."""


def run_all_tools(tools: KafkaTools, cluster: Cluster, brokers: Sequence[int]) -> list[str]:
    """Run every command; returns each with its status and output. `brokers` are three live ones, all in sync."""
    with TemporaryDirectory() as directory:
        return _ToolSession(tools, cluster, brokers, Path(directory)).run_all()


class _ToolSession:
    def __init__(self, tools: KafkaTools, cluster: Cluster, brokers: Sequence[int], directory: Path) -> None:
        self._tools = tools
        self._cluster = cluster
        self._a, self._b, self._c = brokers
        self._directory = directory
        self.said: list[str] = []

    def run_all(self) -> list[str]:
        self._run_topics()
        self._run_configs()
        self._run_elections()
        self._run_reassignments()
        self._run_log_dirs()
        self._run_and_record("kafka-topics", "--delete", "--topic", TOPIC)
        for node in self._cluster.nodes:
            if node.is_running:
                self._cluster.wait_until(f"{node.name} has forgotten it", partial(self._has_forgotten, node))
        self._run_and_record("kafka-topics", "--delete", "--topic", TOPIC)
        return self.said

    def _has_forgotten(self, node: NodeProcess) -> bool:
        return TOPIC not in self._cluster.metadata(node).topics

    def _run_topics(self) -> None:
        a, b, c = self._a, self._b, self._c
        create = ("kafka-topics", "--create", "--topic", TOPIC)
        layout = ("--replica-assignment", f"{a}:{b},{b}:{c}")
        self._run_and_record(*create, *layout, "--config", "no.such.key=1")
        self._run_and_record(*create, *layout, "--config", "retention.ms=nonsense")
        self._run_and_record(*create, "--replica-assignment", f"{a}:{a}")
        self._run_and_record(*create, "--partitions", "1", "--replication-factor", "9")
        self._run_and_record("kafka-topics", "--create", "--topic", "bad/name", *layout)
        self._run_and_record(*create, *layout, "--config", "retention.ms=60000", "--config", "min.insync.replicas=1")
        self._run_and_record(*create, *layout)
        self._run_and_record(*create, *layout, "--if-not-exists")
        self._cluster.wait_until_in_sync(TOPIC, 2, 2)
        self._run_and_record("kafka-topics", "--describe", "--topic", TOPIC)
        self._run_and_record("kafka-topics", "--describe", "--topic", "no-such-topic")
        self._run_and_record("kafka-topics", "--list", "--topic", TOPIC)
        self._run_and_record("kafka-topics", "--alter", "--topic", TOPIC, "--partitions", "1")
        self._run_and_record("kafka-topics", "--alter", "--topic", TOPIC, "--partitions", "2")
        self._run_and_record("kafka-topics", "--alter", "--topic", TOPIC, "--partitions", "3",
                  "--replica-assignment", f"{a}:{b},{b}:{c},{c}:77")  # fmt: skip
        self._run_and_record("kafka-topics", "--alter", "--topic", TOPIC, "--partitions", "3",
                  "--replica-assignment", f"{a}:{b},{b}:{c},{c}:{a}")  # fmt: skip
        self._cluster.wait_until_in_sync(TOPIC, 3, 2)
        for only in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions",
                     "--at-min-isr-partitions", "--topics-with-overrides"):  # fmt: skip
            self._run_and_record("kafka-topics", "--describe", "--topic", TOPIC, only)

    def _run_configs(self) -> None:
        topic = ("kafka-configs", "--entity-type", "topics", "--entity-name", TOPIC)
        self._run_and_record(
            *topic, "--alter", "--add-config", "max.message.bytes=100000,cleanup.policy=[compact,delete]"
        )
        self._run_and_record(*topic, "--alter", "--add-config", "retention.ms=nonsense")
        self._run_and_record(*topic, "--alter", "--delete-config", "segment.bytes")
        self._run_and_record(*topic, "--describe")
        self._run_and_record(*topic, "--alter", "--delete-config", "max.message.bytes,cleanup.policy")
        self._run_and_record(*topic, "--describe")
        broker = ("kafka-configs", "--entity-type", "brokers", "--entity-name", str(self._a))
        self._run_and_record(*broker, "--alter", "--add-config", "leader.replication.throttled.rate=10000000")
        self._cluster.wait_until("the broker knows its quota", lambda: self._has_output(*broker, "--describe"))
        self._run_and_record(*broker, "--describe")
        self._run_and_record(*broker, "--alter", "--add-config", "broker.rack=x")
        self._run_and_record(*broker, "--alter", "--delete-config", "leader.replication.throttled.rate")
        self._run_and_record("kafka-configs", "--entity-type", "brokers", "--entity-default", "--describe")

    def _run_elections(self) -> None:
        elect = ("kafka-leader-election", "--topic", TOPIC)
        self._run_and_record(*elect, "--partition", "0", "--election-type", "preferred")
        self._run_and_record(*elect, "--partition", "0", "--election-type", "unclean")
        self._run_and_record(*elect, "--partition", "9", "--election-type", "preferred")
        self._run_and_record("kafka-leader-election", "--topic", "no-such-topic", "--partition", "0",
                  "--election-type", "preferred")  # fmt: skip

    def _run_reassignments(self) -> None:
        a, b, c = self._a, self._b, self._c
        move = "kafka-reassign-partitions"
        plan = self._reassignment_json({0: (b, c), 1: (c, a)})
        self._run_and_record(move, "--reassignment-json-file", plan, "--execute", "--throttle", "100000000")
        self._cluster.wait_until(
            "it has moved", lambda: {tuple(p.replicas) for p in self._partitions()} == {(b, c), (c, a)}
        )
        self._cluster.wait_until_in_sync(TOPIC, 3, 2)
        self._run_and_record(move, "--reassignment-json-file", plan, "--verify")
        self._run_and_record(move, "--list")
        self._run_and_record(move, "--reassignment-json-file", plan, "--cancel")
        self._run_and_record(move, "--reassignment-json-file", self._reassignment_json({0: (b, 77)}), "--execute")
        self._run_and_record(move, "--reassignment-json-file", self._reassignment_json({9: (a, b)}), "--execute")
        self._run_and_record(move, "--reassignment-json-file", self._reassignment_json({0: (a, a)}), "--execute")
        self._run_and_record("kafka-topics", "--describe", "--topic", TOPIC)

    def _run_log_dirs(self) -> None:
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap, "acks": "all", "log_level": 0})
        producer.produce(TOPIC, b"x" * 1_000, partition=0)
        assert producer.flush(30) == 0
        self._run_and_record("kafka-log-dirs", "--describe", "--topic-list", TOPIC,
                  "--broker-list", f"{self._a},{self._b},{self._c}")  # fmt: skip
        self._run_and_record("kafka-log-dirs", "--describe", "--topic-list", TOPIC, "--broker-list", "77")

    def _partitions(self) -> list[PartitionMetadata]:
        return list(self._cluster.metadata().topics[TOPIC].partitions.values())

    def _reassignment_json(self, wanted: dict[int, tuple[int, ...]]) -> str:
        path = self._directory / "plan.json"
        listed = [{"topic": TOPIC, "partition": p, "replicas": list(r)} for p, r in wanted.items()]
        path.write_text(json.dumps({"version": 1, "partitions": listed}))
        return str(path)

    def _has_output(self, tool: str, *arguments: str) -> bool:
        """Whether the tool prints more than a heading."""
        return len(self._tools.run(self._cluster.bootstrap, tool, *arguments).splitlines()) > 1

    def _run_and_record(self, *command: str) -> None:
        tool, *arguments = command
        result = self._tools.ask(self._cluster.bootstrap, tool, *arguments)
        text = _TRACE.sub("", result.text)
        for node in self._cluster.nodes:
            text = text.replace(node.log_directory, "LOGS")
        for pattern, instead in _NORMAL:
            text = pattern.sub(instead, text)
        words = " ".join(a.replace(str(self._directory), "DIR") for a in arguments)
        self.said.append(f"{tool} {words} -> {result.status}\n{text}")
