"""How faults and verbs change the simulated cluster, and how their random decisions are recorded."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeVar

from klamm.runtime.randomness import Rng
from klamm.runtime.world import World
from klamm.sim.faults.injection_points import InjectionPoints
from klamm.sim.history.history import History
from klamm.sim.history.trace import Event
from klamm.sim.hosts import Host
from klamm.sim.loop import SimulatedLoop
from klamm.sim.network import SimulatedNetwork
from klamm.sim.nodes.broker import Node, StubBroker
from klamm.sim.world import SimulatedClock
from klamm.sim.zookeeper.ensemble import Ensemble
from klamm.sim.zookeeper.server import Server
from klamm.sim.zookeeper.tree import Tree
from klamm.zk.errors import SessionExpired
from klamm.zk.store import Store

T = TypeVar("T")


class Draw:
    """The random decisions of one action, each recorded under a name.

    Call it with a name and a function of a random generator. A decision that was given in advance is reused instead, so
    a recorded run can be repeated and edited. Decisions are plain values (numbers, texts, lists): they can be printed.
    """

    def __init__(self, rng: Rng, given: Mapping[str, Any]) -> None:
        self._rng = rng
        self.facts: dict[str, Any] = dict(given)

    def __call__(self, name: str, decide: Callable[[Rng], T]) -> T:
        """Return the decision with this name, making it with `decide` if it was not given."""
        if name not in self.facts:
            drawn = decide(self._rng)
            self.facts[name] = round(drawn, 4) if isinstance(drawn, float) else drawn
        found: T = self.facts[name]
        return found


class NodeUnderTest(Protocol):
    """One node process, as faults see it."""

    @property
    def host(self) -> Host:
        """The simulated machine on which the node runs."""

    @property
    def session(self) -> int:
        """The id of the node's ZooKeeper session; 0 where it has none."""
        ...

    @property
    def session_timeout_ms(self) -> int:
        """The node's ZooKeeper session timeout, in ms."""

    @property
    def is_controller(self) -> bool:
        """Whether the node is the active controller."""

    @property
    def waits_for_alter_partition(self) -> bool:
        """Whether the node leads a partition whose ISR change has no answer yet."""
        ...


class ScheduledCluster(Protocol):
    """The simulated cluster as faults change it, with nodes of any kind."""

    loop: SimulatedLoop
    network: SimulatedNetwork
    ensemble: Ensemble
    servers: list[Server]
    history: History
    injection_points: InjectionPoints
    is_healed: bool
    """Nothing bad is to begin any more."""

    @property
    def nodes(self) -> Mapping[int, NodeUnderTest]:
        """All nodes by broker id, stopped ones included."""

    @property
    def admin(self) -> World:
        """The simulated machine of the operator."""
        ...

    @property
    def store(self) -> Store:
        """The operator's ZooKeeper session."""
        ...

    @property
    def tree(self) -> Tree:
        """The znodes that ZooKeeper has committed."""
        ...

    @property
    def clocks(self) -> dict[str, SimulatedClock]:
        """The clocks of all machines, by machine name."""
        ...

    def next_event(self, kind: type[Event]) -> "asyncio.Future[None]":
        """A future that is done when the next event of this kind was observed."""
        ...

    def start(self, number: int) -> None:
        """Start a new process of the node with this number."""

    def power_off(self, number: int) -> None:
        """Cut the power of the node's machine."""

    def run_in_background(self, coroutine: Coroutine[Any, Any, None], what: str) -> None:
        """Run a coroutine in the background on the operator's machine."""

    def log(self, what: str) -> None:
        """Add a line to the run's log."""


class ClusterUnderTest(ScheduledCluster, Protocol):
    """The simulated cluster as verbs see and change it: a `ScheduledCluster` of simulated brokers."""

    @property
    def nodes(self) -> Mapping[int, Node]:
        """All nodes by broker id, stopped ones included."""

    @property
    def protocols(self) -> dict[int, str]:
        """The inter.broker.protocol.version with which each node starts next."""
        ...

    @property
    def topic_size(self) -> tuple[int, int]:
        """The greatest number of partitions of a new topic, and of replicas of each."""
        ...

    def report(self, event: Event) -> None:
        """Pass an event that a workload operation caused or observed, such as an answer, to the checks."""


def server_index(broker: StubBroker) -> int | None:
    """Which ZooKeeper server the broker's session is connected to, or tried last; None without a session."""
    try:
        server = broker.sessions.store.client.server
    except SessionExpired:
        return None
    return int(server.partition(":")[0].removeprefix("zk-")) - 1


def restart(cluster: ScheduledCluster, number: int) -> None:
    """Start a node's process unless it is running."""
    if not cluster.nodes[number].host.is_alive:
        cluster.start(number)


def call_after(cluster: ScheduledCluster, after_s: float, call: Callable[..., object], *args: object) -> None:
    """Call a function after a delay, even if hosts were killed meanwhile."""
    cluster.loop.call_on(cluster.loop.main_host, cluster.loop.time() + after_s, call, *args)
