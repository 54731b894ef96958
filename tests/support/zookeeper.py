"""Real ZooKeeper servers for tests: small and quick to start, without logging and disk syncs.

Java maps classes that an earlier server has loaded: `spawn_zookeeper` stands for `klamm.embedded.zookeeper.spawn`.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache as cached
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.support import cache
from tests.support.cache import made_once

from klamm.embedded import zookeeper as embedded
from klamm.embedded.zookeeper import QUICK, Peer, ServerOptions, ZooKeeperServer
from klamm.runtime.ports import free_port, free_ports
from klamm.runtime.processes import Child, spawn, ticks

TICK_MS = QUICK.tick_ms
WRITE_CLASSES: Final = "-XX:ArchiveClassesAtExit="
PATIENT: Final = replace(QUICK, init_limit_ticks=50, sync_limit_ticks=25)
"""For ensembles: servers wait 5 s for each other, so that a busy machine causes no election."""


def server(directory: Path, options: ServerOptions = QUICK) -> ZooKeeperServer:
    """A ZooKeeper server that is not started; session timeouts from 0.4 to 60 s."""
    return ZooKeeperServer(str(directory), free_port(), options)


def map_loaded_classes() -> None:
    """Let all servers that this process starts map the archive of their classes."""
    embedded.spawn = spawn_zookeeper  # type: ignore[assignment, attr-defined]


def spawn_zookeeper(name: str, command: Sequence[str], log_path: str) -> Child:
    """Start a server with the archive of its classes, unless it is the one that writes it."""
    java, *options = command
    if not any(option.startswith(WRITE_CLASSES) for option in options):
        archive = class_archive(java, options[options.index("-cp") + 1])
        # without performance data, which no test reads, an idle server wakes up half as often
        options = ["-XX:-UsePerfData", *options]
        options = [f"-XX:SharedArchiveFile={archive}", *options] if archive.exists() else options
    return spawn(name, [java, *options], log_path)


@cached
def class_archive(java: str, classpath: str) -> Path:
    """The file with the classes that a server loads, written once for a Java and its jars, if this Java can."""
    release = Path(java).resolve().parents[1] / "release"
    made_for = (release.read_bytes() if release.exists() else b"") + classpath.encode()
    directory = cache.CACHE / "zookeeper" / hashlib.sha256(made_for).hexdigest()[:12]
    with made_once(directory) as partial, TemporaryDirectory() as scratch:
        if partial is not None:
            path = partial / "classes.jsa"
            java_options = ("-XX:+IgnoreUnrecognizedVMOptions", f"{WRITE_CLASSES}{path}")
            options = replace(QUICK, verbose="log4j" in classpath, java_options=java_options)
            recorded = server(Path(scratch), options)
            recorded.start()
            recorded.stop()
    return directory / "classes.jsa"


class Ensemble:
    """Several servers with a leader; `connect_string` has all of them."""

    def __init__(self, directory: Path, size: int = 3, options: ServerOptions = PATIENT) -> None:
        ports = free_ports(3 * size)
        peers = [Peer(i + 1, ports[3 * i + 1], ports[3 * i + 2]) for i in range(size)]
        self.servers = [
            ZooKeeperServer(str(directory / f"zookeeper-{p.id}"), ports[3 * i], options, my_id=p.id, peers=peers)
            for i, p in enumerate(peers)
        ]

    @property
    def connect_string(self) -> str:
        return ",".join(s.connect_string for s in self.servers)

    @property
    def leader(self) -> ZooKeeperServer:
        """The server that leads, once all that run have a role."""
        [leader] = self._in_role("leader")
        return leader

    @property
    def followers(self) -> list[ZooKeeperServer]:
        return self._in_role("follower")

    def _in_role(self, role: str) -> list[ZooKeeperServer]:
        """The servers in this role, once each one that runs has a role: some elect, or answer late when busy."""
        running = [s for s in self.servers if s.is_running and not s.is_paused]
        for _ in ticks(60):
            modes = [s.mode for s in running]
            if modes.count("leader") == 1 and None not in modes:
                return [s for s, mode in zip(running, modes, strict=True) if mode == role]
        raise AssertionError(f"the servers have no leader: {modes}")

    def start(self) -> None:
        for each in self.servers:
            each.start(wait=False)
        for each in self.servers:
            each.wait_until_serving()

    def kill(self) -> None:
        for each in self.servers:
            each.kill()
