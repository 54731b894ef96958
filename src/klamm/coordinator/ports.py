"""What a coordinator needs of the partitions of its topic."""

from typing import Final, NamedTuple, Protocol

from klamm.model.errors import ErrorCode
from klamm.runtime.disk import Buffer

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"


class Appended(NamedTuple):
    error: ErrorCode
    base_offset: int = -1


class LogBounds(NamedTuple):
    start: int
    end: int


class CoordinatorLog(Protocol):
    """The partitions by number."""

    async def append(self, partition: int, batch: bytes, acks: int, timeout_ms: int) -> Appended:
        """Append the batch and wait for replication as `acks` requires.

        Batches are appended in the order of the calls.
        """
        ...

    def bounds(self, partition: int) -> LogBounds | None:
        """The log start offset and the log end offset; None where this broker does not lead the partition."""
        ...

    async def read(self, partition: int, offset: int, max_bytes: int) -> Buffer:
        """Read batches from the one that contains the offset on, at least one; empty at the log end.

        Raises KlammError where they cannot be read.
        """
        ...
