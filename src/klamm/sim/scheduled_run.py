"""The common part of a simulated run, for nodes of any kind: ZooKeeper, the operator, scheduled actions, violations.

A run warms up, performs random faults and verbs, heals everything, waits, and checks the cluster at rest.
"""

import asyncio
import traceback
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from klamm.model.errors import KlammError
from klamm.runtime.randomness import Rng
from klamm.sim.actions import Draw, NodeUnderTest
from klamm.sim.faults.injection_points import InjectionPoints, Step, StepKind
from klamm.sim.history.history import History
from klamm.sim.history.trace import Event, TransactionCommitted
from klamm.sim.loop import SimulatedLoop
from klamm.sim.random_streams import stream_of
from klamm.sim.scripts.script import ScheduledAction
from klamm.sim.world import SimulatedClock, Universe
from klamm.sim.zookeeper.ensemble import DISCONNECTS, REFUSALS, Ensemble, EnsembleSettings, InjectedFailure
from klamm.sim.zookeeper.server import Server
from klamm.sim.zookeeper.tree import Transaction, Tree
from klamm.zk.client import ZooKeeper
from klamm.zk.operations import Op
from klamm.zk.store import Store

FIRST_NODE_HEAD_START_S: Final = 0.5
"""Node 1 starts before the others, so it is the first controller: who breaks one knows where it is."""
_TICK: Final = EnsembleSettings(tick_ms=500, min_session_ms=1_000)
_OPERATOR_SESSION_MS: Final = 60_000
_CONNECT_S: Final = 60.0


class Violation(Exception):
    """An invariant does not hold; the text names the invariant and the reason."""


