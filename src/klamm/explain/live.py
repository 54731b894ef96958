"""What a coordinator says now, for explanations: the command asks it, and the answers put it beside the journal."""

from typing import NamedTuple

from klamm.model.ids import TopicPartition


class MemberNow(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


class LagNow(NamedTuple):
    """How far the group has read one partition."""

    committed: int | None
    end: int | None
    """None where the partition does not exist any more."""

    @property
    def lag(self) -> int | None:
        """The number of records between the committed offset and the log end; None where one of them is not known."""
        return None if self.committed is None or self.end is None else self.end - self.committed


class GroupNow(NamedTuple):
    state: str
    assignor: str
    members: tuple[MemberNow, ...]
    lags: dict[TopicPartition, LagNow]
    earlier: dict[TopicPartition, LagNow]
    """A moment before; empty where only one look was needed."""
    interval_s: float


class TransactionNow(NamedTuple):
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]
    now_ms: int
