"""At whom a fault is aimed. Whoever plays a part gets hit more often than chance would have it: there it hurts."""

from collections.abc import Callable, Iterable
from typing import Final

from klamm.sim.brokers import Node
from klamm.sim.stage import Draw, Stage

Role = Callable[[Stage], Iterable[int]]


def anyone(stage: Stage) -> Iterable[int]:
    return stage.nodes


def controllers(stage: Stage) -> Iterable[int]:
    return (n for n, node in stage.nodes.items() if node.host.is_alive and node.broker.controller.is_active)


def last_in_sync(stage: Stage) -> Iterable[int]:
    """Without them a partition has nobody left."""
    return (v[-1].isr[0] for v in stage.history.states.values() if len(v[-1].isr) == 1)


def leaders(stage: Stage) -> Iterable[int]:
    """Brokers that lead something; where all is balanced, as the preferred ones."""
    return (v[-1].leader for v in stage.history.states.values() if v[-1].has_leader)


def askers(stage: Stage) -> Iterable[int]:
    """Leaders that wait for an answer to AlterPartition."""
    for number, node in stage.nodes.items():
        if any(r.proposal is not None for r in node.broker.replicas.hosted.values()):
            yield number


ROLES: Final[dict[str, Role]] = {
    "anyone": anyone,
    "controller": controllers,
    "last in sync": last_in_sync,
    "leader": leaders,
    "asker": askers,
}
_WEIGHTS: Final = (4, 5, 1, 1, 1)


def victim(stage: Stage, draw: Draw) -> tuple[int, Node]:
    """Anyone where nobody plays the part."""
    role = draw("role", lambda dice: dice.choices(tuple(ROLES), _WEIGHTS)[0])
    candidates = sorted({n for n in ROLES[role](stage) if n in stage.nodes}) or list(stage.nodes)
    number = draw("node", lambda dice: dice.choice(candidates))
    return number, stage.nodes[number]


def other_host(stage: Stage, draw: Draw, number: int) -> str:
    """Another node, or a ZooKeeper server."""
    others = [f"node-{n}" for n in stage.nodes if n != number]
    return draw("other", lambda dice: dice.choice([*others, *server_names(stage)]))


def node_names(stage: Stage) -> list[str]:
    return [f"node-{n}" for n in stage.nodes]


def server_names(stage: Stage) -> list[str]:
    return [f"zk-{n + 1}" for n in range(len(stage.servers))]
