"""What happened so far, as checkers may know it: elections, states of partitions, and the orders brokers got."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.zookeeper.tree import CreateChange, DeleteChange, SetChange, Transaction
from klamm.zk import znodes
from klamm.zk.operations import Check, Op
from klamm.zk.znodes import MalformedZnode


class Elected(NamedTuple):
    """A write of `/controller_epoch` after its creation."""

    epoch: int
    before: int
    broker: BrokerId | None  # whom the same transaction made controller
    session: int


class StateWritten(NamedTuple):
    """A write of a partition's `state` znode."""

    partition: TopicPartition
    before: LeaderAndIsr | None
    after: LeaderAndIsr
    replicas: tuple[BrokerId, ...]
    session: int
    checks_epoch: bool
    """The write was bound to a version of `/controller_epoch`."""


class OrderReceived(NamedTuple):
    """LeaderAndIsr, UpdateMetadata or StopReplica reached a broker, which refused it or not."""

    broker: BrokerId
    incarnation: int
    broker_epoch: int
    message: Any
    refusal: ErrorCode


Event = Elected | StateWritten | OrderReceived


@dataclass(slots=True)
class History:
    epoch: int = 0
    winners: dict[int, tuple[BrokerId | None, int]] = field(default_factory=dict)
    """Controller epoch -> (broker, session) that won it."""
    assignments: dict[str, dict[int, tuple[BrokerId, ...]]] = field(default_factory=dict)
    states: dict[TopicPartition, list[LeaderAndIsr]] = field(default_factory=dict)
    """Every version a state znode had; the index is the partition epoch."""
    leaders: dict[tuple[TopicPartition, int], BrokerId] = field(default_factory=dict)
    """(partition, leader epoch) -> the leader of that epoch."""
    applied: dict[tuple[BrokerId, int], int] = field(default_factory=dict)
    """(broker, incarnation) -> the highest controller epoch it followed."""

    def events_of(self, transaction: Transaction, ops: Sequence[Op]) -> Iterator[Event]:
        """What a transaction means; take each event in with `absorb` before asking for the next."""
        changes = {c.path: c for c in transaction.changes}
        checks = any(isinstance(op, Check) and op.path == znodes.CONTROLLER_EPOCH for op in ops)
        for path, change in changes.items():
            if isinstance(change, DeleteChange) or not isinstance(change, SetChange | CreateChange):
                continue
            if path == znodes.CONTROLLER_EPOCH and isinstance(change, SetChange):
                created = changes.get(znodes.CONTROLLER)
                won = znodes.decode_controller(created.data) if isinstance(created, CreateChange) else None
                epoch = znodes.decode_controller_epoch(change.data)
                yield Elected(epoch, self.epoch, won.broker if won else None, transaction.session)
            elif path.startswith("/brokers/topics/"):
                yield from self._topic_event(path.split("/")[3:], change.data, transaction.session, checks)

    def _topic_event(self, parts: list[str], data: bytes | None, session: int, checks: bool) -> Iterator[Event]:
        topic = parts[0]
        if len(parts) == 1:
            try:
                found = znodes.decode_topic(topic, data)
            except MalformedZnode:
                return  # somebody's nonsense: no topic
            self.assignments[topic] = {n: a.replicas for n, a in found.partitions.items()}
        elif len(parts) == 4 and parts[3] == "state":
            p = TopicPartition(topic, int(parts[2]))
            versions = self.states.get(p, [])
            after = znodes.decode_state(p, data, len(versions))
            replicas = self.assignments[topic][p.partition]
            yield StateWritten(p, versions[-1] if versions else None, after, replicas, session, checks)

    def absorb(self, event: Event) -> None:
        if isinstance(event, Elected):
            self.epoch = event.epoch
            self.winners[event.epoch] = event.broker, event.session
        elif isinstance(event, StateWritten):
            self.states.setdefault(event.partition, []).append(event.after)
            if event.after.has_leader:
                self.leaders[event.partition, event.after.leader_epoch] = event.after.leader
        elif not event.refusal:
            self.applied[event.broker, event.incarnation] = event.message.controller_epoch
