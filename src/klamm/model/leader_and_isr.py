"""The leader and ISR of a partition. Source: LeaderAndIsr.scala, LeaderRecoveryState.java."""

from enum import IntEnum
from typing import Final, NamedTuple

from klamm.model.ids import NO_BROKER, BrokerId

INITIAL_LEADER_EPOCH: Final = 0
INITIAL_PARTITION_EPOCH: Final = 0
NO_EPOCH: Final = -1
LEADER_DURING_DELETE: Final = BrokerId(-2)
EPOCH_DURING_DELETE: Final = -2


class LeaderRecoveryState(IntEnum):
    RECOVERED = 0
    RECOVERING = 1  # after an unclean election, until the leader says otherwise (KIP-704)


class LeaderAndIsr(NamedTuple):
    """The content of a partition's `state` znode.

    `partition_epoch` is the znode's version, and not part of its JSON; `controller_epoch` is the epoch of the
    controller that decided this state.
    """

    leader: BrokerId
    leader_epoch: int
    isr: tuple[BrokerId, ...]
    controller_epoch: int
    partition_epoch: int = INITIAL_PARTITION_EPOCH
    recovery: LeaderRecoveryState = LeaderRecoveryState.RECOVERED

    @property
    def has_leader(self) -> bool:
        """Whether the leader is a broker, not -1."""
        return self.leader != NO_BROKER

    def with_leader(
        self,
        leader: BrokerId,
        isr: tuple[BrokerId, ...],
        controller_epoch: int,
        recovery: LeaderRecoveryState | None = None,
    ) -> "LeaderAndIsr":
        """The next state with this leader and ISR: leader epoch raised by one, partition epoch unchanged."""
        _, leader_epoch, _, _, partition_epoch, before = self
        after = before if recovery is None else recovery
        # without a NamedTuple's keyword handling: they come by the hundred thousand
        return tuple.__new__(LeaderAndIsr, (leader, leader_epoch + 1, isr, controller_epoch, partition_epoch, after))

    def at_partition_epoch(self, partition_epoch: int) -> "LeaderAndIsr":
        """Return this state with another partition epoch, for example after a write."""
        return self._replace(partition_epoch=partition_epoch)
