"""The journal: JSON lines of what a node did and why.

Each line has `ts_ms`, `node`, `controller_epoch`, `seq`, `cause` and `kind`. An event's line begins a cause; the lines
that follow from the event (decisions with the rejected candidates, znode writes, requests, responses) name it. A
decision has one line per partition; writes and requests have one line per batch, with their partitions as `{topic:
[numbers]}`. Lines are buffered until `flush`, so that a killed process loses at most the lines of one event.
`journal_reader` reads them.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from klamm.model.ids import NO_BROKER
from klamm.model.leader_and_isr import LeaderAndIsr

JOURNAL_TOPIC: Final = "__klamm_journal"
"""The topic that the nodes of `klamm up` write the journal to, beside the files."""
STATE_FOUND: Final = "found"
"""In place of the kind of a decision: the controller read a state from ZooKeeper that it had not written."""
FLUSH_BYTES: Final = 256 * 1024  # a long event is written in pieces: memory stays flat

Rejected = Sequence[tuple[int, str]]
"""Candidates passed over: (broker, why)."""


class Clock(Protocol):
    def now_ms(self) -> int:
        """Return the wall clock time in ms since 1970."""


class Sink(Protocol):
    """Stores journal lines. `incarnation` differs between two starts of a node."""

    @property
    def incarnation(self) -> int:
        """A number that increases with each start and each change of directory; it is part of event ids."""

    def write(self, lines: bytes) -> None:
        """Append the lines to the journal. Raises OSError where they could not be kept."""
        ...


class Partitioned(Protocol):
    @property
    def topic(self) -> str:
        """The name of the topic."""

    @property
    def partition(self) -> int:
        """The number of the partition in its topic."""


def by_topic(partitions: Iterable[Partitioned]) -> dict[str, list[int]]:
    """Partition numbers by topic, as batch lines have them."""
    grouped: dict[str, list[int]] = {}
    for p in partitions:
        grouped.setdefault(p.topic, []).append(p.partition)
    return grouped


LeaderChange: TypeAlias = tuple[Partitioned, LeaderAndIsr | None, LeaderAndIsr, Rejected, bool]
"""A partition, its state before and after, the candidates passed over, and whether the election was unclean."""


class _LeaderDecision(msgspec.Struct, gc=False):
    """The keys of a leader decision's line, in order."""

    ts_ms: int
    node: int
    controller_epoch: int
    seq: int
    cause: str
    kind: str
    decision: str
    topic: str
    partition: int
    chosen: int | None
    rejected: Rejected
    leader_from: int | None
    leader_to: int
    leader_epoch: int
    partition_epoch: int
    isr_from: Sequence[int] | None
    isr: Sequence[int]
    unclean: bool | msgspec.UnsetType = msgspec.UNSET
    replicas: Sequence[int] | msgspec.UnsetType = msgspec.UNSET


_ENCODER: Final = msgspec.json.Encoder()
_encode: Final = _ENCODER.encode


