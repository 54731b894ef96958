"""What may befall a cluster. Each fault is a function; to add one, write it here and put it into `FAULTS`.

Half of them are aimed at whoever is controller, since that is where it hurts.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from klamm.runtime.randomness import Dice
from klamm.sim.brokers import Node
from klamm.sim.loop import SimulatedLoop
from klamm.sim.network import SimulatedNetwork
from klamm.sim.zookeeper.ensemble import Ensemble, Loss
from klamm.sim.zookeeper.server import Server
from klamm.zk.operations import Delete, Op
from klamm.zk.znodes import CONTROLLER

_LONGEST_S: Final = 20.0
_LAGS: Final = (0.01, 0.1, 1.0)
_STEPS: Final = (0.0005, 0.003)


class Stage(Protocol):
    """What faults need of a cluster."""

    loop: SimulatedLoop
    network: SimulatedNetwork
    ensemble: Ensemble
    servers: list[Server]
    nodes: dict[int, Node]
    dice: Dice

    def start(self, number: int) -> None: ...
    def tell(self, what: str) -> None: ...


Fault = Callable[[Stage], None]


def kill(stage: Stage) -> None:
    """As SIGKILL; it starts again at once, soon, or after its session has ended."""
    number, node = _victim(stage)
    if not node.host.is_alive:
        return
    back_s = stage.dice.choice((0.0, 0.1, 2.0, _LONGEST_S)) * stage.dice.random()
    stage.tell(f"node {number} is killed, back after {back_s:.3f} s")
    stage.loop.kill(node.host)
    stage.loop.call_on(stage.loop.main_host, stage.loop.time() + back_s, _restart, stage, number)


def power_loss(stage: Stage) -> None:
    """The machine falls silent; back later, with another process."""
    number, node = _victim(stage)
    if not node.host.is_alive:
        return
    back_s = _LONGEST_S * stage.dice.random()
    stage.tell(f"node {number} loses power, back after {back_s:.3f} s")
    stage.network.power_off(node.host)
    stage.loop.call_on(stage.loop.main_host, stage.loop.time() + back_s, _restart, stage, number)


def pause(stage: Stage) -> None:
    """As SIGSTOP, often for longer than the session; everything arrives at once afterwards."""
    number, node = _victim(stage)
    if not node.host.is_alive or node.host.is_paused:
        return
    for_s = _LONGEST_S * stage.dice.random() ** 2
    stage.tell(f"node {number} is paused for {for_s:.3f} s")
    stage.loop.pause(node.host)
    stage.loop.call_on(stage.loop.main_host, stage.loop.time() + for_s, stage.loop.resume, node.host)


def slow(stage: Stage) -> None:
    """Every callback takes long for a while."""
    number, node = _victim(stage)
    step_s = stage.dice.choice(_STEPS)
    stage.tell(f"node {number} takes {step_s} s for each step")
    stage.loop.slow(node.host, step_s)
    stage.loop.call_on(stage.loop.main_host, stage.loop.time() + 5, stage.loop.slow, node.host, 0.0)


def expire(stage: Stage) -> None:
    """ZooKeeper ends a session that is alive."""
    number, node = _victim(stage)
    session = node.session
    if session:
        stage.tell(f"the session of node {number} is ended")
        stage.ensemble.end_session(session)


def reset(stage: Stage) -> None:
    """Connections of a node break: to ZooKeeper, or to another node."""
    number, _ = _victim(stage)
    other = _other(stage, number)
    stage.tell(f"connections between node {number} and {other} are reset")
    stage.network.reset(f"node-{number}", other)


def cut(stage: Stage) -> None:
    """A link swallows what is sent, in one direction or both, for a while."""
    number, _ = _victim(stage)
    name, other = f"node-{number}", _other(stage, number)
    ways = stage.dice.choice((((name, other),), ((other, name),), ((name, other), (other, name))))
    for_s = _LONGEST_S * stage.dice.random()
    for source, target in ways:
        stage.tell(f"{source} > {target} is cut for {for_s:.3f} s")
        stage.network.cut(source, target)
        stage.loop.call_on(stage.loop.main_host, stage.loop.time() + for_s, stage.network.mend, source, target)


def lose_answer(stage: Stage) -> None:
    """The connection to ZooKeeper breaks around the next write of a node; the write happened, or did not."""
    number, node = _victim(stage)
    session, loss = node.session, stage.dice.choice(tuple(Loss))
    stage.tell(f"the next write of node {number} loses its connection {loss.value}")

    def around(writer: int, ops: Sequence[Op]) -> Loss | None:
        if writer != session:
            return None
        stage.ensemble.on_write = lambda writer, ops: None
        stage.tell(f"node {number} loses its connection {loss.value} writing {[op.path for op in ops]}")
        return loss

    stage.ensemble.on_write = around


def lag(stage: Stage) -> None:
    """A ZooKeeper server falls behind."""
    index = stage.dice.randrange(len(stage.servers))
    lag_s, dice = stage.dice.choice(_LAGS), stage.dice
    stage.tell(f"zk-{index + 1} lags by up to {lag_s} s")
    stage.servers[index].lag_s = lambda: lag_s * dice.random()


def move(stage: Stage) -> None:
    """An operator deletes `/controller`, often while its holder is frozen: the session lives, the office is over."""
    acting = [n for n in stage.nodes.values() if n.host.is_alive and n.broker.controller.is_active]
    if acting and stage.dice.random() < 0.7 and not acting[0].host.is_paused:
        host, for_s = acting[0].host, 2 * stage.dice.random()
        stage.tell(f"{host!r} is paused for {for_s:.3f} s, and /controller deleted")
        stage.loop.pause(host)
        stage.loop.call_on(stage.loop.main_host, stage.loop.time() + for_s, stage.loop.resume, host)
    stage.tell("/controller is deleted")
    stage.ensemble.write(0, [Delete(CONTROLLER)], ())


FAULTS: Final[dict[str, Fault]] = {
    "kill": kill,
    "power loss": power_loss,
    "pause": pause,
    "slow": slow,
    "expire": expire,
    "reset": reset,
    "cut": cut,
    "lose answer": lose_answer,
    "lag": lag,
    "move": move,
}


def heal(stage: Stage) -> None:
    """Everything runs, reaches everything, and is quick."""
    stage.network.mend_all()
    stage.ensemble.on_write = lambda writer, ops: None
    for server in stage.servers:
        server.lag_s = lambda: 0.0
    for number, node in list(stage.nodes.items()):
        stage.loop.slow(node.host, 0.0)
        if node.host.is_alive:
            stage.loop.resume(node.host)
        else:
            _restart(stage, number)


def _restart(stage: Stage, number: int) -> None:
    if not stage.nodes[number].host.is_alive:
        stage.start(number)


def _victim(stage: Stage) -> tuple[int, Node]:
    acting = [n for n, node in stage.nodes.items() if node.host.is_alive and node.broker.controller.is_active]
    number = stage.dice.choice(acting if acting and stage.dice.random() < 0.5 else list(stage.nodes))
    return number, stage.nodes[number]


def _other(stage: Stage, number: int) -> str:
    others = [f"node-{n}" for n in stage.nodes if n != number]
    return stage.dice.choice([*others, *(f"zk-{i + 1}" for i in range(len(stage.servers)))])
