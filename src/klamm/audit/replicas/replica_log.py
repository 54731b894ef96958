"""What the comparison needs of a replica, wherever its records are read."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from klamm.client.read_committed import Aborted
from klamm.model.errors import KlammError
from klamm.wire.vectors.batches import Run


class Bounds(NamedTuple):
    """What a replica has to offer: from its log start to its high watermark; committed up to its last stable offset."""

    start: int
    high_watermark: int
    last_stable: int
    readable_end: int
    """Up to there records are looked for because of which compaction may have removed earlier ones."""


class Piece(NamedTuple):
    """Batches in order; `aborted` has the transactions to leave out, None where all records are asked for."""

    run: Run
    aborted: Sequence[Aborted] | None


class ReplicaLog(Protocol):
    @property
    def name(self) -> str:
        """The replica as reports name it."""
        ...

    def is_compacted(self) -> bool:
        """Whether compaction may have removed records. Raises ReplicaUnavailable where that changes now."""
        ...

    def bounds(self) -> Bounds:
        """Look at the replica now. Raises ReplicaUnavailable."""
        ...

    def read(self, start: int, end: int, *, committed: bool) -> Iterator[Piece]:
        """The batches from the one with `start` on, before `end`; checksums are not verified.

        Raises BrokenReplica, ReplicaUnavailable, RangeMoved.
        """
        ...


class BrokenReplica(KlammError):
    """A replica has no readable batch at `offset`, though other offsets after it are committed."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset


class ReplicaUnavailable(KlammError):
    """A replica cannot be read at all now: its broker does not answer, or it is gone."""


class RangeMoved(KlammError):
    """The log start moved beyond the offset to read, because retention deleted records meanwhile."""
