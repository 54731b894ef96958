"""Limits on how many partitions, topics or replicas one request, read or write covers.

How long such a piece of work may hold the event loop is decided elsewhere, by `TimeSlices`.
"""

from typing import Final

REQUEST_PARTITIONS: Final = 2_500
"""Partitions in one UpdateMetadata or StopReplica, or in one encoded piece of a LeaderAndIsr: encoding it takes a few
ms."""
WRITE_PARTITIONS: Final = 500
"""Partitions decided and written in one step. While ZooKeeper works on one step, the next one is decided."""
READ_PARTITIONS: Final = 1_000
"""Partition states in one read."""
READ_TOPICS: Final = 20
"""Topic znodes in one read."""
DELETED_TOPICS: Final = 50
"""Topics whose znodes are deleted together."""
