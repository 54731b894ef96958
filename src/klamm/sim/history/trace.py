"""What happens in a simulated cluster, one kind of event for each way of seeing it: the input of every invariant.

ZooKeeper tells of each transaction that changed something, a controller's observer of what happens in it, its
connections of what was sent, and a broker of what it received.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from klamm.controller import events
from klamm.controller.control_requests import ControlItem
from klamm.controller.settings import ControllerSettings
from klamm.controller.states import PartitionState, ReplicaState
from klamm.controller.term_context import TermContext
from klamm.controller.topic import Partition
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.zookeeper.tree import Change


@dataclass(slots=True)
class Position:
    zxid: int = 0
    """Of the newest transaction."""
    most_ahead_ms: Callable[[], int] = lambda: 0
    """How far the wall clock of any machine has been ahead of virtual time so far, at most."""
    now_s: float = 0.0
    """The virtual time of what happens now."""
    leaders_write_isrs: bool = False
    """Whether a leader whose protocol is older than AlterPartition may have written its ISR to ZooKeeper so far."""


# ---- ZooKeeper


class TransactionCommitted(NamedTuple):
    """A transaction that changed something; told before what it means in particular."""

    zxid: int
    session: int
    fence: int | None
    """The version of `/controller_epoch` that it was bound to: -1 binds to nothing; None without a check."""
    changes: Sequence[Change]


class ControllerElected(NamedTuple):
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


class TopicZnode(NamedTuple):
    """A topic's znode, and the transaction that created it."""

    id: UUID | None
    partitions: dict[int, ReplicaAssignment]
    czxid: int


class TopicWritten(NamedTuple):
    """A topic's znode: `before` is None where it was created, `after` where it was deleted."""

    topic: str
    before: TopicZnode | None
    after: TopicZnode | None
    session: int


class RegistrationChanged(NamedTuple):
    """A broker's registration came, or (with epoch -1) went."""

    broker: BrokerId
    epoch: int
    session: int


class RegistrationWritten(NamedTuple):
    """What a broker's registration says now."""

    broker: BrokerId
    data: bytes | None


# ---- inside controllers


class Term(NamedTuple):
    """One term of one process."""

    broker: BrokerId
    incarnation: int
    epoch: int
    settings: ControllerSettings
    """What the node was configured with when it started."""

    def __repr__(self) -> str:
        return f"term {self.epoch} of broker {self.broker}.{self.incarnation}"


class TermBegan(NamedTuple):
    term: Term
    memory: TermContext
    """Only rules about memory look at it: `invariants/memory.py`."""


class ContextRead(NamedTuple):
    """A new controller has read brokers, topics and partition states as of the zxid `since` or later."""

    term: Term
    memory: TermContext
    """Only `invariants/contexts.py` looks at it."""
    since: int


class TermEnded(NamedTuple):
    term: Term
    memory: TermContext
    """Likewise."""


class EventBegan(NamedTuple):
    """A controller, active (`term`) or not, begins to handle an event."""

    broker: BrokerId
    incarnation: int
    term: Term | None
    event: events.Event
    waiting: tuple[type[events.Event], ...]
    """What is queued after it."""
    seen_zxid: int = 0
    """How far the controller's ZooKeeper session has seen: what it reads from here on is not older."""


class EventEnded(NamedTuple):
    broker: BrokerId
    incarnation: int
    term: Term | None
    """The one in which it began."""
    event: events.Event
    is_cut_short: bool = False
    """The node stops, and waited for it no longer: it was not done, and the next controller does what it left."""
    has_failed: bool = False
    """ZooKeeper failed in it, or the controller was deposed: what is left half done is tried again, or nobody's."""


class HandlerWaits(NamedTuple):
    """A controller handles an event for so long while its process runs and ZooKeeper serves it."""

    broker: BrokerId
    incarnation: int
    event: events.Event
    undisturbed_s: float


class ImbalanceUnchecked(NamedTuple):
    """An active controller has not looked for imbalanced leaders for so long, counted as in `HandlerWaits`."""

    term: Term
    is_first: bool
    """Whether it has not looked yet in its term."""
    undisturbed_s: float


class UncleanDefaultChanged(NamedTuple):
    """`unclean.leader.election.enable` of a node changed at run time, where a topic says nothing else."""

    broker: BrokerId
    incarnation: int
    allowed: bool


class UnexpectedError(NamedTuple):
    """A controller ran into an error that nobody foresaw, and resigned."""

    broker: BrokerId
    error: Exception
    where: str
    """The innermost lines."""


class ConfigChangeEnded(NamedTuple):
    """A command changed the config of an entity, and told its user that it did."""

    entity: str
    """The path below `/config`."""
    began_at: int
    """The newest zxid when the command began."""


