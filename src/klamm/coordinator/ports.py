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
        """Append the batch and wait as `acks` asks. Appends in the order of the calls, before the first wait."""
        ...

    def bounds(self, partition: int) -> LogBounds | None:
        """The first offset and the log end offset; None where this broker does not lead the partition."""
        ...

    async def read(self, partition: int, offset: int, max_bytes: int) -> Buffer:
        """Batches from the one that contains the offset on, up to the log end, at least one; empty at the end.

        Raises KlammError where they cannot be read.
        """
        ...
