"""Links that swallow, break, crawl and tear: single ones, and many by a plan."""

from collections.abc import Callable, Iterable
from typing import Final

from klamm.sim.faults.aim import node_names, other_host, server_names, victim
from klamm.sim.stage import Draw, Stage, later

_LONGEST_S: Final = 20.0
_PAUSE_S: Final = 0.5
_LEAST_BYTES_PER_S: Final = 20e3
"""With less, whoever makes a run smaller finds links on which something is under way for ever."""
Ways = Iterable[tuple[str, str]]


def reset(stage: Stage, draw: Draw) -> None:
    """Connections of a node break: to ZooKeeper, or to another node."""
    number, _ = victim(stage, draw)
    other = other_host(stage, draw, number)
    stage.tell(f"connections between node {number} and {other} are reset")
    stage.network.reset(f"node-{number}", other)


def half_open(stage: Stage, draw: Draw) -> None:
    """A node's connections break and the other side does not hear of it."""
    number, _ = victim(stage, draw)
    other = other_host(stage, draw, number)
    ends = [f"node-{number}", other]
    if draw("other way", lambda dice: dice.random() < 0.5):
        ends.reverse()
    stage.tell(f"connections between {ends[0]} and {ends[1]} break, {ends[1]} does not know")
    stage.network.half_open(ends[0], ends[1])


def tear(stage: Stage, draw: Draw) -> None:
    """The next message over a link arrives in part, then the connection breaks."""
    number, _ = victim(stage, draw)
    other, name = other_host(stage, draw, number), f"node-{number}"
    source, target = (name, other) if draw("out", lambda dice: dice.random() < 0.5) else (other, name)
    kept = draw("kept", lambda dice: dice.random())
    stage.tell(f"the next message {source} > {target} is torn")
    stage.network.link(source, target).torn_after = kept


def cut(stage: Stage, draw: Draw) -> None:
    """A link swallows what is sent, in one direction or both, for a while."""
    number, _ = victim(stage, draw)
    name, other = f"node-{number}", other_host(stage, draw, number)
    ways = {"to": [(name, other)], "from": [(other, name)], "both": [(name, other), (other, name)]}
    chosen = ways[draw("way", lambda dice: dice.choice(tuple(ways)))]
    cut_for(stage, chosen, draw("for_s", lambda dice: _LONGEST_S * dice.random()))


def halves(stage: Stage, draw: Draw) -> None:
    """Everybody is on one of two sides that do not reach each other; ZooKeeper's majority is on one of them."""
    everybody = [*node_names(stage), *server_names(stage)]
    one = draw("side", lambda dice: [name for name in everybody if dice.random() < 0.5])
    other = [name for name in everybody if name not in one]
    for_s = draw("for_s", lambda dice: _LONGEST_S * dice.random())
    cut_for(stage, [way for a in one for b in other for way in ((a, b), (b, a))], for_s)
    for side in (one, other):
        servers = [stage.servers[n] for n, name in enumerate(server_names(stage)) if name in side]
        if 2 * len(servers) <= len(stage.servers):
            for server in servers:
                server.cut_off()
                later(stage, for_s, server.join_again)


def only_zookeeper(stage: Stage, draw: Draw) -> None:
    """A node reaches ZooKeeper and no other node."""
    _isolate(stage, draw, lambda name: [n for n in node_names(stage) if n != name])


def only_brokers(stage: Stage, draw: Draw) -> None:
    """A node reaches the other nodes and not ZooKeeper."""
    _isolate(stage, draw, lambda name: server_names(stage))


def _isolate(stage: Stage, draw: Draw, from_whom: Callable[[str], list[str]]) -> None:
    number, _ = victim(stage, draw)
    name = f"node-{number}"
    others = from_whom(name)
    ways = {
        "to": [(name, o) for o in others],
        "from": [(o, name) for o in others],
        "both": [way for o in others for way in ((name, o), (o, name))],
    }
    chosen = ways[draw("way", lambda dice: dice.choice(("to", "from", "both", "both")))]
    cut_for(stage, chosen, draw("for_s", lambda dice: _LONGEST_S * dice.random()))


def swizzle(stage: Stage, draw: Draw) -> None:
    """A node's links are cut one by one, and mended in another order."""
    number, _ = victim(stage, draw)
    name = f"node-{number}"
    others = [o for o in (*node_names(stage), *server_names(stage)) if o != name]
    cuts = draw("cuts", lambda dice: dice.sample(others, len(others)))
    mends = draw("mends", lambda dice: dice.sample(others, len(others)))
    stage.tell(f"links of {name} are cut in the order {cuts}, mended in the order {mends}")
    for turn, other in enumerate(cuts):
        later(stage, turn * _PAUSE_S, _cut_unless_healed, stage, [(name, other), (other, name)])
    for turn, other in enumerate(mends, len(cuts)):
        for way in ((name, other), (other, name)):
            later(stage, turn * _PAUSE_S, stage.network.mend, *way)


def poor_link(stage: Stage, draw: Draw) -> None:
    """What a node sends, or gets, takes long, now longer, now shorter, and there is room for little."""
    number, _ = victim(stage, draw)
    latency_s = draw("latency_s", lambda dice: dice.choice((0.02, 0.1, 0.5)))
    bytes_per_s = draw("bytes_per_s", lambda dice: dice.choice((125e6, 400e3, _LEAST_BYTES_PER_S)))
    bytes_per_s = max(bytes_per_s, _LEAST_BYTES_PER_S)
    for_s = draw("for_s", lambda dice: _LONGEST_S * dice.random())
    name = f"node-{number}"
    stage.tell(f"links of {name} have a latency of {latency_s} s and room for {bytes_per_s} bytes/s, for {for_s} s")
    for other in (*node_names(stage), *server_names(stage)):
        for way in ((name, other), (other, name)):
            link = stage.network.link(*way)
            link.latency_s = link.jitter_s = latency_s
            link.bytes_per_s = bytes_per_s
            later(stage, for_s, stage.network.restore, *way)


def cut_for(stage: Stage, ways: Ways, for_s: float) -> None:
    for source, target in ways:
        stage.tell(f"{source} > {target} is cut for {for_s} s")
        stage.network.cut(source, target)
        later(stage, for_s, stage.network.mend, source, target)


def _cut_unless_healed(stage: Stage, ways: Ways) -> None:
    if not stage.is_healed:
        for source, target in ways:
            stage.network.cut(source, target)
