"""One conversation with Apache Kafka's tools, on three brokers of any kind: what they say, made comparable.

What no two clusters share is replaced: addresses, topic ids, paths; so are stack traces.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import PartitionMetadata
from tests.support.cluster import Cluster
from tests.support.kafka_tools import KafkaTools

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


def play(tools: KafkaTools, cluster: Cluster, brokers: Sequence[int]) -> list[str]:
    """Each command with its status and what it said. `brokers` are the ids of three living ones, all in sync."""
    with TemporaryDirectory() as directory:
        return _Talk(tools, cluster, brokers, Path(directory)).play()


class _Talk:
    def __init__(self, tools: KafkaTools, cluster: Cluster, brokers: Sequence[int], directory: Path) -> None:
        self._tools = tools
        self._cluster = cluster
        self._a, self._b, self._c = brokers
        self._directory = directory
        self.said: list[str] = []

    def play(self) -> list[str]:
        self._topics()
        self._configs()
        self._elections()
        self._moves()
        self._log_dirs()
        self._ask("kafka-topics", "--delete", "--topic", TOPIC)
        for node in self._cluster.nodes:
            if node.is_running:
                self._cluster.wait_until(
                    f"{node.name} has forgotten it", lambda n=node: TOPIC not in self._cluster.metadata(n).topics
                )
        self._ask("kafka-topics", "--delete", "--topic", TOPIC)
        return self.said

    def _topics(self) -> None:
        a, b, c = self._a, self._b, self._c
        create = ("kafka-topics", "--create", "--topic", TOPIC)
        layout = ("--replica-assignment", f"{a}:{b},{b}:{c}")
        self._ask(*create, *layout, "--config", "no.such.key=1")
        self._ask(*create, *layout, "--config", "retention.ms=nonsense")
        self._ask(*create, "--replica-assignment", f"{a}:{a}")
        self._ask(*create, "--partitions", "1", "--replication-factor", "9")
        self._ask("kafka-topics", "--create", "--topic", "bad/name", *layout)
        self._ask(*create, *layout, "--config", "retention.ms=60000", "--config", "min.insync.replicas=1")
        self._ask(*create, *layout)
        self._ask(*create, *layout, "--if-not-exists")
        self._cluster.wait_until_in_sync(TOPIC, 2, 2)
        self._ask("kafka-topics", "--describe", "--topic", TOPIC)
        self._ask("kafka-topics", "--describe", "--topic", "no-such-topic")
        self._ask("kafka-topics", "--list", "--topic", TOPIC)
        self._ask("kafka-topics", "--alter", "--topic", TOPIC, "--partitions", "1")
        self._ask("kafka-topics", "--alter", "--topic", TOPIC, "--partitions", "2")
        self._ask("kafka-topics", "--alter", "--topic", TOPIC, "--partitions", "3",
                  "--replica-assignment", f"{a}:{b},{b}:{c},{c}:77")  # fmt: skip
        self._ask("kafka-topics", "--alter", "--topic", TOPIC, "--partitions", "3",
                  "--replica-assignment", f"{a}:{b},{b}:{c},{c}:{a}")  # fmt: skip
        self._cluster.wait_until_in_sync(TOPIC, 3, 2)
        for only in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions",
                     "--at-min-isr-partitions", "--topics-with-overrides"):  # fmt: skip
            self._ask("kafka-topics", "--describe", "--topic", TOPIC, only)

    def _configs(self) -> None:
        topic = ("kafka-configs", "--entity-type", "topics", "--entity-name", TOPIC)
        self._ask(*topic, "--alter", "--add-config", "max.message.bytes=100000,cleanup.policy=[compact,delete]")
        self._ask(*topic, "--alter", "--add-config", "retention.ms=nonsense")
        self._ask(*topic, "--alter", "--delete-config", "segment.bytes")
        self._ask(*topic, "--describe")
        self._ask(*topic, "--alter", "--delete-config", "max.message.bytes,cleanup.policy")
        self._ask(*topic, "--describe")
        broker = ("kafka-configs", "--entity-type", "brokers", "--entity-name", str(self._a))
        self._ask(*broker, "--alter", "--add-config", "leader.replication.throttled.rate=10000000")
        self._cluster.wait_until("the broker knows its quota", lambda: self._tells(*broker, "--describe"))
        self._ask(*broker, "--describe")
        self._ask(*broker, "--alter", "--add-config", "broker.rack=x")
        self._ask(*broker, "--alter", "--delete-config", "leader.replication.throttled.rate")
        self._ask("kafka-configs", "--entity-type", "brokers", "--entity-default", "--describe")

    def _elections(self) -> None:
        elect = ("kafka-leader-election", "--topic", TOPIC)
        self._ask(*elect, "--partition", "0", "--election-type", "preferred")
        self._ask(*elect, "--partition", "0", "--election-type", "unclean")
        self._ask(*elect, "--partition", "9", "--election-type", "preferred")
        self._ask("kafka-leader-election", "--topic", "no-such-topic", "--partition", "0",
                  "--election-type", "preferred")  # fmt: skip

    def _moves(self) -> None:
        a, b, c = self._a, self._b, self._c
        move = "kafka-reassign-partitions"
        plan = self._plan({0: (b, c), 1: (c, a)})
        self._ask(move, "--reassignment-json-file", plan, "--execute", "--throttle", "100000000")
        self._cluster.wait_until(
            "it has moved", lambda: {tuple(p.replicas) for p in self._partitions()} == {(b, c), (c, a)}
        )
        self._cluster.wait_until_in_sync(TOPIC, 3, 2)
        self._ask(move, "--reassignment-json-file", plan, "--verify")
        self._ask(move, "--list")
        self._ask(move, "--reassignment-json-file", plan, "--cancel")
        self._ask(move, "--reassignment-json-file", self._plan({0: (b, 77)}), "--execute")
        self._ask(move, "--reassignment-json-file", self._plan({9: (a, b)}), "--execute")
        self._ask(move, "--reassignment-json-file", self._plan({0: (a, a)}), "--execute")
        self._ask("kafka-topics", "--describe", "--topic", TOPIC)

    def _log_dirs(self) -> None:
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap, "acks": "all", "log_level": 0})
        producer.produce(TOPIC, b"x" * 1_000, partition=0, timestamp=1)
        assert producer.flush(30) == 0
        self._ask("kafka-log-dirs", "--describe", "--topic-list", TOPIC,
                  "--broker-list", f"{self._a},{self._b},{self._c}")  # fmt: skip
        self._ask("kafka-log-dirs", "--describe", "--topic-list", TOPIC, "--broker-list", "77")

    def _partitions(self) -> list[PartitionMetadata]:
        return list(self._cluster.metadata().topics[TOPIC].partitions.values())

    def _plan(self, wanted: dict[int, tuple[int, ...]]) -> str:
        path = self._directory / "plan.json"
        listed = [{"topic": TOPIC, "partition": p, "replicas": list(r)} for p, r in wanted.items()]
        path.write_text(json.dumps({"version": 1, "partitions": listed}))
        return str(path)

    def _tells(self, tool: str, *arguments: str) -> bool:
        """More than a heading."""
        return len(self._tools.run(self._cluster.bootstrap, tool, *arguments).splitlines()) > 1

    def _ask(self, *command: str) -> None:
        tool, *arguments = command
        status, text = self._tools.ask(self._cluster.bootstrap, tool, *arguments)
        text = _TRACE.sub("", text)
        for node in self._cluster.nodes:
            text = text.replace(node.log_directory, "LOGS")
        for pattern, instead in _NORMAL:
            text = pattern.sub(instead, text)
        words = " ".join(a.replace(str(self._directory), "DIR") for a in arguments)
        self.said.append(f"{tool} {words} -> {status}\n{text}")
