"""Faults of network links: cut, reset, half-open, slow, truncated messages; of one link or of many."""

from collections.abc import Callable, Iterable
from typing import Final

from klamm.sim.actions import Draw, ScheduledCluster, call_after
from klamm.sim.faults.aim import draw_node, draw_other_host, node_names, server_names

_MAX_S: Final = 20.0
_PAUSE_S: Final = 0.5
_LEAST_BYTES_PER_S: Final = 20e3
"""With less, whoever makes a run smaller finds links on which something is under way for ever."""
LinkDirections = Iterable[tuple[str, str]]


def reset(cluster: ScheduledCluster, draw: Draw) -> None:
    """Connections of a node break: to ZooKeeper, or to another node."""
    number, _ = draw_node(cluster, draw)
    other = draw_other_host(cluster, draw, number)
    cluster.log(f"connections between node {number} and {other} are reset")
    cluster.network.reset(f"node-{number}", other)


def half_open(cluster: ScheduledCluster, draw: Draw) -> None:
    """A node's connections break, and the other side is not notified."""
    number, _ = draw_node(cluster, draw)
    other = draw_other_host(cluster, draw, number)
    ends = [f"node-{number}", other]
    if draw("other way", lambda rng: rng.random() < 0.5):
        ends.reverse()
    cluster.log(f"connections between {ends[0]} and {ends[1]} break, and {ends[1]} does not notice")
    cluster.network.half_open(ends[0], ends[1])


def truncate_message(cluster: ScheduledCluster, draw: Draw) -> None:
    """The next message over a link arrives in part, then the connection breaks."""
    number, _ = draw_node(cluster, draw)
    other, name = draw_other_host(cluster, draw, number), f"node-{number}"
    source, target = (name, other) if draw("out", lambda rng: rng.random() < 0.5) else (other, name)
    kept = draw("kept", lambda rng: rng.random())
    cluster.log(f"the next message {source} > {target} is truncated")
    cluster.network.link(source, target).torn_after = kept


def cut_link(cluster: ScheduledCluster, draw: Draw) -> None:
    """A link holds back everything sent over it, in one direction or both, for a while."""
    number, _ = draw_node(cluster, draw)
    name, other = f"node-{number}", draw_other_host(cluster, draw, number)
    ways = {"to": [(name, other)], "from": [(other, name)], "both": [(name, other), (other, name)]}
    chosen = ways[draw("way", lambda rng: rng.choice(tuple(ways)))]
    cut_for(cluster, chosen, draw("for_s", lambda rng: _MAX_S * rng.random()))


def split_network(cluster: ScheduledCluster, draw: Draw) -> None:
    """All hosts are split into two halves that cannot reach each other; one has ZooKeeper's majority."""
    everybody = [*node_names(cluster), *server_names(cluster)]
    one = draw("side", lambda rng: [name for name in everybody if rng.random() < 0.5])
    other = [name for name in everybody if name not in one]
    for_s = draw("for_s", lambda rng: _MAX_S * rng.random())
    cut_for(cluster, [way for a in one for b in other for way in ((a, b), (b, a))], for_s)
    for side in (one, other):
        servers = [cluster.servers[n] for n, name in enumerate(server_names(cluster)) if name in side]
        if 2 * len(servers) <= len(cluster.servers):
            for server in servers:
                server.cut_off()
                call_after(cluster, for_s, server.reconnect)


def isolate_from_brokers(cluster: ScheduledCluster, draw: Draw) -> None:
    """A node reaches ZooKeeper and no other node."""
    _isolate(cluster, draw, lambda name: [n for n in node_names(cluster) if n != name])


def isolate_from_zookeeper(cluster: ScheduledCluster, draw: Draw) -> None:
    """A node reaches the other nodes and not ZooKeeper."""
    _isolate(cluster, draw, lambda name: server_names(cluster))


def _isolate(cluster: ScheduledCluster, draw: Draw, from_whom: Callable[[str], list[str]]) -> None:
    """Cut the links between a node and these hosts for a while, in one direction or both."""
    number, _ = draw_node(cluster, draw)
    name = f"node-{number}"
    others = from_whom(name)
    ways = {
        "to": [(name, o) for o in others],
        "from": [(o, name) for o in others],
        "both": [way for o in others for way in ((name, o), (o, name))],
    }
    chosen = ways[draw("way", lambda rng: rng.choice(("to", "from", "both", "both")))]
    cut_for(cluster, chosen, draw("for_s", lambda rng: _MAX_S * rng.random()))


def cut_links_one_by_one(cluster: ScheduledCluster, draw: Draw) -> None:
    """A node's links are cut one by one, and restored in another order."""
    number, _ = draw_node(cluster, draw)
    name = f"node-{number}"
    others = [o for o in (*node_names(cluster), *server_names(cluster)) if o != name]
    cuts = draw("cuts", lambda rng: rng.sample(others, len(others)))
    restored = draw("restored", lambda rng: rng.sample(others, len(others)))
    cluster.log(f"links of {name} are cut in the order {cuts}, restored in the order {restored}")
    for turn, other in enumerate(cuts):
        call_after(cluster, turn * _PAUSE_S, _cut_unless_healed, cluster, [(name, other), (other, name)])
    for turn, other in enumerate(restored, len(cuts)):
        for way in ((name, other), (other, name)):
            call_after(cluster, turn * _PAUSE_S, _end_cut_unless_healed, cluster, *way)


def poor_link(cluster: ScheduledCluster, draw: Draw) -> None:
    """A node's outgoing or incoming links get a high, varying latency and a low bandwidth."""
    number, _ = draw_node(cluster, draw)
    latency_s = draw("latency_s", lambda rng: rng.choice((0.02, 0.1, 0.5)))
    bytes_per_s = draw("bytes_per_s", lambda rng: rng.choice((125e6, 400e3, _LEAST_BYTES_PER_S)))
    bytes_per_s = max(bytes_per_s, _LEAST_BYTES_PER_S)
    for_s = draw("for_s", lambda rng: _MAX_S * rng.random())
    name = f"node-{number}"
    cluster.log(f"links of {name} have a latency of {latency_s} s and room for {bytes_per_s} bytes/s, for {for_s} s")
    for other in (*node_names(cluster), *server_names(cluster)):
        for way in ((name, other), (other, name)):
            link = cluster.network.link(*way)
            link.latency_s = link.jitter_s = latency_s
            link.bytes_per_s = bytes_per_s
            call_after(cluster, for_s, cluster.network.restore, *way)


def cut_for(cluster: ScheduledCluster, ways: LinkDirections, for_s: float) -> None:
    """Cut these directions of links, and restore them after this time."""
    for source, target in ways:
        cluster.log(f"{source} > {target} is cut for {for_s} s")
        cluster.network.cut(source, target)
        call_after(cluster, for_s, _end_cut_unless_healed, cluster, source, target)


def _cut_unless_healed(cluster: ScheduledCluster, ways: LinkDirections) -> None:
    """Cut these directions of links unless the cluster is healed."""
    if not cluster.is_healed:
        for source, target in ways:
            cluster.network.cut(source, target)


def _end_cut_unless_healed(cluster: ScheduledCluster, source: str, target: str) -> None:
    """Restore a link unless the cluster is healed: what is cut from then on stays cut."""
    if not cluster.is_healed:
        cluster.network.end_cut(source, target)
