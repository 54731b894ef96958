"""The states of whole topics, as a new controller sends them: a few byte strings for each topic.

A new controller sends the states of all partitions to all brokers. An object for each partition and an entry for each
replica would take most of a failover's time. The objects are made where somebody asks for them: to merge a waiting
request with a newer one, or to look at it.
"""

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Collection, ItemsView, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any, Final, TypeVar

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

_LEADER: Final = itemgetter(LeaderAndIsr._fields.index("leader"))
_REPLICAS: Final = itemgetter(ReplicaAssignment._fields.index("replicas"))


def may_be_sent_whole(context: ControllerContext, topic: Topic) -> bool:
    """Whether a new controller sends the topic as a whole, if all its partitions are `sent_to_live_replicas`."""
    return not context.offline_dirs and topic.name not in context.topics_to_be_deleted


def sent_to_live_replicas(context: ControllerContext, partitions: Collection[Partition]) -> bool:
    """Whether each of these partitions has a state and a live replica.

    Brokers are sent the stored assignments: no reassignment completes before a new controller has sent all states.
    """
    if not all(p.leadership for p in partitions):
        return False
    live = context.live
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


class EncodedParts:
    """The states of whole topics, for all requests of one send.

    LeaderAndIsr is made first; what was encoded for it stays in `Partition.encoded` until UpdateMetadata is made.
    """

    def __init__(self, context: ControllerContext, encoder: StateEncoder) -> None:
        self._context = context
        self._encoder = encoder
        self.leader_and_isr: dict[BrokerId, LeaderAndIsrStates] = {}
        """By live broker."""
        self.metadata: list[MetadataStates] = []
        """For one UpdateMetadata each."""
        self._leaders_of_replicas: set[tuple[BrokerId, tuple[BrokerId, ...]]] = set()
        self._metadata_suffixes = _MetadataSuffixes(encoder, context.live)

    def add_leader_and_isr(self, topic: Topic, partitions: list[Partition]) -> None:
        """Add these partitions of a topic to the LeaderAndIsr request of each live broker with replicas of them."""
        part = self._part(topic, partitions)
        encoded = [p.encoded for p in partitions]
        if not all(encoded):
            self._encoder.prepare(partitions)
            encoded = [p.encoded for p in partitions]
        self._add_to_live_replicas(part, encoded)
        pairs = zip(map(_LEADER, part.leaderships), map(_REPLICAS, part.assignments), strict=True)
        self._leaders_of_replicas.update(pairs)

    def add_metadata(self, topic: Topic, partitions: list[Partition]) -> None:
        """Add these partitions of a topic to the UpdateMetadata for all brokers."""
        part, common = self._part(topic, partitions), self._encoder.common
        encoded = [p.encoded or common(p) for p in partitions]
        for p in partitions:
            p.encoded = b""  # frees it
        self._add_to_metadata(part, encoded)

    def _part(self, topic: Topic, partitions: list[Partition]) -> TopicPart:
        """These partitions with what they have now."""
        leaderships = [p.leadership for p in partitions if p.leadership is not None]
        assignments = [p.assignment for p in partitions]
        live, with_recovery = self._context.live, self._encoder.has_recovery_state
        return TopicPart(topic, topic.removals, partitions, leaderships, assignments, live, with_recovery)

    def leaders(self) -> dict[BrokerId, set[int]]:
        """By broker, the leaders of the partitions with a replica on it."""
        leaders: dict[BrokerId, set[int]] = {}
        for leader, replicas in self._leaders_of_replicas:
            for broker in replicas:
                leaders.setdefault(broker, set()).add(leader)
        return leaders

    def _add_to_live_replicas(self, part: TopicPart, encoded: list[bytes]) -> None:
        """Add the encoded states to the LeaderAndIsr requests."""
        encoder = self._encoder
        suffix = encoder.leader_and_isr_suffix((), (), 0)
        if any(a.adding or a.removing for a in part.assignments) or any(s.recovery for s in part.leaderships):
            suffix = b""
            encoded = [
                common + encoder.leader_and_isr_suffix(a.adding, a.removing, s.recovery)
                for common, a, s in zip(encoded, part.assignments, part.leaderships, strict=True)
            ]
        alike: defaultdict[tuple[BrokerId, ...], list[bytes]] = defaultdict(list)
        for state, (replicas, _, _) in zip(encoded, part.assignments, strict=True):
            alike[replicas].append(state)
        held: defaultdict[BrokerId, list[bytes]] = defaultdict(list)
        counts: defaultdict[BrokerId, int] = defaultdict(int)
        for replicas, states in alike.items():
            joined = suffix.join(states) + suffix
            for broker in part.live.intersection(replicas):
                held[broker].append(joined)
                counts[broker] += len(states)
        for broker in sorted(held):
            if broker not in self.leader_and_isr:
                self.leader_and_isr[broker] = LeaderAndIsrStates(broker)
            self.leader_and_isr[broker].add(part, JoinedElements(b"".join(held[broker]), counts[broker]))

    def _add_to_metadata(self, part: TopicPart, encoded: list[bytes]) -> None:
        """Join the states for all brokers, into the last UpdateMetadata if they fit in."""
        suffix, suffixes = self._encoder.metadata_suffix(()), self._metadata_suffixes
        if not part.live.issuperset(chain.from_iterable({a.replicas for a in part.assignments})):
            suffix = b""
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
