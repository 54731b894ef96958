"""What replication needs from its neighbours: metadata, topic configs, logs, other brokers, the controller."""

import uuid
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol

from klamm.log.producers import Origin
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId, TopicPartition

Buffer = bytes | bytearray | memoryview


class PartitionRefused(KlammError):
    """One partition cannot serve what was asked; `code` is what the client is told."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class LogConfig(Protocol):
    @property
    def min_insync_replicas(self) -> int: ...


class AppendInfo(Protocol):
    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def log_append_time_ms(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...


class ReadResult(Protocol):
    @property
    def records(self) -> bytes | memoryview: ...


class TimestampedOffset(Protocol):
    @property
    def timestamp(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...


class PartitionLog(Protocol):
    """The log of one replica, as `klamm.log` gives it."""

    @property
    def config(self) -> LogConfig: ...
    @property
    def topic_id(self) -> uuid.UUID | None: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
    def append_as_leader(self, records: Buffer, leader_epoch: int, origin: Origin) -> AppendInfo: ...
    def append_as_follower(self, records: Buffer) -> AppendInfo | None: ...
    def read(self, offset: int, max_bytes: int, upper_bound: int, at_least_one: bool) -> ReadResult: ...
    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the record at `offset`, −1 where none is known."""
        ...

    def max_timestamp(self) -> "TimestampedOffset | None": ...
    def offset_for_timestamp(self, timestamp: int) -> "TimestampedOffset | None": ...
    @property
    def latest_epoch(self) -> int | None: ...
    def assign_topic_id(self, topic_id: uuid.UUID) -> None: ...
    def update_high_watermark(self, offset: int) -> object: ...
    def advance_start_offset(self, offset: int) -> object: ...
    def truncate_to(self, offset: int) -> object: ...
    def truncate_fully_and_start_at(self, offset: int) -> None: ...
    def assign_epoch_start(self, epoch: int, start_offset: int) -> None: ...
    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]: ...


class LogsPort(Protocol):
    """The log directories of this broker."""

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None: ...
    async def get_or_create_many(
        self, wanted: Sequence[tuple[TopicPartition, uuid.UUID, bool]]
    ) -> Sequence[PartitionLog | OSError | KlammError]:
        """A log for each (partition, topic id, is new); why not, in the place of one that could not be had."""
        ...

    async def delete(self, topic_partition: TopicPartition) -> None:
        """Raises OSError. Nothing happens where there is no such log."""
        ...

    async def checkpoint_high_watermarks(self) -> None: ...
    def directory_failed(self, topic_partition: TopicPartition, error: OSError) -> Collection[TopicPartition]:
        """Give up the directory this partition lies in: everything that lay there; empty where that is done."""
        ...


OnDiskError = Callable[[TopicPartition, OSError], None]
"""A log of this partition could not be read or written: its directory has failed."""


class MetadataPort(Protocol):
    """The broker's metadata cache, as of the newest UpdateMetadata."""

    def is_alive(self, broker_id: BrokerId) -> bool: ...
    def endpoint(self, broker_id: BrokerId) -> tuple[str, int] | None:
        """Host and port of the inter-broker listener; None where the broker is not alive."""
        ...

    def contains(self, topic_partition: TopicPartition) -> bool: ...
    def topic_name(self, topic_id: uuid.UUID) -> str | None: ...


class IsrAnswer(NamedTuple):
    """The controller's word on one proposed ISR; the fields after `error` count only without one."""

    error: ErrorCode
    leader_epoch: int = -1
    isr: tuple[BrokerId, ...] = ()
    partition_epoch: int = -1


class IsrProposal(Protocol):
    """A proposed ISR on its way to the controller."""

    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def topic_id(self) -> uuid.UUID:
        """The zero id where the topic has none."""
        ...

    @property
    def leader_epoch(self) -> int: ...
    @property
    def partition_epoch(self) -> int: ...
    @property
    def isr(self) -> tuple[BrokerId, ...]: ...
    def answered(self, answer: IsrAnswer) -> None:
        """Called once, when the controller has answered for this partition."""
        ...


class AlterPartitionPort(Protocol):
    def submit(self, proposal: IsrProposal) -> bool:
        """Queue a proposal; False where one of the same partition is still under way."""
        ...
