"""A journal and a snapshot of three brokers with one partition, for tests of answers."""

import uuid
from itertools import count

from tests.support.controller_room import ListSink

from klamm.audit.snapshot import Ownership, Snapshot
from klamm.explain.sources import ExplainInputs
from klamm.model.assignment import ReplicaAssignment
from klamm.model.brokers import Broker
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.telemetry.journal import Journal
from klamm.telemetry.journal_reader import parse_lines
from klamm.zk.registrations import Registration

P = TopicPartition("orders", 0)


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    """The numbers as broker ids."""
    return tuple(map(BrokerId, numbers))


class Clock:
    """A second later each time."""

    def __init__(self) -> None:
        self._seconds = count(1_700_000_000)

    def now_ms(self) -> int:
        return next(self._seconds) * 1000


class Scene:
    def __init__(self) -> None:
        self._sink = ListSink()
        self.journal = Journal(self._sink, 2, Clock())
        self.journal.controller_epoch = 4
        self.now = Snapshot(
            1_700_000_100_000, BrokerId(2), Ownership(0x22, 5), controller_epoch=4, controller_epoch_version=4
        )
        for broker in ids(2, 3):
            self.now.brokers[broker] = Registration(Broker(broker, ()))
            self.now.broker_ownership[broker] = Ownership(0x20 + broker, 100 + broker)
        self.now.topic_ids["orders"] = uuid.UUID(int=1)
        self.place(ReplicaAssignment(ids(1, 2, 3)), LeaderAndIsr(BrokerId(3), 9, ids(3, 2), 4))

    def place(self, assignment: ReplicaAssignment, state: LeaderAndIsr) -> None:
        """Set assignment and state of orders-0 in ZooKeeper."""
        self.now.assignments[P], self.now.states[P] = assignment, state

    def broker_died(self) -> None:
        """Broker 1 dies, and the controller elects broker 3."""
        cause = self.journal.event("BrokerChange", waited_ms=0.1)
        self.journal.found(cause, new=[], dead=[1], bounced=[])
        facts = {"leader_from": 1, "leader_to": 3, "leader_epoch": 9, "isr_from": [1, 3], "isr": [3]}
        self.journal.decision(cause, "offline", P, 3, rejected=[(1, "not live")], **facts)

    def inputs(self, *, now: bool = True) -> ExplainInputs:
        """What `klamm explain` would read; without `now`, ZooKeeper is not named."""
        self.journal.flush()
        return ExplainInputs(list(parse_lines(self._sink.content)), "here", self.now if now else None)
