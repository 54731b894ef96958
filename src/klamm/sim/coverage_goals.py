"""Rare states that a campaign must reach at least once; otherwise it shows less than it seems to.

To add one: name it in a table below, and count it in `CoverageGoals` where it can be seen.
"""

import ast
import inspect
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from klamm.controller import events
from klamm.controller.handlers.failover import on_controller_failover
from klamm.controller.states import ControllerState, ReplicaState
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.sim.faults.table import FAULT_ROWS
from klamm.sim.history import trace
from klamm.sim.history.history import History
from klamm.sim.history.trace import Event
from klamm.sim.hosts import Host
from klamm.sim.nodes.broker import Node
from klamm.sim.workload.verbs import VERBS
from klamm.sim.zookeeper.tree import DeleteChange
from klamm.zk.znodes import CONTROLLER

SCHEDULES_TO_REACH_ALL_GOALS: Final = 5_000
"""Schedules after which nothing of this may be left out."""
_STATES_WITHOUT_GOAL: Final = (ControllerState.IDLE, ControllerState.CONTROLLER_SHUTDOWN)
"""The first is none, in the second nothing is handled any more."""


_STEPS_WITHOUT_AWAIT: Final = ("send_requests", "send_pending_deletions", "_start_partitions")
"""Steps of failover that wait for nothing: nothing comes in between."""


def _awaited_steps() -> list[str]:
    """The names of the calls that failover awaits, in order, read from its source."""
    tree = ast.parse(inspect.getsource(on_controller_failover))
    calls = [n.value for n in ast.walk(tree) if isinstance(n, ast.Await) and isinstance(n.value, ast.Call)]
    names = [c.func.attr if isinstance(c.func, ast.Attribute) else getattr(c.func, "id", "") for c in calls]
    return [name for name in dict.fromkeys(names) if name not in _STEPS_WITHOUT_AWAIT]


_PARTITION_ERRORS: Final[Mapping[int, str]] = {
    ErrorCode.NONE: "an ISR change is accepted",
    ErrorCode.UNKNOWN_TOPIC_ID: "an ISR change of an unknown topic",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "an ISR change of an unknown partition",
    ErrorCode.FENCED_LEADER_EPOCH: "an ISR change of an older leader epoch",
    ErrorCode.INVALID_UPDATE_VERSION: "an ISR change of an older partition epoch",
    ErrorCode.INVALID_REQUEST: "an invalid ISR change",
    ErrorCode.INELIGIBLE_REPLICA: "an ISR change with an ineligible replica",
}
_REQUEST_ERRORS: Final[Mapping[int, str]] = {
    ErrorCode.NOT_CONTROLLER: "an ISR change reaches a broker that is not controller",
    ErrorCode.STALE_BROKER_EPOCH: "an ISR change of an earlier run of a broker",
}
_OTHER_GOALS: Final = (
    "an ISR change that was already made",
    "a leader is replaced while its ISR change is pending",
    "a topic is deleted while an ISR change is pending",
    "an assignment changes while an ISR change is pending",
    "an ISR shrinks to one",
    "a partition without a leader keeps its last ISR member",
    "a broker is recognized as bounced",
    "a deletion is stopped",
    "a deletion is resumed",
    "a deletion is retried",
    "a topic is completely deleted",
    "a reassignment ends",
    "an unclean leader",
)
FAILOVER_STEPS: Final = tuple(_awaited_steps())
GOALS: Final = (
    *(f"{state.name} while other events wait" for state in ControllerState if state not in _STATES_WITHOUT_GOAL),
    *(f"failover is interrupted in {step}" for step in FAILOVER_STEPS),
    *_PARTITION_ERRORS.values(),
    *_REQUEST_ERRORS.values(),
    *_OTHER_GOALS,
    *(f"fault: {row.name}" for row in FAULT_ROWS),
    *(f"work: {verb}" for verb in VERBS),
)


class Cluster(Protocol):
    """The part of the cluster that coverage goals look at."""

    history: History

    @property
    def nodes(self) -> Mapping[int, Node]:
        """All nodes by broker id, stopped ones included."""


