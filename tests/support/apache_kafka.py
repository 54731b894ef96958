"""Apache Kafka 3.9.1 itself, the peer and the judge: brokers in ZooKeeper mode, tools, clients, Streams, Connect.

Maven fetches the jars once into `.cache/apache-kafka`; without Maven, tests that need them are left out.
"""

import hashlib
import os
import shutil
import subprocess
import warnings
from collections.abc import Callable, Sequence
from functools import cache as cached
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.support import cache
from tests.support.cache import made_once, run
from tests.support.zookeeper import server

from klamm.embedded.nodes import NodeProcess
from klamm.runtime.java import NoJava, find_java
from klamm.runtime.ports import free_port
from klamm.runtime.processes import ticks

VERSION = "3.9.1"
CACHE = cache.CACHE / "apache-kafka"
SLF4J = "org.slf4j:slf4j-reload4j:1.7.36"


class Jars(NamedTuple):
    """Artifacts with all that they need, in a directory of the cache."""

    name: str
    artifacts: tuple[str, ...]
    """Each as group:artifact:version."""

    @property
    def directory(self) -> Path:
        return CACHE / self.name


KAFKA = Jars(VERSION, (f"org.apache.kafka:kafka_2.13:{VERSION}", f"org.apache.kafka:kafka-tools:{VERSION}", SLF4J))
CLIENT_4 = Jars("clients-4.4.0", ("org.apache.kafka:kafka-clients:4.4.0", SLF4J))
STREAMS = Jars(f"streams-{VERSION}", (f"org.apache.kafka:kafka-streams:{VERSION}", SLF4J))
MIRROR = Jars(f"connect-mirror-{VERSION}", (f"org.apache.kafka:connect-mirror:{VERSION}", SLF4J))
CONNECT_FILE = Jars(f"connect-file-{VERSION}", (f"org.apache.kafka:connect-file:{VERSION}",))
SOURCES = Path(__file__).parent / "java"
# as kafka-server-start.sh and kafka-run-class.sh of 3.9 start a broker
BROKER_JAVA = (
    "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
)  # fmt: skip
QUICK_START = "-XX:TieredStopAtLevel=1"
SMALL_BROKER_JAVA = ("-Xmx384m", "-Xms128m", "-XX:+UseSerialGC", "-XX:-UsePerfData", QUICK_START)
TOOL_JAVA = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:-UsePerfData", QUICK_START)
CLASSES = "classes.jsa"
LOGGING = """\
log4j.rootLogger=WARN, out
log4j.logger.kafka.server.KafkaServer=INFO
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.target=System.err
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
"""


