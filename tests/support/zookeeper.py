"""Real ZooKeeper servers for tests: small and quick to start, without logging and disk syncs."""

from dataclasses import replace
from pathlib import Path
from typing import Final

from klamm.embedded.zookeeper import QUICK, Peer, ServerOptions, ZooKeeperServer
from klamm.runtime.ports import free_port, free_ports

TICK_MS = QUICK.tick_ms
PATIENT: Final = replace(QUICK, init_limit_ticks=50, sync_limit_ticks=25)
"""For ensembles: servers wait 5 s for each other, so that a busy machine causes no election."""


def server(directory: Path, options: ServerOptions = QUICK) -> ZooKeeperServer:
    """A ZooKeeper server that is not started; session timeouts from 0.4 to 60 s."""
    return ZooKeeperServer(str(directory), free_port(), options)


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
        return next(s for s in self.servers if s.mode == "leader")

    @property
    def followers(self) -> list[ZooKeeperServer]:
        return [s for s in self.servers if s.mode == "follower"]

    def start(self) -> None:
        for each in self.servers:
            each.start(wait=False)
        for each in self.servers:
            each.wait_until_serving()

    def kill(self) -> None:
        for each in self.servers:
            each.kill()
