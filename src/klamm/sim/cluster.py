"""One simulated cluster for one seed: nodes and ZooKeeper, what befalls them, and what is checked meanwhile.

A schedule warms up, lets faults and work happen at random, heals everything, waits, and looks whether all is well.
"""

import asyncio
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.runtime.randomness import Rng
from klamm.sim.actions import Draw, restart
from klamm.sim.coverage_goals import CoverageGoals
from klamm.sim.faults.injection_points import InjectionPoints, Step, StepKind
from klamm.sim.faults.table import FAULTS, heal, heal_without_restarts
from klamm.sim.history.history import History
from klamm.sim.history.trace import Event, StateWritten
from klamm.sim.invariants.table import at_rest, by_event
from klamm.sim.loop import SimulatedLoop
from klamm.sim.nodes.broker import Node, NodeContext, StubBroker
from klamm.sim.nodes.replicas import Logs
from klamm.sim.nodes.settings import NodeSettings
from klamm.sim.scripts.options import Options
from klamm.sim.scripts.script import WARM_UP_S, ScheduledAction, Script, write_script
from klamm.sim.story import lines
from klamm.sim.workload.verbs import SCRIPTED_VERBS, VERB_TIMEOUT_S, VERBS
from klamm.sim.world import SimulatedClock, Universe
from klamm.sim.zookeeper.ensemble import REFUSALS, Ensemble, EnsembleSettings, InjectedFailure
from klamm.sim.zookeeper.server import Server
from klamm.sim.zookeeper.tree import Transaction, Tree
from klamm.zk.client import ZooKeeper
from klamm.zk.errors import NoAuth, SessionExpired
from klamm.zk.operations import Op
from klamm.zk.store import Store

FIRST_NODE_HEAD_START_S: Final = 0.5
"""Node 1 starts before the others, so it is the first controller: who breaks one knows where it is."""
QUIET_PERIOD_S: Final = 30.1
"""Healed and left alone for so long: sessions end, connections are made anew, requests are repeated.

A bit more than what timers count: one that began to run when all was healed does not fire just when we look."""
_ENSEMBLE_SETTINGS: Final = EnsembleSettings(tick_ms=500, min_session_ms=1_000)
CORE_RECOVERY_SHARE: Final = 0.5
"""In so many of the schedules with two rests the first is of a core; in the others nothing restarts."""
_MAX_STEPS: Final = 3_000_000
_INVARIANTS_BY_EVENT: Final = by_event()


class Violation(Exception):
    """An invariant does not hold; says which, and how."""


