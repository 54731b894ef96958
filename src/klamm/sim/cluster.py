"""One simulated cluster for one seed: controllers with stub brokers, what befalls them, what is checked meanwhile."""

import asyncio
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.runtime.randomness import Rng
from klamm.sim.actions import restart, server_index
from klamm.sim.coverage_goals import CoverageGoals
from klamm.sim.faults.injection_points import Step
from klamm.sim.faults.table import FAULTS, heal, heal_without_restarts
from klamm.sim.handler_time import HandlerTime
from klamm.sim.history.trace import Event, JournalWritten, StateWritten
from klamm.sim.invariants.table import at_rest, by_event
from klamm.sim.loop import SimulatedLoop
from klamm.sim.nodes.broker import Node, NodeContext, StubBroker
from klamm.sim.nodes.replicas import Logs
from klamm.sim.nodes.settings import NodeSettings, writes_isrs_itself
from klamm.sim.scheduled_run import FIRST_NODE_HEAD_START_S, ScheduledRun, Violation, describe_exception
from klamm.sim.scripts.options import Options
from klamm.sim.scripts.script import WARM_UP_S, Script, write_script
from klamm.sim.small_limits import small_limits
from klamm.sim.story import lines
from klamm.sim.workload.topic_lifecycle import grow_topic_twice
from klamm.sim.workload.verbs import SCRIPTED_VERBS, VERB_TIMEOUT_S, VERBS, Verb
from klamm.zk.errors import NoAuth, SessionExpired

QUIET_PERIOD_S: Final = 30.1
"""Healed and left alone for so long: sessions end, connections are made again, requests are repeated.

A bit more than what timers count: one that began to run when all was healed does not fire just when we look."""
_UNDISTURBED_S: Final = 2.03
"""So long nothing is written before the cluster is judged: a mirror needs up to 1.6 s to read the last change."""
_MAX_WAITS: Final = 8
"""Then the cluster is judged in any case: a node that reaches ZooKeeper but hears nothing opens new sessions."""
_BUSY: Final = frozenset(
    f"kafka_controller_{name}"
    for name in (
        "kafkacontroller_controllerstate",
        "controllereventmanager_eventqueuesize",
        "controllerchannelmanager_totalqueuesize",
    )
)
"""Metrics of a controller that are zero while it does nothing."""
_LAST_CHANGES_AFTER_S: Final = 12.0
"""When all is healed, mirrors are read again after so long; what they miss then is not repaired by later changes."""
CORE_RECOVERY_SHARE: Final = 0.5
"""In so many of the schedules with two rests the first is of a core; in the others nothing restarts."""
_MAX_STEPS: Final = 3_000_000
_decode_lines: Final = msgspec.json.Decoder(dict[str, Any]).decode_lines
_INVARIANTS_BY_EVENT: Final = by_event()


