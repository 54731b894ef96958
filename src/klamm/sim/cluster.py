"""One simulated cluster for one seed: nodes and ZooKeeper, what befalls them, and what is checked meanwhile.

A schedule warms up, lets faults and work happen at random, heals everything, waits, and looks whether all is well.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from klamm.broker.replica_placement import place_replicas
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId
from klamm.model.topic_ids import new_topic_id
from klamm.runtime.randomness import Dice
from klamm.sim.brokers import Node, StubBroker
from klamm.sim.faults import FAULTS, heal
from klamm.sim.history import Event, History
from klamm.sim.invariants.table import at_rest, by_event
from klamm.sim.loop import SimulatedLoop
from klamm.sim.schedules import Policy
from klamm.sim.world import Universe
from klamm.sim.zookeeper.ensemble import Ensemble, EnsembleSettings
from klamm.sim.zookeeper.server import Server
from klamm.sim.zookeeper.tree import Transaction, Tree
from klamm.zk.client import ZooKeeper
from klamm.zk.errors import SessionExpired
from klamm.zk.operations import Op
from klamm.zk.store import Store

WARM_UP_S: Final = 15.0
CHAOS_S: Final = 75.0
REST_S: Final = 30.0
"""Healed and left alone for so long: sessions end, connections are made anew, requests are repeated."""
_TICK: Final = EnsembleSettings(tick_ms=500, min_session_ms=1_000)
_MOST_STEPS: Final = 3_000_000
_ASKED: Final = by_event()


class Violation(Exception):
    """An invariant does not hold; says which, and how."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a seed makes of a schedule."""

    seed: int
    policy: Policy
    nodes: int
    servers: int
    session_timeout_ms: int
    pause_s: float
    """Mean time between two faults."""
    faults: tuple[str, ...]

    @classmethod
    def of(cls, seed: int) -> "Options":
        dice = Dice(f"{seed}/options")
        chosen = tuple(name for name in FAULTS if dice.random() < 0.5)
        return cls(
            seed,
            dice.choice((Policy.FIFO, Policy.HOSTS, Policy.HOSTS, Policy.PRIORITIES)),
            dice.choice((3, 3, 3, 4, 5)),
            dice.choice((1, 1, 3)),
            dice.choice((3_000, 6_000)),
            dice.choice((1.0, 3.0, 8.0)),
            chosen or ("kill",),
        )


