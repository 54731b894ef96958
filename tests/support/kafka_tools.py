"""Apache Kafka's command-line tools, many commands to one Java process. See KafkaTools.java."""

import atexit
import os
import subprocess
import tempfile
import threading
from typing import Final, NamedTuple

from tests.support import apache_kafka

TIMEOUT_S: Final = 120.0
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
    """How a tool ended."""

    status: int
    text: str
    """Standard output and standard error, as they came."""
    output: str
    """Standard output alone."""
    errors: str
    """Standard error alone."""
    logged: str = ""
    """What the process logged meanwhile; clients that earlier tools left open log there, too."""


class KafkaTools:
    """A Java process that runs Apache Kafka's command-line tools, one after the other. It ends with this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it is open as long as the Java process runs
        self._process = subprocess.Popen(
            apache_kafka.program("KafkaTools", apache_kafka.KAFKA),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        atexit.register(self._process.kill)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def ask(self, bootstrap: str, tool: str, *arguments: str, stdin: bytes = b"") -> ToolResult:
        """Run a tool, with these bytes as its standard input."""
        server = ("--bootstrap-server", bootstrap)
        if tool == "kafka-producer-perf-test":
            server = ("--producer-props", f"bootstrap.servers={bootstrap}")
        return self.run_class(MAINS[tool], *server, *arguments, stdin=stdin)

    def run(self, bootstrap: str, tool: str, *arguments: str) -> str:
        """Run a command that must succeed, and return its output."""
        result = self.ask(bootstrap, tool, *arguments)
        assert result.status == 0, f"{tool} {' '.join(arguments)}: {result.text}"
        return result.text

    def run_class(self, main: str, *arguments: str, stdin: bytes = b"", timeout_s: float = TIMEOUT_S) -> ToolResult:
        """Run the main class of a tool. Raises AssertionError, and ends the Java process, if it takes too long."""
        with self._lock, tempfile.NamedTemporaryFile() as words:
            words.write(stdin)
            words.flush()
            begin = os.fstat(self._log.fileno()).st_size
            deadline = threading.Timer(timeout_s, self._process.kill)
            deadline.start()
            try:
                result = self._exchange([words.name if stdin else "", main, *arguments])
            finally:
                deadline.cancel()
            return result._replace(logged=self._read_log(begin))

    def _exchange(self, command: list[str]) -> ToolResult:
        """Send a command and read its result."""
        commands, results = self._process.stdin, self._process.stdout
        assert commands is not None
        assert results is not None
        commands.write("\t".join(command).encode() + b"\n")
        commands.flush()
        head = results.readline().split()
        assert head, f"the Java process ended, or was killed after its time: {' '.join(command)}"
        status, *sizes = map(int, head)
        return ToolResult(status, *(results.read(size).decode(errors="replace") for size in sizes))

    def _read_log(self, begin: int) -> str:
        """Return what was logged since the log had this size; reading must not move where Java writes."""
        return os.pread(self._log.fileno(), 1_000_000, begin).decode(errors="replace")


_started: list[KafkaTools] = []


def kafka_tools() -> KafkaTools:
    """The Java process of all tests of this Python process: started once, and again if it has ended."""
    if not (_started and _started[-1].is_running):
        _started.append(KafkaTools())
    return _started[-1]
