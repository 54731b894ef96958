"""What controllers write to their journals, and what these must have by the end of the event."""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from klamm.model.ids import BrokerId, TopicPartition
from klamm.sim.history.controllers import ControllerHistory, Run
from klamm.sim.history.trace import (
    EventBegan,
    EventEnded,
    JournalWritten,
    Position,
    RequestAnswered,
    StateWritten,
    TermBegan,
    TermEnded,
    TopicWritten,
)
from klamm.wire.api import ApiKey

Line = Mapping[str, Any]


@dataclass(slots=True)
class JournalHistory:
    """Of the processes whose journals are read; of the others nothing is recorded."""

    at: Position
    controllers: ControllerHistory
    read: set[Run] = field(default_factory=set)
    """The processes whose journals are read."""
    missing: dict[Run, dict[Hashable, str]] = field(default_factory=dict)
    """What happened in a controller, and is not in its journal yet: by what a line says of it, in words."""
    requests: dict[tuple[Run, int], Line] = field(default_factory=dict)
    """The newest line about a control request, by process and receiver."""
    last_line: dict[Run, int] = field(default_factory=dict)
    """The number of the last line of each journal."""

    def on_state_written(self, event: StateWritten) -> None:
        """Record that the controller's journal must have this decision."""
        if self._may_be_a_leaders(event):
            return
        p, epoch = event.partition, event.after.partition_epoch
        self._expect(self._writer(event.session), ("decision", *p, epoch), f"the decision about {p}: {event.after}")

    def _may_be_a_leaders(self, event: StateWritten) -> bool:
        """Whether the controller's node may have written this ISR as leader, which its journal need not have."""
        before = event.before
        return self.at.leaders_write_isrs and before is not None and before.leader_epoch == event.after.leader_epoch

    def on_topic_written(self, event: TopicWritten) -> None:
        """Record that the controller's journal must have these steps of reassignments, or the deletion."""
        run = self._writer(event.session)
        if run is None or event.before is None:
            return
        if event.after is None:
            self._expect(run, ("deletion", event.topic), f"the deletion of {event.topic}")
            return
        for number, before in event.before.partitions.items():
            after = event.after.partitions.get(number)
            if after is None or after == before:
                continue
            p = TopicPartition(event.topic, number)
            is_done = before.is_being_reassigned and not after.is_being_reassigned and after.replicas == before.target
            step = "complete" if is_done else "begun"
            self._expect(run, ("reassignment", *p, step, after.replicas), f"that the move of {p} is {step}: {after}")

    def on_term_began(self, event: TermBegan) -> None:
        """Record that the controller's journal must have its election."""
        term = event.term
        self._expect((term.broker, term.incarnation), ("elected", term.epoch), f"its election in epoch {term.epoch}")

    def on_term_ended(self, event: TermEnded) -> None:
        """Record that the controller's journal must have its resignation."""
        term = event.term
        self._expect((term.broker, term.incarnation), ("resigned", term.epoch), f"that it resigned in {term.epoch}")

    def on_event_began(self, event: EventBegan) -> None:
        """Record that the controller's journal must have this event."""
        name = type(event.event).__name__
        self._expect((event.broker, event.incarnation), ("event", name), f"that {name} began")

    def on_event_ended(self, event: EventEnded) -> None:
        """Record that the controller's journal must have the end of the event; what failed need not be there."""
        run, name = (event.broker, event.incarnation), type(event.event).__name__
        if event.has_failed or event.is_cut_short:
            self.missing.pop(run, None)
        elif run in self.read:
            self._expect(run, ("done", name), f"that {name} ended")

    def on_answered(self, event: RequestAnswered) -> None:
        """Record that the sender's journal must have this response."""
        run = event.sender, event.incarnation
        api, error = ApiKey(event.message.API_KEY).name, event.response.error_code
        self._expect(run, ("response", event.target, api, error), f"the response of broker {event.target} to {api}")

    def on_written(self, event: JournalWritten) -> None:
        """Record the lines."""
        run = event.broker, event.incarnation
        missing = self.missing.get(run, {})
        for line in event.lines:
            if line["kind"] == "request":
                self.requests[run, line["broker"]] = line
            for told in _told(line):
                missing.pop(told, None)
        if event.lines:
            self.last_line[run] = event.lines[-1]["seq"]

    def _expect(self, run: Run | None, key: Hashable, what: str) -> None:
        """Record that the journal of this process must have a line that says this."""
        if run in self.read:
            self.missing.setdefault(run, {})[key] = what

    def _writer(self, session: int) -> Run | None:
        """The process of the newest controller if this is its session."""
        _, winner = self.controllers.winners.get(self.controllers.epoch, (None, 0))
        return self.controllers.run_of(self.controllers.epoch) if session == winner else None


def _told(line: Line) -> Iterator[Hashable]:
    """What a line says, in the form in which it is missing before."""
    match line:
        case {"kind": "decision", "topic": topic, "partition": number, "partition_epoch": epoch}:
            yield "decision", topic, number, epoch
        case {"kind": "reassignment", "topic": topic, "partition": number, "step": step, "replicas": replicas}:
            yield "reassignment", topic, number, step, tuple(map(BrokerId, replicas))
        case {"kind": "deletion", "step": "completed", "partitions": partitions}:
            yield from (("deletion", topic) for topic in partitions)
        case {"kind": "response", "broker": broker, "api": api, "error": error}:
            yield "response", broker, api, error
        case {"kind": "elected" | "resigned" as kind, "controller_epoch": epoch}:
            yield kind, epoch
        case {"kind": "event" | "done" as kind, "event": name}:
            yield kind, name
