"""The states of whole topics, as a new controller sends them: a few byte strings for each topic.

A new controller sends the states of all partitions to all brokers. An object for each partition and an entry for each
replica would take most of a failover's time. The objects are made where somebody asks for them: to merge a waiting
request with a newer one, or to look at it.
"""

from abc import abstractmethod
from collections import defaultdict
from collections.abc import ItemsView, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

from klamm.controller.context import ControllerContext
from klamm.controller.encoded_bodies import SharedState
from klamm.controller.sent_states import leader_and_isr_state_of
from klamm.controller.state_encoder import StateEncoder
from klamm.controller.steps import REQUEST_PARTITIONS
from klamm.controller.topic import Partition, Topic
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.wire.messages import UpdateMetadataPartitionState
from klamm.wire.source import JoinedElements

StateT = TypeVar("StateT")


def may_be_sent_whole(context: ControllerContext, topic: Topic) -> bool:
    """Whether a new controller sends the topic as a whole, if all its partitions are `sent_to_live_replicas`."""
    return not context.offline_dirs and topic.name not in context.topics_to_be_deleted


def sent_to_live_replicas(context: ControllerContext, partitions: Iterable[Partition]) -> bool:
    """Whether each of these partitions has a state and a live replica.

    Brokers are sent the stored assignments: no reassignment completes before a new controller has sent all states.
    """
    if not all(p.leadership and p.assignment.replicas for p in partitions):
        return False
    live = context.live
    if live.issuperset(context.replica_states):
        return True
    assigned = {p.assignment.replicas for p in partitions}  # a few for many partitions
    return not any(live.isdisjoint(replicas) for replicas in assigned)


@dataclass(slots=True, eq=False)
class TopicPart:
    """At most REQUEST_PARTITIONS partitions of a topic, and what they had when their requests were made."""

    topic: Topic
    removals: int
    partitions: list[Partition]
    leaderships: list[LeaderAndIsr]
    assignments: list[ReplicaAssignment]
    live: frozenset[BrokerId]
    with_recovery: bool

    def is_current(self, context: ControllerContext) -> bool:
        """Whether no partition of the topic has been removed since."""
        return context.topics.get(self.topic.name) is self.topic and self.topic.removals == self.removals

    def held_by(self, broker: BrokerId) -> Iterator[Partition]:
        """The partitions with a replica on the broker."""
        return (p for p, a in zip(self.partitions, self.assignments, strict=True) if broker in a.replicas)

    def leader_and_isr(self, broker: BrokerId) -> Iterator[tuple[Partition, SharedState]]:
        """These partitions with their states in a LeaderAndIsr."""
        for p, leadership, assignment in zip(self.partitions, self.leaderships, self.assignments, strict=True):
            if broker in assignment.replicas:
                yield p, leader_and_isr_state_of(p, leadership, assignment, False, self.with_recovery, brief=True)

    def metadata(self) -> Iterator[tuple[Partition, UpdateMetadataPartitionState]]:
        """All partitions with their states in an UpdateMetadata."""
        for p, leadership, assignment in zip(self.partitions, self.leaderships, self.assignments, strict=True):
            leader, leader_epoch, isr, controller_epoch, partition_epoch, _ = leadership
            replicas = assignment.replicas
            offline = offline_replicas(replicas, self.live)
            yield (
                p,
                UpdateMetadataPartitionState(
                    "", p.partition, controller_epoch, leader, leader_epoch, isr, partition_epoch, replicas, offline
                ),
            )


@dataclass(slots=True)
class EncodedParts:
    """The states of whole topics, for all requests of one send."""

    leader_and_isr: "dict[BrokerId, LeaderAndIsrStates]" = field(default_factory=dict)
    """By live broker."""
    metadata: "list[MetadataStates]" = field(default_factory=list)
    """For one UpdateMetadata each."""
    _leaders_of_replicas: set[tuple[BrokerId, tuple[BrokerId, ...]]] = field(default_factory=set)
    _metadata_suffixes: "_MetadataSuffixes | None" = None

    def add(self, context: ControllerContext, encoder: StateEncoder, topic: Topic, partitions: list[Partition]) -> None:
        """Encode the states of these partitions of a topic."""
        leaderships = [p.leadership for p in partitions if p.leadership is not None]
        assignments = [p.assignment for p in partitions]
        part = TopicPart(
            topic, topic.removals, partitions, leaderships, assignments, context.live, encoder.has_recovery_state
        )
        common = encoder.common
        encoded = [p.encoded or common(p) for p in partitions]
        for p in partitions:
            p.encoded = b""  # frees it
        self._add_leader_and_isr(encoder, part, encoded)
        self._add_metadata(encoder, part, encoded)
        pairs = zip(leaderships, assignments, strict=True)
        self._leaders_of_replicas.update([(leadership.leader, assignment.replicas) for leadership, assignment in pairs])

    def leaders(self) -> dict[BrokerId, set[int]]:
        """By broker, the leaders of the partitions with a replica on it."""
        leaders: dict[BrokerId, set[int]] = {}
        for leader, replicas in self._leaders_of_replicas:
            for broker in replicas:
                leaders.setdefault(broker, set()).add(leader)
        return leaders

    def _add_leader_and_isr(self, encoder: StateEncoder, part: TopicPart, encoded: list[bytes]) -> None:
        """Add the encoded states to the LeaderAndIsr request of each live broker with replicas of these partitions."""
        suffix = encoder.leader_and_isr_suffix((), (), 0)
        if any(a.adding or a.removing for a in part.assignments) or any(s.recovery for s in part.leaderships):
            suffix = b""
            encoded = [
                common + encoder.leader_and_isr_suffix(a.adding, a.removing, s.recovery)
                for common, a, s in zip(encoded, part.assignments, part.leaderships, strict=True)
            ]
        held: defaultdict[BrokerId, list[bytes]] = defaultdict(list)
        for state, assignment in zip(encoded, part.assignments, strict=True):
            for broker in assignment.replicas:
                held[broker].append(state)
        for broker, its in held.items():
            if broker in part.live:
                states = self.leader_and_isr.get(broker)
                if states is None:
                    states = self.leader_and_isr[broker] = LeaderAndIsrStates(broker)
                states.add(part, JoinedElements(suffix.join(its) + suffix, len(its)))

    def _add_metadata(self, encoder: StateEncoder, part: TopicPart, encoded: list[bytes]) -> None:
        """Join the states for all brokers, into the last UpdateMetadata if they fit in."""
        suffix, live = encoder.metadata_suffix(()), part.live
        if not live.issuperset(chain.from_iterable({a.replicas for a in part.assignments})):
            suffix = b""
            suffixes = self._metadata_suffixes
            if suffixes is None or suffixes.live != live:
                suffixes = self._metadata_suffixes = _MetadataSuffixes(encoder, live)
            encoded = [common + suffixes[a.replicas] for common, a in zip(encoded, part.assignments, strict=True)]
        if not self.metadata or len(self.metadata[-1]) + len(encoded) > REQUEST_PARTITIONS:
            self.metadata.append(MetadataStates())
        self.metadata[-1].add(part, JoinedElements(suffix.join(encoded) + suffix, len(encoded)))


