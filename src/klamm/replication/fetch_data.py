"""The contents of a Fetch request and of its response, independent of the wire format."""

import uuid
from collections.abc import Collection, Sequence
from enum import IntEnum
from typing import NamedTuple

from klamm.log.epochs import EpochEnd
from klamm.log.file_slice import Records
from klamm.log.transactions import AbortedTransaction
from klamm.model.errors import ErrorCode
from klamm.model.ids import NO_BROKER, BrokerId
from klamm.replication.replica import NO_BROKER_EPOCH
from klamm.wire.records.batch import MAGIC

CONSUMER = BrokerId(-1)
"""The replica id of a fetch that comes from no broker."""


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class FetchPartition(NamedTuple):
    """One partition in a Fetch request; −1 stands for "not given" in both epochs."""

    topic: str | None
    """None where the request names an id that the metadata does not know."""
    topic_id: uuid.UUID
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


class FetchParams(NamedTuple):
    """What holds for a whole Fetch request. Sizes in bytes."""

    replica_id: BrokerId = CONSUMER
    max_wait_ms: int = 0
    min_bytes: int = 1
    max_bytes: int = 57_671_680
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    leader_only: bool = True
    """False for consumers of version 11 and newer: these may read from a follower."""
    magic: int = MAGIC
    """The newest format of records that the client knows; they are converted to it where it is an old one."""
    knows_zstd: bool = True
    first_may_exceed: bool = True
    """Whether the first batch is returned however large it is (version 3 and newer)."""
    near_brokers: Collection[BrokerId] = ()
    """The brokers in the rack of the consumer; empty where it is to read from leaders."""
    broker_epoch: int = NO_BROKER_EPOCH
    """The broker epoch of the follower; NO_BROKER_EPOCH before version 15."""

    @property
    def is_follower(self) -> bool:
        """Whether a follower fetches, not a consumer."""
        return self.replica_id >= 0


class FetchData(NamedTuple):
    """The answer for one partition."""

    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Records = b""
    diverging: EpochEnd | None = None
    aborted: Sequence[AbortedTransaction] | None = None
    settled: bool = False
    """Nothing new can be sent until the partition marks itself as changed."""
    held: bool = False
    """There are records, but the replication throttle holds them back."""
    preferred_replica: BrokerId = NO_BROKER
    """The follower from which the consumer is to read instead; the answer has no records then."""
