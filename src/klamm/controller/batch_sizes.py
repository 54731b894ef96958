"""How much goes into one request, read or write. None of these says when the loop is given back: see `TimeSlices`."""

from typing import Final

REQUEST_PARTITIONS: Final = 2_500
"""In one UpdateMetadata or StopReplica, or a piece of a LeaderAndIsr: to encode it takes a few ms in one go."""
WRITE_PARTITIONS: Final = 500
"""Decided and written in one step. Steps overlap: while ZooKeeper works on one, the next is decided."""
READ_PARTITIONS: Final = 1_000
READ_TOPICS: Final = 20
DELETED_TOPICS: Final = 50
"""Whose znodes go together."""