class CoverageGoals:
    """Counts how often one schedule reached each coverage goal."""

    def __init__(self, cluster: Cluster) -> None:
        self.reached: Counter[str] = Counter()
        self._cluster = cluster
        self._read_before: dict[int, int] = {}
        """By controller epoch: which registrations its controller knew before the change that it handles."""
        self._deleting: set[tuple[int, BrokerId, TopicPartition]] = set()
        self._sees: Mapping[type[Any], Any] = {
            trace.EventBegan: self._event_began,
            trace.EventEnded: self._event_ended,
            trace.TransactionCommitted: self._transaction_committed,
            trace.StateWritten: self._state_written,
            trace.TopicWritten: self._topic_written,
            trace.ReplicaMoved: self._replica_moved,
        }

    def count_event(self, event: Event) -> None:
        """Count the goals that an event reaches; call it before the event is added to the history."""
        if (look := self._sees.get(type(event))) is not None:
            look(event)

    def count_verb(self, verb: str) -> None:
        """Count an operation that took effect."""
        self.reached[f"work: {verb}"] += 1

    def count_faults(self, faults: Iterable[str], story: Iterable[tuple[float, object]]) -> None:
        """Count each fault whose effect appears in the log."""
        text = "\n".join(what for _, what in story if isinstance(what, str))
        performed = set(faults)
        for row in FAULT_ROWS:
            if row.name in performed and row.sign in text:
                self.reached[f"fault: {row.name}"] += 1

    # ---- controllers

    def _event_began(self, event: trace.EventBegan) -> None:
        """Count, per controller state, the events that began while other events were queued."""
        if event.term is None:
            return
        if any(kind is not type(event.event) for kind in event.waiting):
            self.reached[f"{event.event.state.name} while other events wait"] += 1
        if isinstance(event.event, events.BrokerChange):
            self._read_before[event.term.epoch] = self._cluster.history.broker_views.read_since[event.term.epoch]

    def _event_ended(self, event: trace.EventEnded) -> None:
        """Count bounced brokers that the controller noticed, and the results of AlterPartition."""
        if event.term is not None and isinstance(event.event, events.BrokerChange):
            if self._has_bounced(self._read_before.pop(event.term.epoch)):
                self.reached["a broker is recognized as bounced"] += 1
        elif isinstance(event.event, events.AlterPartitionReceived):
            self._count_alter_partition_result(event.event)

    def _has_bounced(self, since: int) -> bool:
        """Whether a broker has registered again, as after a restart, since this zxid."""
        registrations = self._cluster.history.registrations
        for seen in registrations.changes.values():
            then = next((epoch for at, epoch in reversed(seen) if at <= since), -1)
            if then >= 0 and seen[-1][1] > then:
                return True
        return False

    def _count_alter_partition_result(self, asked: events.AlterPartitionReceived) -> None:
        """Count the error codes with which AlterPartition was answered."""
        answer = asked.reply.result()
        if (name := _REQUEST_ERRORS.get(answer.error_code)) is not None:
            self.reached[name] += 1
        epochs = {p.partition_index: p.partition_epoch for t in asked.request.topics for p in t.partitions}
        for topic in answer.topics:
            for got in topic.partitions:
                if (name := _PARTITION_ERRORS.get(got.error_code)) is not None:
                    self.reached[name] += 1
                if not got.error_code and got.partition_epoch <= epochs.get(got.partition_index, -1):
                    self.reached["an ISR change that was already made"] += 1

    def _transaction_committed(self, event: trace.TransactionCommitted) -> None:
        """Count failovers that were interrupted because `/controller` was deleted, by failover step."""
        if any(isinstance(c, DeleteChange) and c.path == CONTROLLER for c in event.changes):
            term = self._cluster.history.controllers.active
            if term is not None and (step := _failover_step(term, self._cluster.nodes[term.broker].host)) is not None:
                self.reached[f"failover is interrupted in {step}"] += 1

    # ---- partitions

    def _state_written(self, event: trace.StateWritten) -> None:
        """Count notable changes of partition states, such as an ISR that shrinks to one broker."""
        before, after = event.before, event.after
        if before is None:
            return
        if (
            after.leader_epoch > before.leader_epoch
            and after.leader != before.leader
            and self._pending(event.partition)
        ):
            self.reached["a leader is replaced while its ISR change is pending"] += 1
        self.reached["an ISR shrinks to one"] += len(after.isr) == 1 < len(before.isr)
        self.reached["a partition without a leader keeps its last ISR member"] += (
            not after.has_leader and len(after.isr) == 1
        )
        self.reached["an unclean leader"] += after.has_leader and after.leader not in before.isr

    def _topic_written(self, event: trace.TopicWritten) -> None:
        """Count deleted topics, ended reassignments, and changes during a pending AlterPartition."""
        if event.before is None:
            return
        partitions = [TopicPartition(event.topic, n) for n in event.before.partitions]
        pending = any(self._pending(p) for p in partitions)
        if event.after is None:
            self.reached["a topic is completely deleted"] += 1
            self.reached["a topic is deleted while an ISR change is pending"] += pending
        elif event.after.partitions != event.before.partitions:
            self.reached["an assignment changes while an ISR change is pending"] += pending
            ended = (a.is_being_reassigned and not event.after.partitions[n].is_being_reassigned
                     for n, a in event.before.partitions.items() if n in event.after.partitions)  # fmt: skip
            self.reached["a reassignment ends"] += any(ended)

    def _pending(self, p: TopicPartition) -> bool:
        """Whether a leader of this partition waits for the response to an AlterPartition."""
        for node in self._cluster.nodes.values():
            replica = node.broker.replicas.hosted.get(p) if node.host.is_alive else None
            if replica is not None and replica.proposal is not None:
                return True
        return False

    def _replica_moved(self, event: trace.ReplicaMoved) -> None:
        """Count topic deletions that were retried, stopped or resumed."""
        key = event.term.epoch, event.broker, event.partition.key
        if event.after is ReplicaState.DELETION_STARTED:
            self.reached["a deletion is retried"] += key in self._deleting
            self._deleting.add(key)
        elif event.after is ReplicaState.DELETION_INELIGIBLE:
            self.reached["a deletion is stopped"] += event.before is ReplicaState.DELETION_STARTED
        elif event.before is ReplicaState.DELETION_INELIGIBLE and event.after is ReplicaState.OFFLINE:
            self.reached["a deletion is resumed"] += 1


def _failover_step(term: trace.Term, host: Host) -> str | None:
    """The step of failover that this term's controller is at; None once failover is complete."""
    worker = f"node-{term.broker}.{term.incarnation}/controller-events"
    for task in host.unfinished():
        if not task.get_name().startswith(worker):
            continue
        awaited: Any = task.get_coro()
        is_below = False
        while awaited is not None:
            frame = getattr(awaited, "cr_frame", None)
            name = frame.f_code.co_name if frame is not None else ""
            if is_below and name in FAILOVER_STEPS:
                return str(name)
            is_below = is_below or name == on_controller_failover.__name__
            awaited = getattr(awaited, "cr_await", None)
    return None


def unreached_goals(reached: Mapping[str, int]) -> list[str]:
    """The coverage goals that were never reached."""
    return [goal for goal in GOALS if not reached.get(goal)]