class _MetadataSuffixes(dict[tuple[BrokerId, ...], bytes]):
    """By replicas, what follows the common bytes of a state in UpdateMetadata; made when it is first asked for."""

    def __init__(self, encoder: StateEncoder, live: frozenset[BrokerId]) -> None:
        super().__init__()
        self.live = live
        self._encoder = encoder

    def __missing__(self, replicas: tuple[BrokerId, ...]) -> bytes:
        suffix = self[replicas] = self._encoder.metadata_suffix(offline_replicas(replicas, self.live))
        return suffix


def offline_replicas(replicas: tuple[BrokerId, ...], live: frozenset[BrokerId]) -> tuple[BrokerId, ...]:
    """The replicas on brokers that are not live."""
    return () if live.issuperset(replicas) else tuple(b for b in replicas if b not in live)


class _States(Mapping[Partition, StateT]):
    """The states of partitions, made anew each time somebody looks at them."""

    def __init__(self) -> None:
        self.parts: list[tuple[TopicPart, Any]] = []
        """Each with the encoded states, a `JoinedElements`, which takes the place of a list of states."""
        self._count = 0

    def add(self, part: TopicPart, encoded: JoinedElements) -> None:
        """Add partitions of a topic, with their encoded states."""
        self.parts.append((part, encoded))
        self._count += len(encoded)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, partition: Partition) -> StateT:
        """Look through all: for a few partitions only."""
        for p, state in self.pairs():
            if p is partition:
                return state
        raise KeyError(partition)

    def __iter__(self) -> Iterator[Partition]:
        return (p for p, _ in self.pairs())

    def items(self) -> ItemsView[Partition, StateT]:
        """A view of partitions and states, which makes the states one after the other."""
        return _Items(self)

    @abstractmethod
    def pairs(self) -> Iterator[tuple[Partition, StateT]]:
        """Make the states one after the other."""


class _Items(ItemsView[Partition, StateT]):
    """Looks at each partition once."""

    _mapping: _States[StateT]

    def __iter__(self) -> Iterator[tuple[Partition, StateT]]:
        return self._mapping.pairs()


class LeaderAndIsrStates(_States[SharedState]):
    """The states in the first LeaderAndIsr of one broker: of whole topics, and of other partitions."""

    def __init__(self, broker: BrokerId) -> None:
        super().__init__()
        self.broker = broker
        self.others: dict[Partition, SharedState] = {}

    def __len__(self) -> int:
        return self._count + len(self.others)

    def __iter__(self) -> Iterator[Partition]:
        for part, _ in self.parts:
            yield from part.held_by(self.broker)
        yield from self.others

    def pairs(self) -> Iterator[tuple[Partition, SharedState]]:
        """Make the states one after the other."""
        for part, _ in self.parts:
            yield from part.leader_and_isr(self.broker)
        yield from self.others.items()


class MetadataStates(_States[UpdateMetadataPartitionState]):
    """The states in one UpdateMetadata with whole topics."""

    def __iter__(self) -> Iterator[Partition]:
        for part, _ in self.parts:
            yield from part.partitions

    def pairs(self) -> Iterator[tuple[Partition, UpdateMetadataPartitionState]]:
        """Make the states one after the other."""
        for part, _ in self.parts:
            yield from part.metadata()


def parts_of(topic: Topic) -> Iterable[list[Partition]]:
    """The topic's partitions in lists that are encoded at a time."""
    partitions = list(topic.partitions.values())
    for start in range(0, len(partitions), REQUEST_PARTITIONS):
        yield partitions[start : start + REQUEST_PARTITIONS]
