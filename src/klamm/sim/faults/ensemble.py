"""Faults of ZooKeeper servers: lag, stop, restart, and partitions between servers."""

from typing import Final

from klamm.runtime.randomness import Rng
from klamm.sim.actions import Draw, ScheduledCluster, call_after

_LAG_CHOICES_S: Final = (0.01, 0.1, 1.0)
_MAX_S: Final = 8.0


def lag_behind(cluster: ScheduledCluster, draw: Draw) -> None:
    """A ZooKeeper server falls behind: its reads are stale."""
    index = draw("server", lambda rng: rng.randrange(len(cluster.servers)))
    lag_s = draw("lag_s", lambda rng: rng.choice(_LAG_CHOICES_S))
    rng = Rng(draw("jitter", lambda rng: rng.randrange(1 << 16)))
    cluster.log(f"zk-{index + 1} lags by up to {lag_s} s")
    cluster.servers[index].lag_s = lambda: lag_s * rng.random()


def switch_server(cluster: ScheduledCluster, draw: Draw) -> None:
    """A server drops its clients while it or another lags: sessions move to a server with an older tree."""
    lag_behind(cluster, draw)
    index = draw("drops", lambda rng: rng.randrange(len(cluster.servers)))
    cluster.log(f"zk-{index + 1} closes its client connections")
    cluster.servers[index].disconnect_clients()


def restart_server(cluster: ScheduledCluster, draw: Draw) -> None:
    """A ZooKeeper server stops and starts again; without a leader or quorum, writes wait meanwhile."""
    _stop(cluster, draw, 1)


def lose_quorum(cluster: ScheduledCluster, draw: Draw) -> None:
    """Enough ZooKeeper servers stop that no quorum is left; later they start again."""
    _stop(cluster, draw, (len(cluster.servers) + 1) // 2)


def restart_ensemble(cluster: ScheduledCluster, draw: Draw) -> None:
    """All servers stop and start again together: sessions survive, connections and watches do not."""
    _stop(cluster, draw, len(cluster.servers))


def _stop(cluster: ScheduledCluster, draw: Draw, count: int) -> None:
    """Stop this many servers, and start them again after a random time."""
    for_s = draw("for_s", lambda rng: rng.choice((0.1, 1.0, _MAX_S)) * rng.random())
    numbers = draw("servers", lambda rng: sorted(rng.sample(range(len(cluster.servers)), count)))
    for number in numbers:
        server = cluster.servers[number]
        if server.is_up:
            cluster.log(f"zk-{number + 1} stops and starts again after {for_s} s")
            server.stop()
            call_after(cluster, for_s, server.start)


def partition_server(cluster: ScheduledCluster, draw: Draw) -> None:
    """A server loses its links to the other servers, while clients still reach all of them."""
    number = draw("server", lambda rng: rng.randrange(len(cluster.servers)))
    for_s = draw("for_s", lambda rng: _MAX_S * rng.random())
    server = cluster.servers[number]
    if server.is_up and not server.is_cut_off:
        cluster.log(f"zk-{number + 1} is cut off from the others for {for_s} s")
        server.cut_off()
        call_after(cluster, for_s, server.reconnect)
