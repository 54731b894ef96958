"""Runs Apache Kafka's tools that produce, consume and look at groups and transactions; returns comparable output.

python -m tests.support.client_tool_talk    # records what they say about Apache Kafka's own brokers
"""

import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support import apache_kafka
from tests.support.cluster import Cluster
from tests.support.kafka_tools import MAINS, KafkaTools, kafka_tools

RECORDED: Final = Path(__file__).parents[1] / "clients" / "client_tools.txt"
OVERRIDES: Final = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}
TOPIC: Final = "talked"
GROUP: Final = "talkers"
_NORMAL: Final = (
    (re.compile(r"127\.0\.0\.1:\d+"), "HOST:PORT"),
    (re.compile(r"\(id: \d+ rack: null\)|HOST:PORT +\(\d+\)"), "BROKER"),
    (re.compile(r'"timestamp":\d+'), '"timestamp":TIME'),
    (re.compile(r'"(avg_throughput|target_throughput)":[-\d.]+'), r'"\1":N'),
    (re.compile(r"[-\w]+-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "MEMBER"),
    (re.compile(r"\d+ records sent, [\d.]+ records/sec.*"), "N records sent"),
    (re.compile(r"CreateTime:\d{10,}"), "CreateTime:TIME"),
    (re.compile(r"\n\s+at [^\n]*|\nCaused by: [^\n]*|\n\s*\.\.\. \d+ more"), ""),
    (re.compile(r"\[\d{4}-\d\d-\d\d [\d:,]+\] "), ""),
    (re.compile(r"(?<=\()org\.apache\.kafka[\w.]*(?=\))"), "CLASS"),
    (re.compile(r" {2,}"), "  "),
)
_NUMBERS: Final = re.compile(r"\d{4,}|(?<=perf  \t)\d+|(?<=^perf  \t\d  \t)\d+|^\d+(?=  \t)")
"""Producer ids, times, durations and coordinators, which no two runs have in common."""


class _Session:
    """A run of all commands on one cluster."""

    def __init__(self, tools: KafkaTools, cluster: Cluster, directory: Path) -> None:
        self._tools = tools
        self._cluster = cluster
        self._directory = directory
        self.said: list[str] = []

    def run_all(self) -> list[str]:
        self._cluster.create_topic(TOPIC, 1, 3)
        self._produce()
        self._look_at_offsets()
        self._consume()
        self._look_at_the_group()
        self._delete_records()
        self._look_at_transactions()
        return self.said

    def _produce(self) -> None:
        lines = "".join(f"h:{n}\tkey-{n},value-{n}\n" for n in range(5))
        console = ("kafka-console-producer", "--topic", TOPIC)
        read_all = ("parse.key=true", "key.separator=,", "parse.headers=true")
        self._run(*console, *(word for name in read_all for word in ("--property", name)), stdin=lines)
        self._run(*console, "--request-required-acks", "all", "--compression-codec", "zstd", stdin="no key\n")
        self._run_alone("kafka-verifiable-producer", "--topic", TOPIC, "--max-messages", "4", "--acks", "-1",
                        "--message-create-time", "1000", "--repeating-keys", "2")  # fmt: skip
        perf = ("kafka-producer-perf-test", "--topic", TOPIC, "--num-records", "10", "--record-size", "8")
        self._run(*perf, "--throughput", "-1")
        self._run(*perf, "--throughput", "-1", "--transactional-id", "perf", "--transaction-duration-ms", "100000")

    def _look_at_offsets(self) -> None:
        for time in ("-1", "-2", "latest", "earliest", "max-timestamp", "1000"):
            self._run("kafka-get-offsets", "--topic", TOPIC, "--time", time)
        self._run("kafka-get-offsets", "--topic-partitions", f"{TOPIC}:0-1")
        self._run("kafka-get-offsets", "--topic", "no-such-topic")
        self._run("kafka-get-offsets", "--topic", TOPIC, "--partitions", "7")

    def _consume(self) -> None:
        read = ("kafka-console-consumer", "--topic", TOPIC, "--timeout-ms", "20000")
        printed = ("partition", "offset", "key", "headers")
        show = [word for name in printed for word in ("--property", f"print.{name}=true")]
        self._run(*read, "--partition", "0", "--offset", "earliest", "--max-messages", "6", *show)
        self._run(*read, "--partition", "0", "--offset", "3", "--max-messages", "2", *show)
        self._run(*read, "--from-beginning", "--max-messages", "10", "--group", GROUP,
                  "--isolation-level", "read_committed")  # fmt: skip
        self._run("kafka-verifiable-consumer", "--topic", TOPIC, "--group-id", "verified", "--max-messages", "10",
                  "--reset-policy", "earliest", "--session-timeout", "10000")  # fmt: skip

    def _look_at_the_group(self) -> None:
        groups = "kafka-consumer-groups"
        for group in (GROUP, "verified"):
            self._cluster.group(group).wait_until_empty()
        self._run(groups, "--list")
        self._run(groups, "--list", "--state")
        self._run(groups, "--describe", "--group", GROUP)
        self._run(groups, "--describe", "--group", GROUP, "--state")
        self._run(groups, "--describe", "--group", GROUP, "--members")
        self._run(groups, "--describe", "--group", "no-such-group")
        reset = (groups, "--reset-offsets", "--group", GROUP, "--topic", TOPIC)
        self._run(*reset, "--to-offset", "2", "--dry-run")
        self._run(*reset, "--to-offset", "2", "--execute", "--export")
        self._run(*reset, "--shift-by", "-1", "--execute")
        self._run(*reset, "--to-datetime", "1970-01-01T00:00:01.000", "--dry-run")
        self._run(groups, "--describe", "--group", GROUP)
        self._run(groups, "--delete-offsets", "--group", GROUP, "--topic", TOPIC)
        self._run(groups, "--delete-offsets", "--group", GROUP, "--topic", "no-such-topic")
        self._run(groups, "--delete", "--group", "verified")
        self._run(groups, "--delete", "--group", "verified")

    def _delete_records(self) -> None:
        for offset in (3, -1, 1_000):
            path = self._directory / f"delete-{offset}.json"
            entry = {"topic": TOPIC, "partition": 0, "offset": offset}
            path.write_text(json.dumps({"version": 1, "partitions": [entry]}))
            self._run("kafka-delete-records", "--offset-json-file", str(path))
        self._run("kafka-get-offsets", "--topic", TOPIC, "--time", "earliest")

    def _look_at_transactions(self) -> None:
        tool = "kafka-transactions"
        self._run(tool, "list")
        self._run(tool, "describe", "--transactional-id", "perf")
        self._run(tool, "describe", "--transactional-id", "no-such-id")
        self._run(tool, "describe-producers", "--topic", TOPIC, "--partition", "0")
        self._run(tool, "find-hanging", "--topic", TOPIC)
        self._run(tool, "abort", "--topic", TOPIC, "--partition", "0", "--start-offset", "0")

    def _run(self, tool: str, *arguments: str, stdin: str = "") -> None:
        """Run a command, and note its status and output."""
        result = self._tools.ask(self._cluster.bootstrap, tool, *arguments, stdin=stdin.encode())
        self._note(tool, arguments, result.status, result.text)

    def _run_alone(self, tool: str, *arguments: str) -> None:
        """Run a command that prints while its process ends, in a process of its own."""
        done = apache_kafka.run_alone(MAINS[tool], "--bootstrap-server", self._cluster.bootstrap, *arguments)
        self._note(tool, arguments, done.returncode, done.stdout.decode() + done.stderr.decode())

    def _note(self, tool: str, arguments: Sequence[str], status: int, text: str) -> None:
        """Note a command with its status and output in comparable form."""
        text = re.sub(r"(?m)^\{.*\}$", _with_sorted_fields, text)
        for pattern, instead in _NORMAL:
            text = pattern.sub(instead, text)
        words = " ".join(arguments).replace(str(self._directory), "DIR")
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        if tool == "kafka-transactions":
            lines = lines[:1] + sorted(_NUMBERS.sub("N", line) for line in lines[1:])
        self.said.append("\n".join([f"$ {tool} {words} -> {status}", *lines]))


def _with_sorted_fields(found: re.Match[str]) -> str:
    """A line of JSON with its fields by name: their order follows Java's reflection and differs between two runs."""
    return json.dumps(json.loads(found[0]), sort_keys=True, separators=(",", ":"))


def talk(tools: KafkaTools, cluster: Cluster, directory: Path) -> str:
    """Run every command; returns each with its status and output."""
    return "\n\n".join(_Session(tools, cluster, directory).run_all()) + "\n"


def main() -> None:
    assert apache_kafka.why_missing() is None, apache_kafka.why_missing()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        with Cluster(path / "cluster", command=apache_kafka.broker(), overrides=OVERRIDES) as cluster:
            RECORDED.write_text(talk(kafka_tools(), cluster, path))


if __name__ == "__main__":
    main()