class ConfigsApplied(NamedTuple):
    """A broker applied configs that it read after a notification."""

    broker: BrokerId
    incarnation: int
    configs: Mapping[str, Mapping[str, str]]
    """By entity, the path below `/config`."""


class RequestUnanswered(NamedTuple):
    """Somebody asked a controller before its session expired, and has no answer although that is over."""

    broker: BrokerId
    what: str
    """The name of the request."""


class PartitionMoved(NamedTuple):
    term: Term
    partition: Partition
    before: PartitionState
    after: PartitionState


class ReplicaMoved(NamedTuple):
    term: Term
    broker: BrokerId
    partition: Partition
    before: ReplicaState
    after: ReplicaState


class RequestQueued(NamedTuple):
    """A control request was handed to the channel of a broker."""

    term: Term
    target: BrokerId
    target_epoch: int
    """Of the run of the broker that it is for."""
    item: ControlItem


class ConnectionOpened(NamedTuple):
    """A controller begins to connect to a broker, in order to send a control request that is made already."""

    sender: BrokerId
    incarnation: int
    target: BrokerId


class RequestSent(NamedTuple):
    """A control request goes out; `again` where it is a repetition of the last one."""

    sender: BrokerId
    incarnation: int
    target: BrokerId
    message: Any
    again: bool
    in_flight: int
    """Requests to this broker that have no answer yet, on connections that are open."""
    version: int = 0
    """Of the request."""


class RequestAnswered(NamedTuple):
    sender: BrokerId
    target: BrokerId
    message: Any
    response: Any
    incarnation: int = 0
    """Of the sender."""


class JournalWritten(NamedTuple):
    """A node wrote lines to its journal."""

    broker: BrokerId
    incarnation: int
    lines: Sequence[Mapping[str, Any]]


# ---- at brokers


class RequestReceived(NamedTuple):
    """LeaderAndIsr, UpdateMetadata or StopReplica reached a broker, which refused it or not."""

    broker: BrokerId
    incarnation: int
    broker_epoch: int
    message: Any
    refusal: ErrorCode


class ReplicaRole(NamedTuple):
    """What a replica takes itself for."""

    topic_id: UUID
    """Zero where nobody told it, as controllers of old protocols do not."""
    leader: BrokerId
    leader_epoch: int
    members: frozenset[BrokerId]
    """Whom a leader counts as in sync: its ISR, and the one that it asks for until it is answered."""
    is_refused: bool
    """The controller knows better: it asks for nothing more."""


class LeaderAndIsrApplied(NamedTuple):
    """A LeaderAndIsr was carried out: each partition's leader epoch on this broker before it, and after it."""

    broker: BrokerId
    incarnation: int
    epochs: dict[TopicPartition, tuple[int, int]]
    roles: Mapping[TopicPartition, ReplicaRole]
    """What it makes of them."""
    accepted: Sequence[TopicPartition]
    """Those of which it says that all is well."""


class LogsDestroyed(NamedTuple):
    """A StopReplica was carried out that deletes: what lay on the broker's disk, each log with the id of its topic."""

    broker: BrokerId
    incarnation: int
    controller_epoch: int
    """Of the request."""
    logs: Mapping[TopicPartition, UUID]


class ReplicaRolesChanged(NamedTuple):
    """A leader asks for other ISRs, or got an answer."""

    broker: BrokerId
    incarnation: int
    roles: Mapping[TopicPartition, ReplicaRole]


class SessionReestablished(NamedTuple):
    """A node has a ZooKeeper session again, after an earlier one expired."""

    broker: BrokerId
    incarnation: int


class NodeStopped(NamedTuple):
    """A node that leaves in order has closed its last ZooKeeper session; its process may continue for a while."""

    broker: BrokerId
    incarnation: int


Event: TypeAlias = (
    TransactionCommitted
    | ControllerElected
    | StateWritten
    | TopicWritten
    | RegistrationChanged
    | RegistrationWritten
    | TermBegan
    | ContextRead
    | TermEnded
    | EventBegan
    | EventEnded
    | UncleanDefaultChanged
    | UnexpectedError
    | HandlerWaits
    | ImbalanceUnchecked
    | ConfigChangeEnded
    | ConfigsApplied
    | RequestUnanswered
    | PartitionMoved
    | ReplicaMoved
    | RequestQueued
    | ConnectionOpened
    | RequestSent
    | RequestAnswered
    | JournalWritten
    | RequestReceived
    | LeaderAndIsrApplied
    | LogsDestroyed
    | ReplicaRolesChanged
    | SessionReestablished
    | NodeStopped
)
