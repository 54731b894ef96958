"""The partitions of a coordinator's topic: which one keeps a name, and how a coordinator reads and appends.

Source: GroupMetadataManager.partitionFor (3.9).
"""

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

    def max_batch_bytes(self, partition: int) -> int:
        """The size above which `append` refuses a batch (`max.message.bytes`); 0 where this broker has no replica."""
        ...

    async def confirm_leadership(self, partition: int) -> bool:
        """Whether it is certain that no other broker had become leader of the partition when this was called."""
        ...

    async def read(self, partition: int, offset: int, max_bytes: int) -> Buffer:
        """Read batches from the one that contains the offset on, at least one; empty at the log end.

        Raises KlammError where they cannot be read.
        """
        ...


_UNSIGNED: Final = 0xFFFF_FFFF
_SMALLEST: Final = -(2**31)


def java_hash(text: str) -> int:
    """Return what Java's `String.hashCode` returns: a signed number of 32 bits over the UTF-16 units."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & _UNSIGNED
    return code - (1 << 32) if code & 0x8000_0000 else code


def partition_for(name: str, partition_count: int) -> int:
    """Return the partition for a group id or transactional id.

    It is the absolute value of Java's string hash, modulo the partition count.
    """
    code = java_hash(name)
    return (0 if code == _SMALLEST else abs(code)) % partition_count