class SimulatedCluster(ScheduledRun):
    faults = FAULTS
    verbs: Mapping[str, Verb] = ChainMap(VERBS, SCRIPTED_VERBS)
    verb_timeout_s = VERB_TIMEOUT_S

    def __init__(self, script: Script, loop: SimulatedLoop, records_story: bool = False) -> None:
        super().__init__(loop, script.actions, script.heal_at_s)
        self.script = script
        self.options: Options = script.options
        self.seed = script.options.seed
        self.records_story = records_story
        """Somebody wants to read the story, and what all controllers write down."""
        self._nodes: dict[int, Node] = {}
        self.protocols = dict.fromkeys(range(1, script.options.nodes + 1), script.options.protocol)
        """The inter.broker.protocol.version with which each node starts next."""
        self.logs: dict[int, Logs] = {}
        """What lies on each node's machine."""
        self.journal = bytearray()
        self.effects = 0
        """States written amid the faults: how much came of the schedule."""
        self.gone: frozenset[int] = frozenset()
        """Nodes that nobody starts for now."""
        self.cut_off: frozenset[int] = frozenset()
        """Nodes that run and cannot reach ZooKeeper while the others are judged."""
        self.coverage = CoverageGoals(self)
        self.history.at.most_ahead_ms = lambda: max(clock.most_ahead_ms for clock in self.clocks.values())

    # ---- what invariants look at

    @property
    def nodes(self) -> dict[int, Node]:
        """All nodes by broker id, stopped ones included."""
        return self._nodes

    @property
    def running(self) -> list[StubBroker]:
        """The simulated brokers whose processes are alive, and that may reach ZooKeeper."""
        return [n.broker for number, n in self.nodes.items() if n.host.is_alive and number not in self.cut_off]

    def watched_by(self, broker: StubBroker) -> tuple[set[str], set[str]]:
        """Paths of data watches and of child watches that ZooKeeper holds for this broker's session."""
        index = server_index(broker)
        connection = self.servers[index].connection_of(self.nodes[broker.number].session) if index is not None else None
        if connection is None:
            return set(), set()
        data, children = connection.watches
        return set(data), set(children)

    # ---- the schedule

    async def _heal_and_check(self) -> None:
        """End all faults, wait until the cluster is at rest, and check the invariants that hold then.

        With `heals_core`, first heal only a part and check that the cluster recovers with it.
        """
        if self.options.heals_core:
            is_core_alone = Rng(f"{self.options.seed}/rest").random() < CORE_RECOVERY_SHARE or not self.running
            await (self._heal_core() if is_core_alone else self._heal_without_restarts())
        self.log("all faults end")
        heal(self)
        if self.options.keeps_mirrors:
            await self._sleep_until(self.loop.now + _LAST_CHANGES_AFTER_S)
            await grow_topic_twice(self, Rng(f"{self.options.seed}/last changes"))
        await self._wait_and_check_at_rest()

    async def _heal_core(self) -> None:
        """Kill some nodes and servers, heal the rest, and check that it recovers without them."""
        rng, nodes, servers = Rng(f"{self.options.seed}/core"), self.options.nodes, self.options.servers
        outside = sorted(rng.sample(range(1, nodes + 1), rng.randint(0, nodes - 1)))
        silent = sorted(rng.sample(range(servers), rng.randint(0, (servers - 1) // 2)))
        self.log(f"all faults end, but nodes {outside} and {[f'zk-{i + 1}' for i in silent]} stay dead")
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
        self.log(
            f"all faults end, but nothing restarts: nodes {sorted(self.gone)} stay dead, failed log directories stay "
            "failed"
        )
        heal_without_restarts(self)
        self._cut_one_off()
        await self._wait_and_check_at_rest()
        self.gone = self.cut_off = frozenset()

    def _cut_one_off(self) -> None:
        """In half of the runs, keep one node from ZooKeeper; it still reaches the others.

        One that reaches ZooKeeper alone is not tried: as in Kafka it stays registered, leader and controller.
        """
        rng, alive = Rng(f"{self.options.seed}/cut off"), [n for n, node in self.nodes.items() if node.host.is_alive]
        if len(alive) < 2 or rng.random() < 0.5:
            return
        number, way = rng.choice(alive), rng.choice(("to", "from", "both"))
        name = f"node-{number}"
        for server in self._server_names:
            if way != "from":
                self.network.cut(name, server)
            if way != "to":
                self.network.cut(server, name)
        self.cut_off = frozenset({number})
        self.log(f"node {number} stays cut off from ZooKeeper: {way}")

    async def _wait_and_check_at_rest(self) -> None:
        """Wait for the cluster to come to rest, then check the invariants that hold at rest. Raises Violation."""
        await self._sleep_until(self.loop.now + QUIET_PERIOD_S)
        await self._wait_until_undisturbed()
        self._raise_violation()
        for name, holds in at_rest():
            self.checks += 1
            try:
                wrong = holds(self)
            except Exception as error:
                wrong = describe_exception(error)
            if wrong:
                raise Violation(f"{name}: {wrong}")

    async def _wait_until_undisturbed(self) -> None:
        """Wait until nothing was written for a while and no controller is busy: both happen at rest, too, by timers."""
        for _ in range(_MAX_WAITS):
            before = self.ensemble.tree.zxid
            await self._sleep_until(self.loop.now + _UNDISTURBED_S)
            if self.ensemble.tree.zxid == before and not self._has_busy_controller:
                return

    @property
    def _has_busy_controller(self) -> bool:
        """Whether a controller handles an event, or has events or requests that wait."""
        readings = (reading for broker in self.running for reading in broker.controller.readings())
        return any(reading.value for reading in readings if reading.name in _BUSY)

    async def _start_nodes(self) -> None:
        """Start the nodes in order of their ids; the first gets a head start."""
        for server in self.servers:
            server.follower_pause_s = self.options.mirror_read_pause_s
        for number in range(1, self.options.nodes + 1):
            self.start(number)
            if number == 1:
                await asyncio.sleep(FIRST_NODE_HEAD_START_S)
        HandlerTime(self).report_each_second()

    @property
    def _server_names(self) -> Sequence[str]:
        """The host names of the ZooKeeper servers."""
        return [f"zk-{n}" for n in range(1, self.options.servers + 1)]

    @property
    def topic_size(self) -> tuple[int, int]:
        """The greatest number of partitions of a new topic, and of replicas of each."""
        return self.options.partitions, self.options.replication

    def _settings_of(self, number: int) -> NodeSettings:
        """The settings of a node, by the run's options and the node's protocol."""
        o, protocol = self.options, self.protocols[number]
        return NodeSettings(
            self.zookeeper, o.session_timeout_ms, protocol, o.in_flight, o.request_timeout_ms, o.resend_pause_ms,
            o.imbalance_check_s, o.token_check_s, o.rebalances, o.deletes_topics, o.supports_features,
            o.keeps_mirrors,
        )  # fmt: skip

    def start(self, number: int) -> None:
        """Start a new process of a node, unless this node must stay dead."""
        if number in self.gone:
            return
        self.history.at.leaders_write_isrs |= writes_isrs_itself(self.protocols[number])
        host, world = self.universe.start(f"node-{number}")
        fetches = partial(self._can_fetch, BrokerId(number))
        broker = StubBroker(
            world,
            number,
            host.incarnation,
            self._settings_of(number),
            NodeContext(
                self._observe,
                fetches,
                self.logs.setdefault(number, {}),
                self.injection_points.step,
                self._journal_sink(number, host.incarnation),
            ),
        )
        if number in self.nodes:
            broker.requests.received.extend(self.nodes[number].broker.requests.received)
        self.nodes[number] = Node(broker, host)
        ended = partial(self._on_process_ended, number)
        self.loop.spawn(host, broker.run(), "node").add_done_callback(ended, context=self.loop.main_host.context)
        self.log(f"node {number} starts")

    def _journal_sink(self, number: int, incarnation: int) -> "_JournalSink | None":
        """Where the journal of this process is written; None where nobody reads it."""
        if self.options.reads_journals:
            self.history.journals.read.add((BrokerId(number), incarnation))
        on_lines = partial(self._read_journal, number, incarnation) if self.options.reads_journals else None
        is_read = self.records_story or on_lines is not None
        return _JournalSink(incarnation, self.journal, on_lines) if is_read else None

    def _read_journal(self, number: int, incarnation: int, lines: bytes) -> None:
        """Check these lines of a journal."""
        self._observe(JournalWritten(BrokerId(number), incarnation, _decode_lines(lines)))

    def _can_fetch(self, leader: BrokerId, follower: BrokerId, p: TopicPartition, leader_epoch: int) -> bool:
        """Whether the follower's fetch requests reach the leader now.

        Replicas of an earlier topic of the same name do not count: fetch requests carry topic ids.
        """
        node = self._nodes.get(follower)
        if node is None or not node.host.is_alive or node.host.is_paused:
            return False
        if not self.network.can_exchange(node.host.name, self._nodes[leader].host.name):
            return False
        if not node.broker.replicas.fetches(p, leader, leader_epoch):
            return False
        led = self._nodes[leader].broker.replicas.logs.get(p, ZERO_ID)
        followed = node.broker.replicas.logs.get(p, ZERO_ID)
        return led is followed or led == followed or ZERO_ID in (led, followed)

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

    # ---- what happens, as it happens

    def _on_refused(self, writer: int, paths: Sequence[str]) -> None:
        """Record, for the checks, that an injected ACL error refused a ZooKeeper write of this node."""
        self.history.controllers.refused.add(BrokerId(writer))
        if any(path.endswith("/state") for path in paths):
            self.history.controllers.unretried.add(BrokerId(writer))

    def _verb_worked(self, what: str) -> None:
        """Count the operation in the coverage goals, because it ended without error."""
        if what in VERBS:
            self.coverage.count_verb(what)

    def report(self, event: Event) -> None:
        """Check an event that a workload operation reports, such as an answer, and add it to the history."""
        self._observe(event)

    def _observe(self, event: Event) -> None:
        """Check an event against the invariants, then add it to the history."""
        if self.is_over:
            return  # what the loop tears down at the end has no meaning
        if self.records_story:
            self.story.append((self.loop.now, event))
        if isinstance(event, StateWritten) and WARM_UP_S <= self.loop.now < self._heal_at_s:
            self.effects += 1
        history, invariants = self.history, _INVARIANTS_BY_EVENT.get(type(event), ())
        history.at.now_s = self.loop.now
        self.checks += len(invariants)
        try:
            for looking, holds in invariants:
                if wrong := holds(history, event):
                    self._record_violation(f"{looking}: {wrong}")
            looking = "the history"
            self.coverage.count_event(event)
            history.absorb(event)
            if self._awaited:
                self._wake_those_awaiting(type(event))
        except Exception as error:  # were it raised, whoever made the event would seem to have erred
            self._record_violation(f"{looking}: {describe_exception(error)}")


class _JournalSink(NamedTuple):
    """The journal of one process."""

    incarnation: int
    lines: bytearray
    on_lines: Callable[[bytes], None] | None

    def write(self, lines: bytes) -> None:
        """Add journal lines to the run's journal."""
        self.lines.extend(lines)
        if self.on_lines is not None:
            self.on_lines(lines)


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
    """Every event, fault and verb, line by line; empty if the story was not requested."""
    action_log: list[str]
    """The lines that faults and verbs logged, likewise."""
    journal: bytes
    """The journals of all controllers, likewise."""


def run_schedule(seed: int, with_story: bool = False) -> Outcome:
    """Run the schedule of a seed; with `with_story` keep its log."""
    return run_script(write_script(Options.of(seed)), with_story)


def run_script(script: Script, with_story: bool = False, watch: Callable[[Step], None] | None = None) -> Outcome:
    """Run a script to its end; a violation, error, deadlock or overrun is in `violation` of the result.

    `watch` is called with each step of a node after the script sets an injection.
    """
    options = script.options
    loop = SimulatedLoop(options.seed, options.policy)
    cluster = SimulatedCluster(script, loop, records_story=with_story)
    cluster.injection_points.watch = watch or cluster.injection_points.watch
    violation = None
    try:
        with small_limits() if options.has_small_limits else nullcontext():
            loop.run(cluster.run(), limit_s=1_000, max_steps=_MAX_STEPS)
    except Exception as error:  # whatever went wrong is what we look for
        violation = str(error) if isinstance(error, Violation) else repr(error)
    history = cluster.history
    story = list(lines(cluster.story)) if with_story else []
    action_log = [f"{at:9.3f}  {what}" for at, what in cluster.story if isinstance(what, str)] if with_story else []
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
        action_log,
        bytes(cluster.journal),
    )