@dataclass
class SimulatedCluster:
    options: Options
    loop: SimulatedLoop
    history: History = field(default_factory=History)
    story: list[str] = field(default_factory=list)
    nodes: dict[int, Node] = field(default_factory=dict)
    servers: list[Server] = field(default_factory=list)
    checks: int = 0
    topics: int = 0

    def __post_init__(self) -> None:
        self.universe = Universe.of(self.loop)
        self.network = self.universe.network
        self.dice = Dice(f"{self.options.seed}/faults")
        self.workload = Dice(f"{self.options.seed}/workload")
        self.violation: str | None = None

    # ---- what invariants look at

    @property
    def tree(self) -> Tree:
        return self.ensemble.tree

    @property
    def running(self) -> list[StubBroker]:
        return [n.broker for n in self.nodes.values() if n.host.is_alive]

    # ---- the schedule

    async def run(self) -> None:
        """Raises Violation."""
        await self._build()
        await asyncio.sleep(WARM_UP_S)
        end = self.loop.time() + CHAOS_S
        while self.loop.time() < end:
            await asyncio.sleep(self.dice.expovariate(1 / self.options.pause_s))
            self._raise_violation()
            if self.workload.random() < 0.3:
                await self._create_topic()
            else:
                FAULTS[self.dice.choice(self.options.faults)](self)
        self.tell("everything is healed")
        heal(self)
        await asyncio.sleep(REST_S)
        self._raise_violation()
        for name, holds in at_rest():
            self.checks += 1
            if wrong := holds(self):
                raise Violation(f"{name}: {wrong}")

    async def _build(self) -> None:
        _, world = self.universe.start("ensemble")
        self.ensemble = Ensemble(world.clock, Dice(f"{self.options.seed}/ensemble"), _TICK)
        self.ensemble.on_commit = self._committed
        self.ensemble.start()
        for number in range(1, self.options.servers + 1):
            host, world = self.universe.start(f"zk-{number}")
            server = Server(self.ensemble)
            await self.loop.spawn(host, server.listen(world.network, "", 2181))
            self.servers.append(server)
        _, world = self.universe.start("admin")
        self._admin = ZooKeeper(world, self.zookeeper, 60_000)
        await self._admin.connect(60)
        for number in range(1, self.options.nodes + 1):
            self.start(number)
        await asyncio.sleep(5)
        for _ in range(3):
            await self._create_topic()

    @property
    def zookeeper(self) -> str:
        return ",".join(f"zk-{n}:2181" for n in range(1, self.options.servers + 1))

    def start(self, number: int) -> None:
        """A node's process, anew."""
        host, world = self.universe.start(f"node-{number}")
        broker = StubBroker(
            world, number, host.incarnation, self.zookeeper, self.options.session_timeout_ms, self._observe
        )
        self.nodes[number] = Node(broker, host)
        ended = partial(self._ended, number)
        self.loop.spawn(host, broker.run(), "node").add_done_callback(ended, context=self.loop.main_host.context)
        self.tell(f"node {number} starts")

    def _ended(self, number: int, task: "asyncio.Task[None]") -> None:
        """A node that cannot start ends, as in production; whoever looks after it starts it again."""
        node = self.nodes[number]
        if task.cancelled() or not node.host.is_alive:
            return
        error = task.exception()
        if isinstance(error, SessionExpired):
            self.tell(f"node {number} ends: {error}")
            self.loop.kill(node.host)
            self.loop.call_on(self.loop.main_host, self.loop.time() + 1, self.start, number)
        else:
            self._wrong(f"node_lives: node {number} ended with {error!r}")

    async def _create_topic(self) -> None:
        if self.topics >= 12:
            return
        self.topics += 1
        dice, brokers = self.workload, [BrokerId(n) for n in range(1, self.options.nodes + 1)]
        partitions, factor = dice.randint(1, 4), dice.randint(1, 3)
        placed = place_replicas(dict.fromkeys(brokers), partitions, factor, dice)
        assignment = {n: ReplicaAssignment(r) for n, r in placed.items()}
        name = f"t{self.topics}"
        self.tell(f"topic {name} is created: {list(placed.values())}")
        try:
            async with asyncio.timeout(5):
                await Store(self._admin).create_topic(name, assignment, new_topic_id(dice.randbytes), {})
        except (KlammError, TimeoutError) as error:
            self.tell(f"topic {name}: {error!r}")

    # ---- what happens, as it happens

    def tell(self, what: str) -> None:
        self.story.append(f"{self.loop.time():9.3f}  {what}")

    def _committed(self, transaction: Transaction, ops: Sequence[Op]) -> None:
        for event in self.history.events_of(transaction, ops):
            self._observe(event)

    def _observe(self, event: Event) -> None:
        self.story.append(f"{self.loop.time():9.3f}  {_words(event)}")
        for name, holds in _ASKED.get(type(event), ()):
            self.checks += 1
            if wrong := holds(self.history, event):
                self._wrong(f"{name}: {wrong}")
        self.history.absorb(event)

    def _wrong(self, what: str) -> None:
        if self.violation is None:
            self.violation = what
            self.tell(f"VIOLATION {what}")

    def _raise_violation(self) -> None:
        if self.violation is not None:
            raise Violation(self.violation)


def _words(event: Event) -> str:
    kind = type(event).__name__
    message = getattr(event, "message", None)
    if message is None:
        return f"{kind} " + ", ".join(f"{k}={v}" for k, v in event._asdict().items())
    topics = [f"{t.topic_name}{[s.partition_index for s in t.partition_states]}" for t in message.topic_states]
    return (
        f"node {event.broker} gets {type(message).__name__} of controller {message.controller_id} epoch"  # type: ignore[union-attr]
        f" {message.controller_epoch}, refusal {event.refusal}: {' '.join(topics)}"  # type: ignore[union-attr]
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    options: Options
    violation: str | None
    digest: str
    steps: int
    checks: int
    elections: int
    story: list[str]


def run_schedule(seed: int) -> Outcome:
    """Run one schedule from its seed; every violation, error, deadlock and overrun is in `violation`."""
    options = Options.of(seed)
    loop = SimulatedLoop(seed, options.policy)  # type: ignore[abstract]  # what nobody here calls is not there
    cluster = SimulatedCluster(options, loop)
    violation = None
    try:
        loop.run(cluster.run(), limit_s=1_000, most_steps=_MOST_STEPS)
    except Exception as error:  # whatever went wrong is what we look for
        violation = str(error) if isinstance(error, Violation) else repr(error)
    return Outcome(
        options, violation, loop.digest, loop.steps, cluster.checks, cluster.history.epoch, cluster.story
    )  # fmt: skip
