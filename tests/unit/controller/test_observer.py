"""A observer hears of terms, events and moves, in the order in which they happen."""

from collections.abc import AsyncIterator, Iterable

import pytest
from tests.support.controller_nodes import Nodes

from klamm.controller.context import Partition
from klamm.controller.controller import HANDLERS
from klamm.controller.events import Event, TopicChange
from klamm.controller.observer import Observer
from klamm.controller.states import PartitionState, ReplicaState
from klamm.controller.term_context import TermContext
from klamm.model.ids import BrokerId
from klamm.zk.operations import Delete
from klamm.zk.znodes import CONTROLLER


class Notes(Observer):
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.term: TermContext | None = None

    def term_begins(self, term: TermContext) -> None:
        self.term = term
        term.context.moves = self
        self.lines.append(f"term {term.context.epoch} begins")

    def term_ends(self, term: TermContext) -> None:
        self.lines.append(f"term {term.context.epoch} ends, {len(term.channels)} channels open")

    def event_begins(self, event: Event, waiting: Iterable[Event]) -> None:
        self.lines.append(f"{type(event).__name__} begins, {len(list(waiting))} wait")

    def event_ends(self, event: Event) -> None:
        self.lines.append(f"{type(event).__name__} ends")

    def mistake(self, error: Exception) -> None:
        self.lines.append(f"mistake: {error!r}")

    def partition_moves(self, partition: Partition, before: PartitionState, after: PartitionState) -> None:
        self.lines.append(f"{partition}: {before} to {after}")

    def replica_moves(self, broker: BrokerId, partition: Partition, before: ReplicaState, after: ReplicaState) -> None:
        self.lines.append(f"{partition} on {broker}: {before} to {after}")


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    made = Nodes()
    yield made
    await made.close()


async def test_an_observer_is_notified_of_terms_events_and_transitions(nodes: Nodes) -> None:
    notes = Notes()
    await nodes.start(1, observer=notes)
    await nodes.settle()
    assert notes.lines[:3] == ["Startup begins, 0 wait", "term 1 begins", "Startup ends"]
    notes.lines.clear()

    await nodes.topic("a", [(1,)])
    assert [line for line in notes.lines if line.startswith(("a-0", "Topic"))] == [
        "TopicChange begins, 0 wait",
        "a-0: NonExistentPartition to NewPartition",
        "a-0 on 1: NonExistentReplica to NewReplica",
        "a-0: NewPartition to OnlinePartition",
        "a-0 on 1: NewReplica to OnlineReplica",
        "TopicChange ends",
    ]
    notes.lines.clear()

    nodes.ensemble.apply([Delete(CONTROLLER)])
    await nodes.settle()
    assert notes.lines[:3] == ["Reelect begins, 0 wait", "term 1 ends, 0 channels open", "term 2 begins"]


async def test_an_observer_is_notified_of_unexpected_errors(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    await nodes.start(1, observer=notes)
    await nodes.settle()

    async def errs(term: TermContext, event: Event) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setitem(HANDLERS, TopicChange, errs)
    await nodes.topic("a", [(1,)])

    assert "mistake: ZeroDivisionError('oops')" in notes.lines
