"""A ZooKeeper server as a child process. Its jars come with the installed pyspark package."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from posixpath import abspath, join
from typing import Final, NamedTuple

from klamm.embedded.machine import LOCAL, Machine
from klamm.model.errors import KlammError
from klamm.runtime.disk import Disk, RealDisk
from klamm.runtime.java import find_java, package_folder
from klamm.runtime.ports import ask, is_listening
from klamm.runtime.processes import Child, spawn, ticks
from klamm.runtime.small_files import create_directory

STARTUP_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 10.0
_NEEDED_JARS: Final = (
    "zookeeper", "slf4j-api", "netty-", "metrics-core", "snappy-java", "commons-cli", "commons-io",
    "log4j-api", "log4j-core", "log4j-slf4j2-impl",
)  # fmt: skip
_LOGGING: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
"""


class ZooKeeperUnavailable(KlammError):
    pass


class Peer(NamedTuple):
    """A `server.N=` entry of an ensemble."""

    id: int
    quorum_port: int
    election_port: int


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Settings that tests change."""

    tick_ms: int = 2_000
    min_session_ms: int = 2_000
    max_session_ms: int = 60_000
    init_limit_ticks: int = 10  # for a follower to connect to its leader and copy its znodes
    sync_limit_ticks: int = 5  # without a sign of life, until leader and follower leave each other
    heap_mb: int = 256
    sync_to_disk: bool = True  # False: a crash of the machine may lose znodes
    verbose: bool = True  # False: no log4j, which is most of the start-up time
    java_options: tuple[str, ...] = field(default=())


QUICK: Final = ServerOptions(tick_ms=200, min_session_ms=400, max_session_ms=60_000, sync_to_disk=False, verbose=False)
"""For tests: a quick start, session timeouts from 0.4 s, neither logs nor disk syncs."""


class ZooKeeperServer:
    """One server with a data directory. `machine` may be changed while it does not run, if it has no peers."""

    def __init__(
        self,
        directory: str,
        port: int,
        options: ServerOptions | None = None,
        *,
        my_id: int = 0,
        peers: Sequence[Peer] = (),
        disk: Disk | None = None,
    ) -> None:
        self.directory = abspath(directory)
        self.port = port
        self.machine: Machine = LOCAL
        self._options = options or ServerOptions()
        self._my_id = my_id
        self._peers = tuple(peers)
        self._disk = disk or RealDisk()
        self._child: Child | None = None

    @property
    def connect_string(self) -> str:
        """Host and port of the server, as clients are given them."""
        return f"{self.machine.host}:{self.port}"

    @property
    def child(self) -> Child | None:
        """The last process of the server; None before the first start."""
        return self._child

    @property
    def is_running(self) -> bool:
        """Whether the server's process runs."""
        return self._child is not None and self._child.is_running

    @property
    def is_paused(self) -> bool:
        """Whether the server's process runs and is stopped by SIGSTOP."""
        return self._child is not None and self._child.is_running and self._child.is_paused

    def start(self, *, wait: bool = True) -> None:
        """Start the server, and with `wait` wait until it answers. Raises NoJava, ZooKeeperUnavailable."""
        assert not self.is_running, "this server is already running"
        if is_listening(self.machine.host, self.port):
            raise ZooKeeperUnavailable(
                f"Cannot start ZooKeeper: port {self.port} is in use. Stop the process that uses it, or change "
                "the port."
            )
        java, jars = find_java(), find_jars(self._disk, with_log4j=self._options.verbose)
        self._write_configuration()
        main = "org.apache.zookeeper.server." + ("quorum.QuorumPeerMain" if self._peers else "ZooKeeperServerMain")
        command = [java, *self._java_options(), "-cp", ":".join(jars), main, join(self.directory, "zoo.cfg")]
        self._child = spawn("zookeeper", [*self.machine.launcher, *command], join(self.directory, "zookeeper.log"))
        if wait:
            self.wait_until_serving()

    def wait_until_serving(self, timeout_s: float = STARTUP_TIMEOUT_S) -> None:
        """Wait until the server answers requests.

        Raises ZooKeeperUnavailable with the last lines of its log when it ends, or does not answer in time.
        """
        assert self._child is not None
        for _ in ticks(timeout_s):
            if self.mode:
                return
            if not self._child.is_running:
                why = f"ended with status {self._child.exit_status}"
                break
        else:
            why = f"does not answer after {timeout_s:g} s"
        self.stop()
        raise ZooKeeperUnavailable(
            f"ZooKeeper on port {self.port} {why}. Last lines of {self._child.log_path}:\n{self._child.log_tail()}"
        )

    @property
    def mode(self) -> str | None:
        """The role of the server: `standalone`, `leader` or `follower`; None when it does not answer."""
        for line in ask(self.machine.host, self.port, b"srvr").decode(errors="replace").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ")
        return None

    def stop(self) -> None:
        """Send SIGTERM and wait; the server is killed when it does not end in time."""
        if self._child is not None:
            self._child.stop(STOP_TIMEOUT_S)

    def restart(self) -> None:
        """Stop the server if it runs, start it, and wait until it answers. Raises NoJava, ZooKeeperUnavailable."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """Send SIGKILL to the server and wait until it has ended."""
        if self._child is not None:
            self._child.kill()

    def pause(self) -> None:
        """Send SIGSTOP: connections stay open, requests are not answered."""
        if self._child is not None:
            self._child.pause()

    def resume(self) -> None:
        """Let a stopped process continue (SIGCONT)."""
        if self._child is not None:
            self._child.resume()

    def _java_options(self) -> list[str]:
        """Return the arguments of the Java process: memory, system properties and the caller's options."""
        options = self._options
        return [
            f"-Xmx{options.heap_mb}m",
            "-Xms32m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
            "-Djava.net.preferIPv4Stack=true",
            f"-Dzookeeper.forceSync={'yes' if options.sync_to_disk else 'no'}",
            "-Dzookeeper.preAllocSize=4096",
            "-Dzookeeper.admin.enableServer=false",
            f"-Dlog4j2.configurationFile={join(self.directory, 'log4j2.properties')}",
            *options.java_options,
        ]

    def _write_configuration(self) -> None:
        """Write the configuration files of the server into its directory."""
        options = self._options
        lines = [
            f"dataDir={join(self.directory, 'data')}",
            f"clientPort={self.port}",
            f"clientPortAddress={self.machine.host}",
            f"tickTime={options.tick_ms}",
            f"minSessionTimeout={options.min_session_ms}",
            f"maxSessionTimeout={options.max_session_ms}",
            "maxClientCnxns=0",
            "4lw.commands.whitelist=*",
            "admin.enableServer=false",
            "autopurge.purgeInterval=1",
            f"initLimit={options.init_limit_ticks}",
            f"syncLimit={options.sync_limit_ticks}",
            *(f"server.{p.id}=127.0.0.1:{p.quorum_port}:{p.election_port}" for p in self._peers),
        ]
        create_directory(self._disk, join(self.directory, "data"))
        self._disk.write_atomically(join(self.directory, "zoo.cfg"), "\n".join([*lines, ""]).encode())
        self._disk.write_atomically(join(self.directory, "log4j2.properties"), _LOGGING.encode())
        if self._peers:
            self._disk.write_atomically(join(self.directory, "data", "myid"), str(self._my_id).encode())


def find_jars(disk: Disk, *, with_log4j: bool = True) -> list[str]:
    """The jars in the installed pyspark that ZooKeeper needs. Raises ZooKeeperUnavailable."""
    remedy = 'Run: pip install "klamm[embedded]", or use a running ensemble with --zookeeper HOST:PORT.'
    package = package_folder("pyspark")
    if package is None:
        raise ZooKeeperUnavailable(
            f"Cannot start ZooKeeper: the package pyspark, which contains its jars, is not installed. {remedy}"
        )
    folder = join(package, "jars")
    names = disk.list_directory(folder) if disk.is_directory(folder) else []
    needed = [n for n in names if n.startswith(_NEEDED_JARS) and (with_log4j or not n.startswith("log4j"))]
    if not any(name.startswith("zookeeper-3") for name in needed):
        raise ZooKeeperUnavailable(f"Cannot start ZooKeeper: there is no zookeeper jar in {folder}. {remedy}")
    return [join(folder, name) for name in needed]
