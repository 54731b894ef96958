"""An observer is notified of terms, events, transitions and requests, in the order in which they happen."""

from collections.abc import Iterable

import pytest
from tests.support.controller_nodes import Nodes

from klamm.controller.control_requests import ControlItem
from klamm.controller.controller import HANDLERS
from klamm.controller.events import Event, TopicChange
from klamm.controller.observer import Observer
from klamm.controller.states import PartitionState, ReplicaState
from klamm.controller.term_context import TermContext
from klamm.controller.topic import Partition
from klamm.model.ids import BrokerId
from klamm.zk.operations import Delete
from klamm.zk.znodes import CONTROLLER


class Notes(Observer):
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.term: TermContext | None = None

    def on_term_begin(self, term: TermContext) -> None:
        self.term = term
        self.lines.append(f"term {term.context.epoch} begins")

    def on_term_end(self, term: TermContext) -> None:
        self.lines.append(f"term {term.context.epoch} ends, {len(term.channels)} channels open")

    def on_event_begin(self, event: Event, waiting: Iterable[Event]) -> None:
        self.lines.append(f"{type(event).__name__} begins, {len(list(waiting))} wait")

    def on_event_end(self, event: Event) -> None:
        self.lines.append(f"{type(event).__name__} ends")

    def on_unexpected_error(self, error: Exception) -> None:
        self.lines.append(f"unexpected error: {error!r}")

    def on_partition_transition(self, partition: Partition, before: PartitionState, after: PartitionState) -> None:
        self.lines.append(f"{partition}: {before} to {after}")

    def on_replica_transition(
        self, broker: BrokerId, partition: Partition, before: ReplicaState, after: ReplicaState
    ) -> None:
        self.lines.append(f"{partition} on {broker}: {before} to {after}")

    def on_request_queued(self, broker: BrokerId, item: ControlItem) -> None:
        self.lines.append(f"{type(item).__name__} to {broker}")


async def test_a_controllers_observer_is_notified_of_terms_events_and_state_transitions(nodes: Nodes) -> None:
    notes = Notes()
    await nodes.start(1, observer=notes)
    await nodes.settle()
    assert notes.lines[:4] == [
        "Startup begins, 0 wait",
        "term 1 begins",
        "UpdateMetadataItem to 1",
        "Startup ends",
    ]
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


async def test_a_controllers_observer_is_notified_of_unexpected_errors(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = Notes()
    await nodes.start(1, observer=notes)
    await nodes.settle()

    async def errs(term: TermContext, event: Event) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setitem(HANDLERS, TopicChange, errs)
    await nodes.topic("a", [(1,)])

    assert "unexpected error: ZeroDivisionError('oops')" in notes.lines