@dataclass
class SimulatedCluster:
    script: Script
    loop: SimulatedLoop
    history: History = field(default_factory=History)
    records_story: bool = False
    """Somebody wants to read the story, and what all controllers write down."""
    story: list[tuple[float, str | Event]] = field(default_factory=list)
    """With every event where it is told; else only what faults and verbs say of themselves."""
    nodes: dict[int, Node] = field(default_factory=dict)
    logs: dict[int, Logs] = field(default_factory=dict)
    """What lies on each node's machine."""
    servers: list[Server] = field(default_factory=list)
    performed: list[ScheduledAction] = field(default_factory=list)
    """What was carried out, with all that was decided for it: the same as a script is the same run."""
    injection_points: InjectionPoints = field(default_factory=InjectionPoints)
    journal: bytearray = field(default_factory=bytearray)
    checks: int = 0
    is_healed: bool = False
    effects: int = 0
    """States written amid the faults: how much came of the schedule."""
    is_over: bool = False

    def __post_init__(self) -> None:
        self.options = self.script.options
        self.universe = Universe.of(self.loop)
        self.network = self.universe.network
        self.violation: str | None = None
        self.gone: frozenset[int] = frozenset()
        """Nodes that nobody starts for now."""
        self._sleeper: asyncio.Future[None] | None = None
        self._await_commit: list[asyncio.Future[None]] = []
        self.coverage = CoverageGoals(self)

    # ---- what invariants look at

    @property
    def tree(self) -> Tree:
        return self.ensemble.tree

    @property
    def clocks(self) -> dict[str, SimulatedClock]:
        return self.universe.clocks

    @property
    def running(self) -> list[StubBroker]:
        return [n.broker for n in self.nodes.values() if n.host.is_alive]

    def watched_by(self, broker: StubBroker) -> tuple[set[str], set[str]]:
        """Paths of data watches and of child watches that ZooKeeper holds for this broker's session."""
        try:
            client = broker.sessions.store.client
        except SessionExpired:
            return set(), set()
        server = self.servers[int(client.server.partition(":")[0].removeprefix("zk-")) - 1]
        connection = server.connection_of(client.session_id)
        if connection is None:
            return set(), set()
        data, children = connection.watches
        return set(data), set(children)

    # ---- the schedule

    async def run(self) -> None:
        """Raises Violation."""
        try:
            await self._run()
        finally:
            self.is_over = True

    async def _run(self) -> None:
        await self._start_cluster()
        for action in self.script.actions:
            await self._sleep_until(action.at_s)
            self._raise_violation()
            self._run_action(action)
        await self._sleep_until(self.script.heal_at_s)
        self._raise_violation()
        self.is_healed = True
        if self.options.heals_core:
            is_core_alone = Rng(f"{self.options.seed}/rest").random() < CORE_RECOVERY_SHARE or not self.running
            await (self._heal_core() if is_core_alone else self._heal_without_restarts())
        self.log("everything is healed")
        heal(self)
        await self._wait_and_check_at_rest()

    async def _heal_core(self) -> None:
        """Kill some nodes and servers, heal the rest, and check that it recovers without them."""
        rng, nodes, servers = Rng(f"{self.options.seed}/core"), self.options.nodes, self.options.servers
        outside = sorted(rng.sample(range(1, nodes + 1), rng.randint(0, nodes - 1)))
        silent = sorted(rng.sample(range(servers), rng.randint(0, (servers - 1) // 2)))
        self.log(f"all is healed but nodes {outside} and {[f'zk-{i + 1}' for i in silent]}, which are dead")
        heal(self)
        for number in outside:
            self.loop.kill(self.nodes[number].host)
        for index in silent:
            self.servers[index].stop()
        self.gone = frozenset(outside)
        await self._wait_and_check_at_rest()
        self.gone = frozenset()

    async def _heal_without_restarts(self) -> None:
        """Heal everything but dead processes and failed disks, and check that the cluster recovers without restarts."""
        self.gone = frozenset(n for n, node in self.nodes.items() if not node.host.is_alive)
        self.log(f"all is healed, but nothing restarts: nodes {sorted(self.gone)} stay dead, failed directories failed")
        heal_without_restarts(self)
        await self._wait_and_check_at_rest()
        self.gone = frozenset()

    async def _wait_and_check_at_rest(self) -> None:
        """Wait for the cluster to come to rest, then check the invariants that hold at rest. Raises Violation."""
        await self._sleep_until(self.loop.now + QUIET_PERIOD_S)
        self._raise_violation()
        for name, holds in at_rest():
            self.checks += 1
            try:
                wrong = holds(self)
            except Exception as error:
                wrong = _describe_exception(error)
            if wrong:
                raise Violation(f"{name}: {wrong}")

    async def _start_cluster(self) -> None:
        """Start the ensemble, the operator's session and all nodes."""
        _, world = self.universe.start("ensemble")
        self.ensemble = Ensemble(world.clock, Rng(f"{self.options.seed}/ensemble"), _ENSEMBLE_SETTINGS)
        self.ensemble.on_commit = self._on_committed
        self.ensemble.on_write = self._on_write
        self.ensemble.start()
        for number in range(1, self.options.servers + 1):
            host, world = self.universe.start(f"zk-{number}")
            server = Server(self.ensemble)
            await self.loop.spawn(host, server.listen(world.network, "", 2181))
            self.servers.append(server)
        self._admin_host, self.admin = self.universe.start("admin")
        operator = ZooKeeper(self.admin, self.zookeeper, 60_000)
        await operator.connect(60)
        self.store = Store(operator)
        for number in range(1, self.options.nodes + 1):
            self.start(number)
            if number == 1:
                await asyncio.sleep(FIRST_NODE_HEAD_START_S)

    async def _sleep_until(self, at_s: float) -> None:
        """Sleep until this virtual time or until a violation, whichever comes first."""
        if at_s > self.loop.now and self.violation is None:
            self._sleeper = self.loop.create_future()
            alarm = self.loop.call_at(at_s, _wake_sleeper, self._sleeper)
            await self._sleeper
            alarm.cancel()

    @property
    def zookeeper(self) -> str:
        return ",".join(f"zk-{n}:2181" for n in range(1, self.options.servers + 1))

    @property
    def topic_size(self) -> tuple[int, int]:
        return self.options.partitions, self.options.replication

    @property
    def _node_settings(self) -> NodeSettings:
        o = self.options
        return NodeSettings(
            self.zookeeper, o.session_timeout_ms, o.protocol, o.in_flight, o.request_timeout_ms, o.resend_pause_ms,
            o.imbalance_check_s, o.token_check_s, o.rebalances, o.deletes_topics, o.supports_features,
        )  # fmt: skip

    def start(self, number: int) -> None:
        """Start a new process of a node, unless this node must stay dead."""
        if number in self.gone:
            return
        host, world = self.universe.start(f"node-{number}")
        fetches = partial(self._can_fetch, BrokerId(number))
        broker = StubBroker(
            world,
            number,
            host.incarnation,
            self._node_settings,
            NodeContext(
                self._observe,
                fetches,
                self.logs.setdefault(number, {}),
                self.injection_points.step,
                _JournalSink(host.incarnation, self.journal) if self.records_story else None,
            ),
        )
        if number in self.nodes:
            broker.received.extend(self.nodes[number].broker.received)
        self.nodes[number] = Node(broker, host)
        ended = partial(self._on_process_ended, number)
        self.loop.spawn(host, broker.run(), "node").add_done_callback(ended, context=self.loop.main_host.context)
        self.log(f"node {number} starts")

    def _can_fetch(self, leader: BrokerId, follower: BrokerId, p: TopicPartition, leader_epoch: int) -> bool:
        """Whether the follower's fetch requests reach the leader now.

        Replicas of an earlier topic of the same name do not count: fetch requests carry topic ids.
        """
        node = self.nodes.get(follower)
        if node is None or not node.host.is_alive or node.host.is_paused:
            return False
        if not self.network.can_exchange(node.host.name, self.nodes[leader].host.name):
            return False
        ids = {self.nodes[n].broker.replicas.logs.get(p, ZERO_ID) for n in (leader, follower)} - {ZERO_ID}
        return len(ids) <= 1 and node.broker.replicas.fetches(p, leader, leader_epoch)

    def _on_process_ended(self, number: int, task: "asyncio.Task[None]") -> None:
        """Restart a node that ended for a reason that also ends it in production; any other end is a violation."""
        node = self.nodes[number]
        if task.cancelled() or not node.host.is_alive:
            return
        error = task.exception()
        if isinstance(error, SessionExpired | NoAuth):
            self.log(f"node {number} ends: {error}")
            self.loop.kill(node.host)
            self.loop.call_on(self.loop.main_host, self.loop.time() + 1, restart, self, number)
        else:
            self._record_violation(f"node_lives: node {number} ended with {error!r}")

    def _run_action(self, action: ScheduledAction) -> None:
        """Run one scheduled fault or verb, and record its random decisions."""
        at_s, what, given = action
        draw = Draw(Rng(f"{self.options.seed}/{at_s}/{what}"), given)
        self.performed.append(ScheduledAction(at_s, what, draw.facts))
        if what in FAULTS:
            FAULTS[what](self, draw)
        else:
            self.run_in_background(self._run_verb(what, draw), what)

    def run_in_background(self, doing: Coroutine[Any, Any, None], what: str) -> None:
        """Run a coroutine in the background on the operator's machine."""
        self.loop.spawn(self._admin_host, doing, what)

    async def _run_verb(self, what: str, draw: Draw) -> None:
        """Run a verb within its time limit; any error other than those of a cluster in trouble is a violation."""
        try:
            async with asyncio.timeout(VERB_TIMEOUT_S):
                await (VERBS.get(what) or SCRIPTED_VERBS[what])(self, draw)
            if draw.facts and what in VERBS:
                self.coverage.count_verb(what)
        except (KlammError, TimeoutError) as error:
            self.log(f"{what} {draw.facts}: {error!r}")
        except Exception as error:  # not what a cluster in trouble says
            self._record_violation(f"workload: {what} {draw.facts} raised {error!r}")

    # ---- what happens, as it happens

    def log(self, what: str) -> None:
        self.story.append((self.loop.now, what))

    def _on_committed(self, transaction: Transaction, ops: Sequence[Op]) -> None:
        """Pass on the events of a committed transaction, and wake those who wait for the next commit."""
        for event in self.history.events_of(transaction, ops):
            self._observe(event)
        while self._await_commit:
            _wake_sleeper(self._await_commit.pop())

    def next_commit(self) -> "asyncio.Future[None]":
        self._await_commit.append(self.loop.create_future())
        return self._await_commit[-1]

    def _on_write(self, session: int, ops: Sequence[Op]) -> InjectedFailure | None:
        """Ask the injection points whether this write's connection is lost, and whether before or after it."""
        if not self.injection_points.any_set:
            return None
        writer = next((n for n, node in self.nodes.items() if node.host.is_alive and node.session == session), 0)
        loss = self.injection_points.step(Step(StepKind.WRITE, writer, 0, " ".join(op.path for op in ops)))
        if loss in REFUSALS:
            self.history.controllers.refused.add(BrokerId(writer))
        return loss

    def _observe(self, event: Event) -> None:
        """Check an event against the invariants, then add it to the history."""
        if self.is_over:
            return  # what the loop tears down at the end has no meaning
        if self.records_story:
            self.story.append((self.loop.now, event))
        if isinstance(event, StateWritten) and WARM_UP_S <= self.loop.now < self.script.heal_at_s:
            self.effects += 1
        try:
            for looking, holds in _INVARIANTS_BY_EVENT.get(type(event), ()):
                self.checks += 1
                if wrong := holds(self.history, event):
                    self._record_violation(f"{looking}: {wrong}")
            looking = "the history"
            self.coverage.count_event(event)
            self.history.absorb(event)
        except Exception as error:  # were it raised, whoever made the event would seem to have erred
            self._record_violation(f"{looking}: {_describe_exception(error)}")

    def _record_violation(self, what: str) -> None:
        """Keep the first violation, and end the run's sleep."""
        if self.violation is None:
            self.violation = what
            self.log(f"VIOLATION {what}")
            if self._sleeper is not None:
                _wake_sleeper(self._sleeper)

    def _raise_violation(self) -> None:
        if self.violation is not None:
            raise Violation(self.violation)


def _describe_exception(error: Exception) -> str:
    """Text for an invariant that raised instead of returning a verdict: the exception and its line."""
    line = traceback.extract_tb(error.__traceback__)[-1]
    return f"cannot tell, it raised {error!r} in {line.filename.rpartition('/')[2]}:{line.lineno}"


def _wake_sleeper(sleeper: "asyncio.Future[None]") -> None:
    if not sleeper.done():
        sleeper.set_result(None)


class _JournalSink(NamedTuple):
    """The journal of one process."""

    incarnation: int
    lines: bytearray

    def write(self, lines: bytes) -> None:
        self.lines.extend(lines)


@dataclass(frozen=True, slots=True)
class Outcome:
    script: Script
    """With every decision that was taken."""
    violation: str | None
    digest: str
    steps: int
    checks: int
    elections: int
    effects: int
    virtual_s: float
    reached: Mapping[str, int]
    """Rare states, and how often they came about."""
    story: list[str]
    """What happened, line by line, where somebody asked for it."""
    said: list[str]
    """What faults and verbs told of themselves, of all this."""
    journal: bytes
    """The journals of all controllers, likewise."""


def run_schedule(seed: int, with_story: bool = False) -> Outcome:
    """Run the schedule of a seed; keep its story on request."""
    return run_script(write_script(Options.of(seed)), with_story)


def run_script(script: Script, with_story: bool = False, watch: Callable[[Step], None] | None = None) -> Outcome:
    """Run to the end; every violation, error, deadlock and overrun is in `violation`.

    `watch` is told of each step of a node, from the moment that the script sets a trap.
    """
    options = script.options
    loop = SimulatedLoop(options.seed, options.policy)
    cluster = SimulatedCluster(script, loop, records_story=with_story)
    cluster.injection_points.watch = watch or cluster.injection_points.watch
    violation = None
    try:
        loop.run(cluster.run(), limit_s=1_000, max_steps=_MAX_STEPS)
    except Exception as error:  # whatever went wrong is what we look for
        violation = str(error) if isinstance(error, Violation) else repr(error)
    history = cluster.history
    story = list(lines(cluster.story)) if with_story else []
    said = [f"{at:9.3f}  {what}" for at, what in cluster.story if isinstance(what, str)] if with_story else []
    done = script._replace(actions=cluster.performed)
    cluster.coverage.count_faults((h.what for h in cluster.performed), cluster.story)
    return Outcome(
        done,
        violation,
        loop.digest,
        loop.steps,
        cluster.checks,
        history.controllers.epoch,
        cluster.effects,
        loop.now,
        dict(cluster.coverage.reached),
        story,
        said,
        bytes(cluster.journal),
    )