def _pom_xml(artifacts: Sequence[str]) -> str:
    """The Maven project that lists the jars."""
    dependencies = "".join(
        f"<dependency><groupId>{g}</groupId><artifactId>{a}</artifactId><version>{v}</version></dependency>"
        for g, a, v in (artifact.split(":") for artifact in artifacts)
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>klamm</groupId><artifactId>apache-kafka</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def fetch(jars: Jars = KAFKA) -> None:
    """Let Maven copy the jars, unless they exist. Raises RuntimeError if it fails."""
    with made_once(jars.directory) as partial:
        if partial is None:
            return
        pom = CACHE / f"{jars.name}.pom.xml"
        pom.write_text(_pom_xml(jars.artifacts))
        goal = ("dependency:copy-dependencies", f"-DoutputDirectory={partial}")
        quick_start = f"{os.environ.get('MAVEN_OPTS', '')} {QUICK_START} -XX:+UseSerialGC"
        run(f"fetch {jars.name} with Maven", ["mvn", "-q", "-B", "-f", str(pom), *goal], MAVEN_OPTS=quick_start)


@cached
def _logging() -> str:
    """The Java option that names the log4j configuration, which is written first."""
    path = CACHE / "log4j.properties"
    if not path.exists() or path.read_text() != LOGGING:
        CACHE.mkdir(parents=True, exist_ok=True)
        path.write_text(LOGGING)
    return f"-Dlog4j.configuration=file:{path}"


@cached
def why_missing(jars: Jars = KAFKA) -> str | None:
    """Why Apache Kafka's code cannot run here, in one sentence; None if it can. Fetches the jars first."""
    try:
        find_java()
    except NoJava as error:
        return str(error)
    if not jars.directory.is_dir() and shutil.which("mvn") is None:
        return f"{jars.name} is not in {CACHE}, and there is no Maven (mvn) to fetch it"
    fetch(jars)
    return None


def java(
    main: str, *arguments: str, options: Sequence[str] = TOOL_JAVA, classpath: Sequence[Path] = (KAFKA.directory,)
) -> list[str]:
    """The command line that runs a class of Apache Kafka's jars, or of `classpath`.

    A process that compiles little (as `TOOL_JAVA` says) also maps classes that were loaded before.
    """
    jars = [jar for directory in classpath for jar in sorted(directory.glob("*.jar"))]
    directories = [directory for directory in classpath if not any(directory.glob("*.jar"))]
    if QUICK_START in options and classpath[0] == KAFKA.directory and (archive := _loaded_classes()).exists():
        options = (*options, f"-XX:SharedArchiveFile={archive}")
    path = ":".join(map(str, [*jars, *directories]))
    return [find_java(), *options, _logging(), "-cp", path, main, *arguments]


@cached
def _loaded_classes() -> Path:
    """The file with the classes that a broker loads, written once: a broker starts in half of the processor time.

    Java ignores the file where it was not made by itself for the same jars. There is no file where Java wrote none.
    """
    release = Path(find_java()).resolve().parents[1] / "release"
    digest = hashlib.sha256(release.read_bytes() if release.exists() else b"").hexdigest()[:12]
    directory = CACHE / "loaded-classes" / f"{VERSION}-{digest}"
    with made_once(directory) as partial, TemporaryDirectory() as scratch:
        if partial is not None:
            _record_classes(Path(scratch), partial / CLASSES)
    return directory / CLASSES


def _record_classes(scratch: Path, path: Path) -> None:
    """Run a broker until it has started; when it ends it writes the classes that it has loaded, if this Java can.

    Its options are without `QUICK_START`: with it, `java` would wait for the classes that are recorded here.
    """
    zookeeper = server(scratch / "zookeeper")
    options = ("-Xmx384m", "-XX:+UseSerialGC", f"-XX:ArchiveClassesAtExit={path}")
    node = NodeProcess(
        1,
        free_port(),
        str(scratch / "node"),
        {"zookeeper.connect": zookeeper.connect_string},
        lambda properties: java("kafka.Kafka", properties, options=options),
    )
    zookeeper.start()
    try:
        node.start()
        wait_until_started(node)
        node.stop(60)
        if not path.exists():
            warnings.warn(f"brokers start slowly: Java wrote no class archive. {node.exit_report()}", stacklevel=2)
    finally:
        node.kill()
        zookeeper.kill()


def compiled(source: str, jars: Jars) -> Path:
    """The directory with the classes of a program in `tests/support/java`, compiled against these jars once."""
    path = SOURCES / f"{source}.java"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    directory = CACHE / f"{source}-{jars.name}-{digest}"
    with made_once(directory) as partial:
        if partial is not None:
            compiler = Path(find_java()).resolve().with_name("javac")
            quick_start = (f"-J{QUICK_START}", "-J-XX:+UseSerialGC")
            options = ("-nowarn", "-cp", f"{jars.directory}/*", "-d", str(partial))
            command = [str(compiler), *quick_start, *options, str(path)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
    return directory


def program(source: str, jars: Jars, *arguments: str, options: Sequence[str] = TOOL_JAVA) -> list[str]:
    """The command line of a program in `tests/support/java`, with these jars."""
    return java(source, *arguments, options=options, classpath=(jars.directory, compiled(source, jars)))


def broker(options: Sequence[str] = SMALL_BROKER_JAVA) -> Callable[[str], Sequence[str]]:
    """The command of an Apache Kafka node, for `NodeProcess` and `Cluster`.

    It waits for ZooKeeper, which is started at the same time; by default it ends after one session timeout.
    """
    patience = ("--override", "zookeeper.connection.timeout.ms=60000")
    return lambda properties_path: java("kafka.Kafka", properties_path, *patience, options=options)


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


def run_alone(main: str, *arguments: str, timeout_s: float = 120) -> subprocess.CompletedProcess[bytes]:
    """Run one of its tools in a Java process of its own, for output that comes while the process ends.

    `kafka_tools` runs all others; the caller checks status and output.
    """
    return subprocess.run(java(main, *arguments), input=b"", capture_output=True, timeout=timeout_s, check=False)