class Journal:
    """Writes one node's journal.

    A full disk raises nothing: lost lines are counted, and their number is written when there is room again. Without a
    sink no line is made; causes are numbered nevertheless.
    """

    def __init__(self, sink: Sink | None, node_id: int, clock: Clock) -> None:
        self._sink = sink
        self._causes_of = f"{node_id}.{sink.incarnation if sink else 0}."
        self._node_id = node_id
        self._clock = clock
        self._buffer = bytearray()
        self._buffered_lines = 0
        self._seq = 0
        self._causes = 0
        self.lost_lines = 0
        self.controller_epoch = 0
        """The epoch this node's controller acts in; 0 while it does not."""
        self._retried: Hashable = None
        """The key of the event in work, where it retries what an event before it could not do."""
        self._refused: dict[int, Hashable] = {}
        """Hashes of refusals written while something is retried, and the retry that wrote or found them last."""
        self._refused_now: set[int] = set()

    @property
    def is_kept(self) -> bool:
        """Whether lines are stored; if not, expensive facts need not be collected."""
        return self._sink is not None

    def event(self, kind: str, **facts: Any) -> str:
        """Begin an event; returns the id that its lines have as cause."""
        return self.begin("event", event=kind, **facts)

    def begin(self, kind: str, **facts: Any) -> str:
        """Write a journal line of this kind that later lines name as their cause; return its id."""
        self._causes += 1
        cause = f"{self._causes_of}{self._causes}"
        self.line(cause, kind, **facts)
        return cause

    def found(self, cause: str, **facts: Any) -> None:
        """Write what the event read from ZooKeeper, such as dead brokers or new topics."""
        self.line(cause, "found", **facts)

    def decision(
        self, cause: str, kind: str, partition: Partitioned, chosen: int | None, rejected: Rejected = (), **facts: Any
    ) -> None:
        """Write a decision; `chosen` is a broker, or None if none was eligible; `facts` are its reasons."""
        self.line(
            cause,
            "decision",
            decision=kind,
            topic=partition.topic,
            partition=partition.partition,
            chosen=chosen,
            rejected=rejected,
            **facts,
        )

    def leader_decision(
        self,
        cause: str,
        kind: str,
        partition: Partitioned,
        before: LeaderAndIsr | None,
        after: LeaderAndIsr,
        rejected: Rejected = (),
        unclean: bool = False,
        replicas: Sequence[int] | None = None,
    ) -> None:
        """Write a decision about a leader or an ISR that is in ZooKeeper; thousands may come in one event.

        `replicas` is the assignment, with the preferred leader first; it is given for new partitions.
        """
        if self._sink is None:
            return
        self._write_decisions(cause, kind, [(partition, before, after, rejected, unclean)], replicas)

    def leader_decisions(self, cause: str, kind: str, changes: Sequence[LeaderChange]) -> None:
        """Write decisions of one kind about leaders or ISRs that are in ZooKeeper, with a line for each."""
        if self._sink is not None and changes:
            self._write_decisions(cause, kind, changes)

    def _write_decisions(
        self, cause: str, kind: str, changes: Sequence[LeaderChange], replicas: Sequence[int] | None = None
    ) -> None:
        """Add a line for each decision to the buffer; they are encoded together, which takes half the time."""
        now_ms = self._clock.now_ms()
        lines = [
            _LeaderDecision(
                now_ms,
                self._node_id,
                self.controller_epoch,
                seq,
                cause,
                "decision",
                kind,
                partition.topic,
                partition.partition,
                after.leader if after.leader != NO_BROKER else None,
                rejected,
                before.leader if before else None,
                after.leader,
                after.leader_epoch,
                after.partition_epoch,
                before.isr if before else None,
                after.isr,
                unclean or msgspec.UNSET,
                msgspec.UNSET if replicas is None else replicas,
            )
            for seq, (partition, before, after, rejected, unclean) in enumerate(changes, self._seq + 1)
        ]
        self._seq += len(lines)
        self._add_lines(_ENCODER.encode_lines(lines), len(lines))

    def write(self, cause: str, what: str, partitions: Mapping[str, Sequence[int]] | None = None, **facts: Any) -> None:
        """Write that ZooKeeper stored znodes, or refused them (`refused` has the reason)."""
        self.line(cause, "write", what=what, partitions=partitions or {}, **facts)

    def request(self, cause: str, broker: int, api: str, partitions: Mapping[str, Sequence[int]], **facts: Any) -> None:
        """Write that a control request was sent to a broker."""
        self.line(cause, "request", broker=broker, api=api, partitions=partitions, **facts)

    def response(self, cause: str, broker: int, api: str, **facts: Any) -> None:
        """Write that a broker answered a control request."""
        self.line(cause, "response", broker=broker, api=api, **facts)

    def refused(self, cause: str, what: str, why: str, **facts: Any) -> None:
        """Write that this controller refuses something that was requested, and why."""
        self.notify(cause, "refused", what=what, why=why, **facts)

    def notify(self, cause: str, kind: str, **facts: Any) -> None:
        """Write a line, unless the event is a retry and wrote the same line before."""
        if self._sink is None:
            return
        content = hash(_encode((kind, facts)))
        self._refused_now.add(content)
        if self._retried is None or content not in self._refused:
            self.line(cause, kind, **facts)

    def begin_retry(self, key: Hashable) -> None:
        """Record that the event that begins is a retry: it failed before, or ZooKeeper refused a part of it."""
        self._retried = key

    def end_event(self, is_retried: bool) -> None:
        """End the event in the journal.

        With `is_retried` its refusals are remembered, so that the retry does not write them again.
        """
        if not is_retried:
            self._refused.clear()
        elif self._refused or self._refused_now:
            self._refused = {c: key for c, key in self._refused.items() if key != self._retried or key is None}
            self._refused |= dict.fromkeys(self._refused_now, self._retried)
        self._refused_now = set()
        self._retried = None

    def line(self, cause: str, kind: str, **facts: Any) -> None:
        """Write one line of this kind with its cause and facts."""
        if self._sink is None:
            return
        self._seq += 1
        encoded = _encode(
            {
                "ts_ms": self._clock.now_ms(),
                "node": self._node_id,
                "controller_epoch": self.controller_epoch,
                "seq": self._seq,
                "cause": cause,
                "kind": kind,
                **facts,
            }
        )
        self._add_lines(encoded + b"\n", 1)

    def _add_lines(self, lines: bytes, count: int) -> None:
        """Add so many lines to the buffer, and flush the buffer when it is full."""
        self._buffer += lines
        self._buffered_lines += count
        if len(self._buffer) >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Pass all lines to the sink; called at the end of each event."""
        if self._sink is None or not self._buffer:
            return
        lines, count = bytes(self._buffer), self._buffered_lines
        self._buffer.clear()
        self._buffered_lines = 0
        try:
            self._sink.write(lines)
        except OSError as error:
            self.lost_lines += count
            self._count_lost_lines(error)

    def _count_lost_lines(self, error: OSError) -> None:
        """Count lines lost to a full disk; the next successful write begins with their number."""
        self.line("", "lost", lines=self.lost_lines, why=str(error))
        self._buffered_lines = 0  # a notice that is lost itself does not count
