"""Apache Kafka's command-line tools, many commands to one Java process. See KafkaTools.java."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.support import apache_kafka

SOURCE = apache_kafka.SOURCES / "KafkaTools.java"
MAINS: Final = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-console-producer": "kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
}


class ToolResult(NamedTuple):
    """The exit status of a tool, and its output."""

    status: int
    text: str


class KafkaTools:
    """A Java process that runs Apache Kafka's command-line tools."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def ask(self, bootstrap: str, tool: str, *arguments: str, stdin_path: str = "") -> ToolResult:
        """Run a command, with this file as its standard input, and return its status and output."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        server = ("--bootstrap-server", bootstrap)
        if tool == "kafka-producer-perf-test":
            server = ("--producer-props", f"bootstrap.servers={bootstrap}")
        stdin.write("\t".join([stdin_path, MAINS[tool], *server, *arguments]).encode() + b"\n")
        stdin.flush()
        head = stdout.readline().split()
        assert head, "the tools' process has ended"
        status, size = map(int, head)
        return ToolResult(status, stdout.read(size).decode(errors="replace"))

    def run(self, bootstrap: str, tool: str, *arguments: str) -> str:
        """Run a command that must succeed, and return its output."""
        said = self.ask(bootstrap, tool, *arguments)
        assert said.status == 0, f"{tool} {' '.join(arguments)}: {said.text}"
        return said.text


@contextmanager
def kafka_tools(log: Path) -> Iterator[KafkaTools]:
    """`log` takes what the tools log."""
    with open(log, "wb") as errors:
        process = subprocess.Popen(
            apache_kafka.java(str(SOURCE)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        )
    try:
        yield KafkaTools(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
