"""Apache Kafka 3.9.1 itself, the peer and the judge: brokers in ZooKeeper mode, and its own tools.

Maven fetches the jars once into `.cache/apache-kafka`; without Maven, tests that need them are left out.
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from klamm.embedded.nodes import NodeProcess
from klamm.runtime.java import NoJava, find_java
from klamm.runtime.processes import ticks

VERSION = "3.9.1"
CACHE = Path(__file__).parents[2] / ".cache" / "apache-kafka"
JARS = CACHE / VERSION
ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", VERSION),
    ("org.apache.kafka", "kafka-tools", VERSION),
    ("org.slf4j", "slf4j-reload4j", "1.7.36"),
)
# as kafka-server-start.sh and kafka-run-class.sh of 3.9 start a broker
BROKER_JAVA = (
    "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
)  # fmt: skip
SMALL_BROKER_JAVA = ("-Xmx384m", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
TOOL_JAVA = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
LOGGING = """\
log4j.rootLogger=WARN, out
log4j.logger.kafka.server.KafkaServer=INFO
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.target=System.err
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
"""


def _pom_xml() -> str:
    """The Maven project that lists the jars."""
    dependencies = "".join(
        f"<dependency><groupId>{g}</groupId><artifactId>{a}</artifactId><version>{v}</version></dependency>"
        for g, a, v in ARTIFACTS
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>klamm</groupId><artifactId>apache-kafka</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def fetch() -> None:
    """Let Maven copy the jars, unless they exist. Raises RuntimeError if it fails."""
    if JARS.is_dir():
        _write_logging(JARS)
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if JARS.is_dir():
            return
        partial = CACHE / "partial"
        shutil.rmtree(partial, ignore_errors=True)
        pom = CACHE / "pom.xml"
        pom.write_text(_pom_xml())
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"Maven could not fetch Apache Kafka {VERSION}: {(done.stdout + done.stderr)[-2000:]}")
        _write_logging(partial)
        os.replace(partial, JARS)


def _write_logging(directory: Path) -> None:
    """Write the log4j configuration."""
    path = directory / "log4j.properties"
    if not path.exists() or path.read_text() != LOGGING:
        path.write_text(LOGGING)


@cache
def why_missing() -> str | None:
    """Why Apache Kafka cannot run here, in one sentence; None if it can. Fetches the jars first."""
    try:
        find_java()
    except NoJava as error:
        return str(error)
    if not JARS.is_dir() and shutil.which("mvn") is None:
        return f"Apache Kafka {VERSION} is not in {CACHE}, and there is no Maven (mvn) to fetch it"
    fetch()
    return None


def java(main: str, *arguments: str, options: Sequence[str] = TOOL_JAVA) -> list[str]:
    """The command line that runs a class of Apache Kafka's jars."""
    logging = f"-Dlog4j.configuration=file:{JARS / 'log4j.properties'}"
    return [find_java(), *options, logging, "-cp", f"{JARS}/*", main, *arguments]


def broker(options: Sequence[str] = SMALL_BROKER_JAVA) -> Callable[[str], Sequence[str]]:
    """The command of an Apache Kafka node, for `NodeProcess` and `Cluster`."""
    return lambda properties_path: java("kafka.Kafka", properties_path, options=options)


def wait_until_started(node: NodeProcess, timeout_s: float = 60) -> None:
    """Wait until the broker has started. Its port opens earlier, and a starting broker refuses controlled shutdown."""
    node.wait_until_listening(timeout_s)
    assert node.child is not None
    for _ in ticks(timeout_s):
        said = Path(node.output_path).read_text(errors="replace")
        if 0 < said.count("KafkaServer: starting") == said.count(f"[KafkaServer id={node.broker_id}] started"):
            return
        assert node.is_running, node.exit_report()
    raise AssertionError(f"{node.name} has not started after {timeout_s:g} s: {node.child.log_tail()}")


def run_tool(
    main: str, *arguments: str, words: bytes = b"", timeout_s: float = 120
) -> subprocess.CompletedProcess[bytes]:
    """Run one of its tools with `words` as standard input; the caller checks status and output."""
    return subprocess.run(java(main, *arguments), input=words, capture_output=True, timeout=timeout_s, check=False)
