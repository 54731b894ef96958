"""What controllers write to their journals, and what these must have by the end of the event."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from klamm.controller.events import ApiPartitionReassignment, Event, ReplicaLeaderElection
from klamm.model.errors import ErrorCode
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
from klamm.zk.znodes import state_path

Line = Mapping[str, Any]
_WRITTEN: Final = ("decision", "reassignment", "deletion")
"""What a journal says of writes to ZooKeeper."""
_NEXT_STEP: Final = "next step"


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
    to_be_deleted: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By controller epoch: the topics that the journal found to be deleted."""
    last_line: dict[Run, int] = field(default_factory=dict)
    """The number of the last line of each journal."""
    refused: dict[Run, set[TopicPartition]] = field(default_factory=lambda: defaultdict(set))
    """The partitions that the journal said, during this event, to be refused."""
    failed: set[Run] = field(default_factory=set)
    """The processes whose last event failed, or ended their term: it may have ended anywhere."""

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

    def on_refused(self, paths: Iterable[str]) -> None:
        """Expect no line about states whose write is refused: it may be the repetition of one that lost its answer."""
        refused = {path for path in paths if path.endswith("/state")}
        for missing in self.missing.values():
            for key in [key for key in missing if isinstance(key, tuple) and key[0] == "decision"]:
                if state_path(TopicPartition(*key[1:3])) in refused:
                    del missing[key]

    def on_term_began(self, event: TermBegan) -> None:
        """Record that the controller's journal must have its election."""
        term = event.term
        self._expect((term.broker, term.incarnation), ("elected", term.epoch), f"its election in epoch {term.epoch}")

    def on_term_ended(self, event: TermEnded) -> None:
        """Record that the controller's journal must have its resignation.

        A controller that was replaced may not know of its last writes: their answers may be lost with a connection, and
        the repetition is refused because of the new controller's epoch.
        """
        term = event.term
        self.failed.add((term.broker, term.incarnation))
        unknown = (_NEXT_STEP, *(_WRITTEN if term.epoch < self.controllers.epoch else ()))
        missing = self.missing.get((term.broker, term.incarnation), {})
        for key in [key for key in missing if isinstance(key, tuple) and key[0] in unknown]:
            del missing[key]
        self._expect((term.broker, term.incarnation), ("resigned", term.epoch), f"that it resigned in {term.epoch}")

    def on_event_began(self, event: EventBegan) -> None:
        """Record that the controller's journal must have this event."""
        name = type(event.event).__name__
        self.failed.discard((event.broker, event.incarnation))
        self.refused.pop((event.broker, event.incarnation), None)
        self._expect((event.broker, event.incarnation), ("event", name), f"that {name} began")

    def on_event_ended(self, event: EventEnded) -> None:
        """Record that the controller's journal must have the end of the event; what failed need not be there."""
        run, name = (event.broker, event.incarnation), type(event.event).__name__
        if event.has_failed or event.is_cut_short:
            self.missing.pop(run, None)
            self.failed.add(run)
        elif run in self.read:
            self._expect(run, ("done", name), f"that {name} ended")
            for p, error in (_refused(event.event) if event.term is not None else {}).items():
                if p not in self.refused[run]:
                    self._expect(run, ("refused", *p), f"that {name} was refused for {p} with {error.name}")

    def on_answered(self, event: RequestAnswered) -> None:
        """Record that the sender's journal must have this response."""
        run = event.sender, event.incarnation
        api, error = ApiKey(event.message.API_KEY).name, event.response.error_code
        self._expect(run, ("response", event.target, api, error), f"the response of broker {event.target} to {api}")

    def on_written(self, event: JournalWritten) -> None:
        """Record the lines."""
        run = event.broker, event.incarnation
        for line in event.lines:
            if line["kind"] == "request":
                self.requests[run, line["broker"]] = line
            elif line["kind"] == "found":
                self.to_be_deleted[line["controller_epoch"]].update(line.get("to_be_deleted", ()))
                self._expect_next_steps(run, line)
            elif line["kind"] == "reassignment" and line["step"] == "begun" and run not in self.failed:
                self._expect_move(run, line)
            elif line["kind"] == "refused":
                self.refused[run].update(_partitions(line))
            for told in _told(line):
                self.missing.get(run, {}).pop(told, None)
        if event.lines:
            self.last_line[run] = event.lines[-1]["seq"]

    def _expect_next_steps(self, run: Run, line: Line) -> None:
        """Record that the journal must say how the deletion of each topic that was found begins, or why it waits."""
        for topic in line.get("to_be_deleted", ()) if run not in self.failed else ():
            self._expect(run, (_NEXT_STEP, topic), f"how the deletion of {topic} begins, or why it waits")

    def _expect_move(self, run: Run, line: Line) -> None:
        """Record that the journal must say what a move that began waits for, or that it is complete, or why neither."""
        if line.get("adding") or line.get("removing"):
            p = TopicPartition(line["topic"], line["partition"])
            self._expect(run, (_NEXT_STEP, *p), f"what the move of {p} waits for")

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
            if step != "begun":
                yield _NEXT_STEP, topic, number
        case {"kind": "refused", "partitions": dict()}:
            for p in _partitions(line):
                yield from (("refused", *p), (_NEXT_STEP, *p))
        case {"kind": "deletion", "step": step, "partitions": partitions}:
            yield from ((_NEXT_STEP, topic) for topic in partitions)
            yield from (("deletion", topic) for topic in partitions if step == "completed")
        case {"kind": "response", "broker": broker, "api": api, "error": error}:
            yield "response", broker, api, error
        case {"kind": "elected" | "resigned" as kind, "controller_epoch": epoch}:
            yield kind, epoch
        case {"kind": "event" | "done" as kind, "event": name}:
            yield kind, name


def _partitions(line: Line) -> Iterator[TopicPartition]:
    """The partitions that a line lists by topic."""
    for topic, numbers in line.get("partitions", {}).items():
        yield from (TopicPartition(topic, number) for number in numbers)


def _refused(event: Event) -> Mapping[TopicPartition, ErrorCode]:
    """The partitions of a request that the controller refused, and why; without elections that are not needed."""
    if not isinstance(event, ApiPartitionReassignment | ReplicaLeaderElection) or not event.reply.done():
        return {}
    refused = event.reply.result().refused
    return {p: why.error for p, why in refused.items() if why.error is not ErrorCode.ELECTION_NOT_NEEDED}