class ScheduledRun(ABC):
    """A simulated run of scheduled actions; subclasses add nodes, verbs and checks."""

    seed: int
    faults: Mapping[str, Callable[[Any, Draw], None]]
    verbs: Mapping[str, Callable[[Any, Draw], Awaitable[None]]]
    verb_timeout_s: float

    def __init__(self, loop: SimulatedLoop, actions: Sequence[ScheduledAction], heal_at_s: float) -> None:
        self.loop = loop
        self._actions = actions
        self._heal_at_s = heal_at_s
        self.history = History()
        self.story: list[tuple[float, str | Event]] = []
        """With every event where it is told; else only what faults and verbs say of themselves."""
        self.servers: list[Server] = []
        self.performed: list[ScheduledAction] = []
        """What was carried out, with all that was decided for it: the same as a script is the same run."""
        self.injection_points = InjectionPoints()
        self.checks = 0
        self.is_healed = False
        self.is_over = False
        self.universe = Universe.of(loop)
        self.network = self.universe.network
        self.violation: str | None = None
        self._sleeper: asyncio.Future[None] | None = None
        self._awaited: dict[type[Event], list[asyncio.Future[None]]] = {}

    # ---- what a tier adds

    @property
    @abstractmethod
    def nodes(self) -> Mapping[int, NodeUnderTest]:
        """All nodes by broker id, stopped ones included."""

    @abstractmethod
    async def _start_nodes(self) -> None:
        """Start the processes of all nodes."""

    @abstractmethod
    async def _heal_and_check(self) -> None:
        """Heal the cluster after the last action, and check that it recovers. Raises Violation."""

    @abstractmethod
    def _observe(self, event: Event) -> None:
        """Check an event of ZooKeeper against the invariants, then add it to the history."""

    def _on_refused(self, writer: int, paths: Sequence[str]) -> None:
        """Called when an injected ACL error refuses a ZooKeeper write of node `writer`."""
        return

    def _verb_worked(self, what: str) -> None:
        """Called when an operation of the schedule ended without error and had an effect."""
        return

    # ---- what faults, verbs and invariants look at

    @property
    def tree(self) -> Tree:
        """The znodes as the ZooKeeper leader has committed them."""
        return self.ensemble.tree

    @property
    def clocks(self) -> dict[str, SimulatedClock]:
        """The clock of each host by the host's name."""
        return self.universe.clocks

    def connections_of(self, number: int) -> int:
        """How many connections the processes of a node have to ZooKeeper servers."""
        client = f"node-{number}"
        return sum(connection.client == client for server in self.servers for connection in server.connections)

    @property
    def zookeeper(self) -> str:
        """The ZooKeeper connect string."""
        return ",".join(f"{server}:2181" for server in self._server_names)

    # ---- the schedule

    async def run(self) -> None:
        """Run all actions and checks. Raises Violation."""
        try:
            await self._run()
        finally:
            self.is_over = True

    async def _run(self) -> None:
        """Start the cluster, run the actions, heal and check."""
        await self._start_zookeeper()
        await self._start_nodes()
        for action in self._actions:
            await self._sleep_until(action.at_s)
            self._raise_violation()
            self._run_action(action)
        await self._sleep_until(self._heal_at_s)
        self._raise_violation()
        self.is_healed = True
        await self._heal_and_check()

    async def _start_zookeeper(self) -> None:
        """Start the ensemble and the operator's session."""
        _, world = self.universe.start("ensemble")
        self.ensemble = Ensemble(world.clock, Rng(f"{self.seed}/ensemble"), _TICK)
        self.history.tree = self.ensemble.tree
        self.ensemble.on_commit = self._on_committed
        self.ensemble.on_write = self._on_write
        self.ensemble.on_read = self._on_read
        self.ensemble.start()
        for name in self._server_names:
            host, world = self.universe.start(name)
            server = Server(self.ensemble)
            await self.loop.spawn(host, server.listen(world.network, "", 2181))
            self.servers.append(server)
        self._admin_host, self.admin = self.universe.start("admin")
        operator = ZooKeeper(self.admin, self.zookeeper, _OPERATOR_SESSION_MS)
        await operator.connect(_CONNECT_S)
        self.store = Store(operator)

    @property
    @abstractmethod
    def _server_names(self) -> Sequence[str]:
        """Host names of the ZooKeeper servers."""

    async def _sleep_until(self, at_s: float) -> None:
        """Sleep until this simulated time or until a violation, whichever comes first."""
        if at_s > self.loop.now and self.violation is None:
            self._sleeper = self.loop.create_future()
            alarm = self.loop.call_at(at_s, _wake_sleeper, self._sleeper)
            await self._sleeper
            alarm.cancel()

    def _run_action(self, action: ScheduledAction) -> None:
        """Run one scheduled fault or operation, and record its random decisions."""
        at_s, what, given = action
        draw = Draw(Rng(f"{self.seed}/{at_s}/{stream_of(what)}"), given)
        self.performed.append(ScheduledAction(at_s, what, draw.facts))
        if what in self.faults:
            self.faults[what](self, draw)
        else:
            self.run_in_background(self._run_verb(what, draw), what)

    def power_off(self, number: int) -> None:
        """Cut the power of the node's machine."""
        self.network.power_off(self.nodes[number].host)

    def run_in_background(self, coroutine: Coroutine[Any, Any, None], what: str) -> None:
        """Run a coroutine in the background on the operator's machine."""
        self.loop.spawn(self._admin_host, coroutine, what)

    async def _run_verb(self, what: str, draw: Draw) -> None:
        """Run an operation within its time limit; an error that a healthy client does not expect is a violation."""
        try:
            async with asyncio.timeout(self.verb_timeout_s):
                await self.verbs[what](self, draw)
            if draw.facts:
                self._verb_worked(what)
        except (KlammError, TimeoutError) as error:
            self.log(f"{what} {draw.facts}: {error!r}")
        except Exception as error:  # not what a cluster in trouble says
            self._record_violation(f"workload: {what} {draw.facts} raised {error!r}")

    # ---- what happens, as it happens

    def log(self, what: str) -> None:
        """Add a line to the run's log."""
        self.story.append((self.loop.now, what))

    def _on_committed(self, transaction: Transaction, ops: Sequence[Op]) -> None:
        """Report the events of a committed transaction."""
        for event in self.history.events_of(transaction, ops):
            self._observe(event)
        self._wake_those_awaiting(TransactionCommitted)

    def next_event(self, kind: type[Event]) -> "asyncio.Future[None]":
        """A future that is done when the next event of this kind was observed."""
        future = self.loop.create_future()
        self._awaited.setdefault(kind, []).append(future)
        return future

    def _wake_those_awaiting(self, kind: type[Event]) -> None:
        """Complete the futures that wait for an event of this kind."""
        for future in self._awaited.pop(kind, ()):
            _wake_sleeper(future)

    def _on_write(self, session: int, ops: Sequence[Op]) -> InjectedFailure | None:
        """The injected failure of this ZooKeeper write, or None."""
        if not self.injection_points.any_set:
            return None
        writer = next((n for n, node in self.nodes.items() if node.host.is_alive and node.session == session), 0)
        loss = self.injection_points.step(Step(StepKind.WRITE, writer, 0, " ".join(op.path for op in ops)))
        if loss in REFUSALS:
            paths = [op.path for op in ops]
            self.history.states.on_refused(paths)
            self.history.journals.on_refused(paths)
            self._on_refused(writer, paths)
        return loss

    def _on_read(self, session: int, paths: Callable[[], Sequence[str]]) -> InjectedFailure | None:
        """The injected failure of this ZooKeeper read, or None."""
        if not self.injection_points.any_set:
            return None
        reader = next((n for n, node in self.nodes.items() if node.host.is_alive and node.session == session), 0)
        loss = self.injection_points.step(Step(StepKind.READ, reader, 0, " ".join(paths())))
        return loss if loss in DISCONNECTS else None

    def _record_violation(self, what: str) -> None:
        """Keep the first violation, and wake the run so that it ends."""
        if self.violation is None:
            self.violation = what
            self.log(f"VIOLATION {what}")
            if self._sleeper is not None:
                _wake_sleeper(self._sleeper)

    def _raise_violation(self) -> None:
        """Raise the recorded violation, if any."""
        if self.violation is not None:
            raise Violation(self.violation)


def describe_exception(error: Exception) -> str:
    """Text for an invariant check that raised an exception: the exception and its source line."""
    line = traceback.extract_tb(error.__traceback__)[-1]
    return f"cannot tell, it raised {error!r} in {line.filename.rpartition('/')[2]}:{line.lineno}"


def _wake_sleeper(sleeper: "asyncio.Future[None]") -> None:
    """Complete the future unless it is done already."""
    if not sleeper.done():
        sleeper.set_result(None)
