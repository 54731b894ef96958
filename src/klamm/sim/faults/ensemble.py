"""ZooKeeper servers that lag, end, restart, or lose each other."""

from typing import Final

from klamm.runtime.randomness import Rng
from klamm.sim.actions import Draw, ScheduledCluster, later

_LAGS: Final = (0.01, 0.1, 1.0)
_MAX_S: Final = 8.0


def lag(cluster: ScheduledCluster, draw: Draw) -> None:
    """A ZooKeeper server falls behind: its reads are stale."""
    index = draw("server", lambda rng: rng.randrange(len(cluster.servers)))
    lag_s = draw("lag_s", lambda rng: rng.choice(_LAGS))
    rng = Rng(draw("jitter", lambda rng: rng.randrange(1 << 16)))
    cluster.log(f"zk-{index + 1} lags by up to {lag_s} s")
    cluster.servers[index].lag_s = lambda: lag_s * rng.random()


def switch_server(cluster: ScheduledCluster, draw: Draw) -> None:
    """A server drops its clients while it or another lags: sessions move to a server with an older tree."""
    lag(cluster, draw)
    index = draw("drops", lambda rng: rng.randrange(len(cluster.servers)))
    cluster.log(f"zk-{index + 1} drops its clients")
    cluster.servers[index].drop_all()


def restart_server(cluster: ScheduledCluster, draw: Draw) -> None:
    """One server ends and comes back; where it led, or is alone, nobody writes meanwhile."""
    _stop(cluster, draw, 1)


def lose_quorum(cluster: ScheduledCluster, draw: Draw) -> None:
    """So many servers stop that no quorum is left."""
    _stop(cluster, draw, (len(cluster.servers) + 1) // 2)


def restart_ensemble(cluster: ScheduledCluster, draw: Draw) -> None:
    """All servers stop and start again together: sessions survive, connections and watches do not."""
    _stop(cluster, draw, len(cluster.servers))


def _stop(cluster: ScheduledCluster, draw: Draw, count: int) -> None:
    for_s = draw("for_s", lambda rng: rng.choice((0.1, 1.0, _MAX_S)) * rng.random())
    numbers = draw("servers", lambda rng: sorted(rng.sample(range(len(cluster.servers)), count)))
    for number in numbers:
        server = cluster.servers[number]
        if server.is_up:
            cluster.log(f"zk-{number + 1} ends, back after {for_s} s")
            server.stop()
            later(cluster, for_s, server.start)


def cut_server_off(cluster: ScheduledCluster, draw: Draw) -> None:
    """A server loses its links to the other servers, while clients still reach all of them."""
    number = draw("server", lambda rng: rng.randrange(len(cluster.servers)))
    for_s = draw("for_s", lambda rng: _MAX_S * rng.random())
    server = cluster.servers[number]
    if server.is_up and not server.is_cut_off:
        cluster.log(f"zk-{number + 1} is cut off from the others for {for_s} s")
        server.cut_off()
        later(cluster, for_s, server.join_again)
