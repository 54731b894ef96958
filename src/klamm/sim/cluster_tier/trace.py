"""What clients were told, and what happened to disks: the input of the invariants of this tier, beside ZooKeeper's."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from klamm.model.ids import TopicPartition
from klamm.sim.cluster_tier.logs_on_disk import BatchIdentity


class SendState(StrEnum):
    UNKNOWN = "unknown"  # no answer, or one that does not tell: the records may be there
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"  # every answer said that nothing was appended


class TransactionState(StrEnum):
    ABORTED = "aborted"  # no request to commit it was sent: it can only be aborted
    COMMITTING = "committing"  # a request to commit it was sent: it may be committed, also much later
    COMMITTED = "committed"  # the coordinator acknowledged that


class Transaction:
    """One transaction of a copier: copies of records of `source`, and the offset after them."""

    __slots__ = ("epoch", "group", "next_offset", "sends", "source", "state")

    def __init__(self, group: str, epoch: int, source: TopicPartition, next_offset: int) -> None:
        self.group = group
        """The transactional id, and the group whose offset is committed."""
        self.epoch = epoch
        """The producer epoch, which fences the producers of lower epochs."""
        self.source = source
        self.next_offset = next_offset
        self.sends: list[Send] = []
        self.state = TransactionState.ABORTED


class Send:
    """One batch of a producer, over all its attempts."""

    __slots__ = (
        "acknowledged_s",
        "acks",
        "attempted_s",
        "attempts",
        "began_s",
        "is_idempotent",
        "offset",
        "partition",
        "producer",
        "state",
        "transaction",
        "values",
    )

    def __init__(
        self, producer: str, partition: TopicPartition, values: tuple[bytes, ...], acks: int, began_s: float
    ) -> None:
        self.producer = producer
        self.partition = partition
        self.values = values
        self.acks = acks
        self.is_idempotent = False
        self.began_s = began_s
        self.state = SendState.REFUSED
        """Nothing was sent so far."""
        self.offset = -1
        """Of the first record; -1 where the answer does not tell."""
        self.attempts = 0
        """How often it was sent."""
        self.attempted_s = began_s
        """When the last attempt was sent."""
        self.acknowledged_s = -1.0
        """When it was acknowledged; -1 before that."""
        self.transaction: Transaction | None = None
        """The transaction that the records are part of."""


class Acknowledged(NamedTuple):
    """A broker acknowledged a batch."""

    send: Send


class SequenceRefused(NamedTuple):
    """A broker refused the next batch of an idempotent producer because of its sequence."""

    send: Send
    error: str


class Polled(NamedTuple):
    """A consumer got an answer from the leader of a partition, or from a follower."""

    consumer: str
    partition: TopicPartition
    leader: int
    leader_epoch: int
    position: int
    """The offset that was asked for."""
    records: tuple[tuple[int, bytes], ...]
    """Offset and value of each record from there on."""
    high_watermark: int
    log_start: int
    control: frozenset[int] = frozenset()
    """The offsets of records that are not data but end a transaction."""
    aborted: frozenset[int] | None = None
    """The offsets of records of aborted transactions; None for a consumer that reads uncommitted."""
    follower: int | None = None
    """The follower that answered; None where the leader did."""
    asked_s: float = 0.0
    """When the request was sent."""
    wait_s: float = 0.0
    """How long the broker was to wait for records at most."""
    answered_s: float = 0.0


class TableRead(NamedTuple):
    """A client has read a compacted partition up to its high watermark, as a table of keys."""

    reader: str
    partition: TopicPartition
    position: int
    """Where this read began: 0, or the end of the read before, whose table it continues."""
    records: tuple[tuple[int, bytes], ...]
    """Offset and name of each record of this read."""
    end: int
    """The offset after the last record."""
    table: Mapping[bytes, tuple[int, bytes]]
    """Offset and name of the last record of each key."""
    began_s: float
    """When this read began; where it continues a table, when the read before it ended."""
    ended_s: float


class CorruptPoll(NamedTuple):
    """A broker sent bytes that are not the records that it was given."""

    consumer: str
    partition: TopicPartition
    why: str


class PositionLost(NamedTuple):
    """A broker said that the position of a consumer is not in the log."""

    consumer: str
    partition: TopicPartition
    position: int


class CommitEnded(NamedTuple):
    """A commit of a group's offset was answered or given up."""

    group: str
    partition: TopicPartition
    offset: int
    is_stored: bool
    """Whether the coordinator said so; else the offset may be stored, now or a little later."""
    generation: int = -1
    """Of the member that commits; -1 for a client that is no member."""
    began_s: float = 0.0
    """When the first attempt was sent."""


class Assigned(NamedTuple):
    """A member of a group got its partitions in a generation."""

    group: str
    generation: int
    member: str
    partitions: tuple[TopicPartition, ...]
    at_s: float
    instance: str | None = None
    """The group instance id of a static member."""


class MemberGone(NamedTuple):
    """A member left its group, or fell silent: it reads nothing any more."""

    group: str
    member: str


class CommittedOffsetRead(NamedTuple):
    """The coordinator told the committed offset of a group; -1 where it knows none."""

    group: str
    partition: TopicPartition
    offset: int


class ProducerStarted(NamedTuple):
    """The coordinator gave a producer of a transactional id its epoch: those before it are fenced."""

    transactional_id: str
    epoch: int
    at_s: float


class Truncated(NamedTuple):
    """A process is about to cut records off the end of a log."""

    node: int
    partition: TopicPartition
    offset: int
    end: int
    """The end before."""


class Expired(NamedTuple):
    """A process is about to remove the first segment of a log, as retention does."""

    node: int
    partition: TopicPartition
    end: int
    """The offset after the segment's last record."""


class WrittenAfterError(NamedTuple):
    """A process wrote to a log file although the device had refused a write or sync of that file."""

    node: int
    path: str


class RecordsDeleted(NamedTuple):
    """A leader answered that all live replicas have deleted the records before an offset."""

    partition: TopicPartition
    offset: int
    at_s: float
    runs: dict[int, int]
    """The members of the ISR, and how often each had been started."""


class LogReplaced(NamedTuple):
    """A process is about to replace a log by its copy in another log directory."""

    node: int
    partition: TopicPartition
    before: tuple[BatchIdentity, ...]
    """The batches of the log."""
    start: int
    """The base offset of the copy's first segment."""
    after: tuple[BatchIdentity, ...]
    """The batches of the copy."""
    synced_before: int = 0
    """Up to which offset a power loss would have left the log."""
    synced_after: int = 0
    """Up to which offset a power loss leaves the copy."""


class CallFailed(NamedTuple):
    """A device refused a call of a process."""

    node: int


class PowerLost(NamedTuple):
    """A machine lost power: of some logs a part was not on the device."""

    node: int
    ends: dict[TopicPartition, int]
    """The end of each log afterwards, where batches are gone."""
    changed: dict[TopicPartition, int]
    """The first offset of each log whose batch is gone: also one that was written after a truncation now undone."""
    recovery_points: dict[TopicPartition, int]


class NodeStarted(NamedTuple):
    """A process has loaded its logs and is registered."""

    node: int
    directories: tuple[str, ...]
    """The log directories that it has loaded, without those that failed."""


ClientEvent = (
    Acknowledged
    | SequenceRefused
    | Polled
    | TableRead
    | CorruptPoll
    | PositionLost
    | CommitEnded
    | CommittedOffsetRead
    | ProducerStarted
    | Assigned
    | MemberGone
)
DiskEvent = Truncated | Expired | LogReplaced | WrittenAfterError | CallFailed | PowerLost | NodeStarted
