"""Who is in sync: the ISR's three states and the rules that change it. Source: Partition.scala, KIP-497.

A leader proposes a change of the ISR and continues with the proposal pending until the controller answers.
Meanwhile the high watermark counts everybody who may be in the ISR by now: the *maximal* ISR.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.replication.replica import NO_BROKER_EPOCH, UNKNOWN_OFFSET, RemoteReplica


@dataclass(frozen=True, slots=True)
class Committed:
    """The ISR as the controller last confirmed it."""

    isr: tuple[BrokerId, ...]

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        """The members that may count as in sync: the confirmed ISR."""
        return self.isr


@dataclass(frozen=True, slots=True)
class PendingExpand:
    """`new` was proposed as a member; it counts for the high watermark from now on."""

    isr: tuple[BrokerId, ...]
    new: BrokerId
    broker_epoch: int = field(default=NO_BROKER_EPOCH, compare=False)
    """The registration in which `new` fetched and had caught up."""

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        """The confirmed ISR and the new member, which counts as in sync while the controller decides."""
        return (*self.isr, self.new)

    @property
    def proposed(self) -> tuple[BrokerId, ...]:
        """The ISR sent to the controller."""
        return (*self.isr, self.new)


@dataclass(frozen=True, slots=True)
class PendingShrink:
    """`out` were proposed to leave; they count for the high watermark until that is confirmed."""

    isr: tuple[BrokerId, ...]
    out: frozenset[BrokerId]

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        """The confirmed ISR: until the controller answers, the members to be removed count as in sync."""
        return self.isr

    @property
    def proposed(self) -> tuple[BrokerId, ...]:
        """The ISR sent to the controller."""
        return tuple(b for b in self.isr if b not in self.out)


BACK_TO_COMMITTED: Final = {ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA}
"""Answers after which a proposal is dropped; it may be made again."""

WAIT_FOR_LEADER_AND_ISR: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
}
"""Answers that say we are behind: the proposal stays pending until the next LeaderAndIsr."""

Pending = PendingExpand | PendingShrink
IsrState = Committed | PendingExpand | PendingShrink


def next_high_watermark(
    state: IsrState,
    replicas: Mapping[BrokerId, RemoteReplica],
    leader_end: int,
    *,
    own_id: BrokerId,
    now_ms: float,
    lag_time_max_ms: int,
    is_alive: Callable[[BrokerId], bool],
) -> int:
    """The lowest log end offset among the leader, the maximal ISR and those about to join it; −1 if one is unknown.

    A replica outside the ISR that has caught up and is alive is waited for as well: otherwise the high watermark of a
    leader alone in its ISR would always be ahead of the replica. An end is unknown where the member has not fetched
    yet, or is not assigned any more. Kafka does not wait for the latter. When a reassignment completes, the leader
    learns the new assignment before the ISR is shrunk in ZooKeeper; if the controller dies in between, the next one may
    elect a replica of the old assignment, which would lack what was acknowledged meanwhile.
    """
    lowest, members = leader_end, state.maximal
    for broker in members:
        if broker != own_id:
            member = replicas.get(broker)
            lowest = min(lowest, UNKNOWN_OFFSET if member is None else member.log_end_offset)
    for broker, replica in replicas.items():
        end = replica.log_end_offset
        if (
            end < lowest
            and broker not in members
            and replica.is_caught_up(leader_end, now_ms, lag_time_max_ms)
            and is_alive(broker)
        ):
            lowest = end
    return lowest


def may_join(
    state: IsrState, replica: RemoteReplica, *, alive: bool, high_watermark: int, epoch_start_offset: int | None
) -> bool:
    """Whether a follower that has just fetched may be proposed as a member.

    Reaching the high watermark is not enough: below the start of the leader's own epoch the high watermark
    may still rise to what the follower lacks (KAFKA-7128).
    """
    end = replica.log_end_offset
    return (
        isinstance(state, Committed)
        and replica.broker_id not in state.isr
        and epoch_start_offset is not None
        and end >= high_watermark
        and end >= epoch_start_offset
        and alive
    )


def out_of_sync(
    state: Committed,
    replicas: Mapping[BrokerId, RemoteReplica],
    leader_end: int,
    *,
    own_id: BrokerId,
    now_ms: float,
    lag_time_max_ms: int,
) -> frozenset[BrokerId]:
    """The members that have not been caught up with the leader for longer than `replica.lag.time.max.ms`.

    A member that is not assigned (KAFKA-9672) never fetches and has no replica object: it is out of sync at once.
    """
    return frozenset(
        b
        for b in state.isr
        if b != own_id
        and not ((replica := replicas.get(b)) and replica.is_caught_up(leader_end, now_ms, lag_time_max_ms))
    )
