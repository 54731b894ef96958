"""The replicas of a partition, and those that a reassignment adds or removes.

Source: ReplicaAssignment (ControllerContext.scala).
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from klamm.model.ids import BrokerId, shared_ids


class ReplicaAssignment(NamedTuple):
    """All replicas in order of preference; those in `adding` and `removing` are among them."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()

    @property
    def is_being_reassigned(self) -> bool:
        """Whether replicas are being added or removed."""
        return bool(self.adding or self.removing)

    @property
    def origin(self) -> tuple[BrokerId, ...]:
        """The replicas before the reassignment: those without the added ones."""
        return tuple(b for b in self.replicas if b not in self.adding)

    @property
    def target(self) -> tuple[BrokerId, ...]:
        """The replicas after the reassignment: those without the removed ones."""
        return tuple(b for b in self.replicas if b not in self.removing)

    def reassign_to(self, target: Sequence[BrokerId]) -> "ReplicaAssignment":
        """The assignment during a reassignment to `target`: the union, with added and removed replicas."""
        origin = self.origin
        full = tuple(dict.fromkeys((*target, *origin)))
        return ReplicaAssignment(
            full,
            adding=tuple(b for b in full if b not in origin),
            removing=tuple(b for b in full if b not in target),
        )


@lru_cache(maxsize=65_536)
def assignment_of(
    replicas: tuple[BrokerId, ...], adding: tuple[BrokerId, ...] = (), removing: tuple[BrokerId, ...] = ()
) -> ReplicaAssignment:
    """Return the assignment with these replicas; equal assignments are one object, to save memory."""
    return ReplicaAssignment(shared_ids(replicas), shared_ids(adding), shared_ids(removing))
